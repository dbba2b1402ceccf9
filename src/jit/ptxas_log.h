// Reads the resource lines that ptxas writes with `-v`.
//
// In: the log of a successful compile, of any CUDA 12 or 13. Out: numbers and advisory lines. Not: a judgement about
// them. A line it does not know is skipped; a log without numbers gives zeros.
#pragma once

#include "jit/compile_job.h"

#include <string_view>

namespace attnc::jit {

/// Fills registers, spillBytes, staticSharedBytes, stackBytes and advisories from `log`; leaves the rest alone.
void readPtxasLog(std::string_view log, CompileResult& result);

} // namespace attnc::jit
