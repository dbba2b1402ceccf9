// Names of GPU architectures: which one a device is, and what runs on it.
#pragma once

#include "attnc/error.h"

#include <optional>
#include <string>
#include <string_view>

namespace attnc::jit {

/// "sm_90a": compute capability 9.0, and a suffix.
struct ArchName {
  int number = 0;  ///< 10 major + minor
  char suffix = 0; ///< 'a': the features of this very one; 'f': of its family (major); 0: none
};

/// Nothing for what is no such name. Whether there is such a GPU is not asked.
std::optional<ArchName> parseArchName(std::string_view text);

/// "sm_80" for compute capability 8.0; from 9.0 on with the features that only this one has: "sm_90a".
std::string archName(int major, int minor);

/// Whether machine code for `arch` runs on compute capability major.minor: "a" needs the very same, "f" the same
/// family (major) from its minor on, a plain name the same major from its minor on. Blame::Environment: it does not.
Status checkArchRuns(const std::string& arch, int major, int minor);

} // namespace attnc::jit
