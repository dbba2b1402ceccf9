// The files of templates/host as text, for launchers of emitted kernels. They are apart from the templates, on which
// compiled kernels depend.
#pragma once

#include "plan/embedded.h"

namespace attnc::plan {

extern const EmbeddedFile kHostFiles[];
extern const unsigned kHostFileCount;

} // namespace attnc::plan
