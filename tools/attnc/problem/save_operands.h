// Writes operands that were drawn to a file, for `attnc run --save-operands`.
//
// In: operands of `attnc run --random`. Out: a safetensors file from which `attnc run --in` finds the same operands.
// Not in the file: what options say, such as the scale; savedText() names the options to repeat.
#pragma once

#include "problem/host_operands.h"
#include "problem/problem_options.h"

#include "attnc/mod.h"

#include <string>

namespace attnc::cli {

/// Throws CLI::ValidationError if --save-operands is given together with options that do not fit.
void checkSaveOperands(const ProblemOptions& options);

/// Writes the file. Blame::Environment if it cannot be written, or if a capture has the name of another operand.
Status saveOperands(const Mod& mod, const HostOperands& operands, const ProblemOptions& options);

/// Returns the line that says what was written, and how to compute it again.
std::string savedText(const ProblemOptions& options);

} // namespace attnc::cli
