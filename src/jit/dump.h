// Writes the inputs and outputs of a compilation into a directory, for debugging: ATTNC_DUMP_DIR.
//
// In: a source, and its result or error. Out: DIR/NAME-ARCH-DIGEST/ with the source and headers under their own names
// (so nvcc can compile the folder), kernel.ptx, kernel.cubin, options.txt, log.txt. Best effort: a failure is only
// logged.
#pragma once

#include "attnc/kernel.h"
#include "cache/log.h"
#include "cache/sha256.h"

#include <string>

namespace attnc::jit {

/// `content`: digest of the source (kernel_bytes.h). `result`: null if it failed; `failure` is then the error's text.
void dumpSource(const std::string& directory, const cache::Digest& content, const KernelSource& source,
                const CompiledKernel* result, const std::string& failure, const cache::Log& log);

} // namespace attnc::jit
