// Names of GPU architectures: which one a device is, and what runs on it.
#pragma once

#include "attnc/error.h"

#include <string>

namespace attnc::jit {

/// "sm_80" for compute capability 8.0; from 9.0 on with the features that only this one has: "sm_90a".
std::string archName(int major, int minor);

/// Whether machine code for `arch` runs on compute capability major.minor: "a" needs the very same, "f" the same
/// family (major) from its minor on, a plain name the same major from its minor on. Blame::Environment: it does not.
Status checkArchRuns(const std::string& arch, int major, int minor);

} // namespace attnc::jit
