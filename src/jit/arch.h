// Names of GPU architectures: which one a device has, and what runs on it.
#pragma once

#include "attnc/error.h"

#include <optional>
#include <string>
#include <string_view>

namespace attnc::jit {

/// "sm_90a": compute capability 9.0, and a suffix.
struct ArchName {
  int number = 0;  ///< 10 major + minor
  char suffix = 0; ///< 'a': the features of exactly this one; 'f': of its family (major); 0: none
};

/// Parses a name; nullopt if it is malformed. Does not check whether the GPU exists.
std::optional<ArchName> parseArchName(std::string_view text);

/// Returns "sm_80" for compute capability 8.0; from 9.0 on, the name with architecture-specific features: "sm_90a".
std::string archName(int major, int minor);

/// Checks that machine code for `arch` runs on compute capability major.minor: "a" needs exactly this one; "f" needs
/// the same family (major) and at least its minor; a plain name needs the same major and at least its minor.
/// Blame::Environment: it does not run.
Status checkArchRuns(const std::string& arch, int major, int minor);

} // namespace attnc::jit
