// Versions of this program and of the libraries it uses.
#pragma once

#include <string>

namespace attnc::cli {

/// Returns lines "attnc 0.1.0", "NVRTC 13.0.88 (...), PATH" (or that NVRTC is missing), "LLVM 14.0.6".
std::string versionText();

/// Returns "13.0.88 (CL-36424714)" for the identity of an NVRTC (NvrtcInfo).
std::string nvrtcBuild(const std::string& identity);
/// Returns "14.0.6".
const char* llvmVersion();

} // namespace attnc::cli
