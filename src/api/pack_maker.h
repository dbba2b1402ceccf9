// Who made a pack: this version of attnc, with these templates. Packs of other makers have other kernels.
#pragma once

#include <string>

namespace attnc {

/// Returns "attnc 0.1.0 (templates 0123456789ab)". Thread-safe.
std::string packMaker();

} // namespace attnc
