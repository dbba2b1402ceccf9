// The GPUs that attnc compiles for, and the NVRTC that it finds.
#pragma once

#include "attnc/error.h"

#include <string>
#include <string_view>
#include <vector>

namespace attnc {

/// Returns the GPU architectures that attnc knows, in ascending order: "sm_80", "sm_86", ..., "sm_90a", ...
std::vector<std::string> knownArchs();

/// Whether attnc knows a GPU architecture, such as "sm_90a". For other names it opens NVRTC, which may be newer, and
/// asks that; false if none is found.
bool isKnownArch(std::string_view arch);

/// An NVRTC that can be opened.
struct NvrtcInfo {
  /// Version and banner of the build: "13.0 | Compiler Build ID: CL-36424714 | Cuda compilation tools, ...".
  std::string identity;
  std::string path; ///< Path of the library.
};
/// Returns the NVRTC that compilers without CompilerOptions::nvrtcPath use. Opens it. Errors (environment): no
/// NVRTC, or one that is too old.
Expected<NvrtcInfo> findNvrtc();

} // namespace attnc
