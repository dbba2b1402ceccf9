// Machine code as text, by the disassemblers of CUDA.
#pragma once

#include "attnc/error.h"

#include <string>

namespace attnc::cli {

/// Returns the SASS of a cubin. Runs nvdisasm or cuobjdump: from PATH, CUDA_HOME, CUDA_PATH, /usr/local/cuda, or Triton
/// in the Python of PATH. Errors (environment): none is found, or it fails.
Expected<std::string> disassembled(const std::string& cubin);

} // namespace attnc::cli
