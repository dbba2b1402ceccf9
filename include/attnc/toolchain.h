// The GPUs that attnc compiles for, and the NVRTC and the pack of kernels that it finds.
#pragma once

#include "attnc/error.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnc {

/// Returns the GPU architectures that attnc knows, in ascending order: "sm_80", "sm_86", ..., "sm_90a", ...
std::vector<std::string> knownArchs();

/// Returns whether attnc knows a GPU architecture, such as "sm_90a". For other names it opens NVRTC, which may be
/// newer, and asks that; false if none is found.
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

/// The pack that compilers search after their cache, although nobody names it: ATTNC_DEFAULT_PACK, else the one that an
/// install has put near the library.
struct DefaultPackInfo {
  std::string path;    ///< Path of the pack. Empty if none was found.
  int64_t kernels = 0; ///< Number of its kernels.
  std::string problem; ///< Why compilers pass it over. Empty if they use it.
};
/// Returns the default pack. Reads the environment and the beginning of the pack.
DefaultPackInfo findDefaultPack();

} // namespace attnc
