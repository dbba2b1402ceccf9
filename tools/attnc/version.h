// What this program is made of, and what it works with here.
#pragma once

#include <string>

namespace attnc::cli {

/// Lines "attnc 0.1.0", "NVRTC 13.0.88 (...), PATH" or that there is none, "LLVM 14.0.6".
std::string versionText();

} // namespace attnc::cli
