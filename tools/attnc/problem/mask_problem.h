// The mod and problem options of `mask`, `probe` and `shard`.
#pragma once

#include "cli_fwd.h"
#include "problem/operands.h"
#include "problem/problem_options.h"

#include <string>

namespace attnc::cli {

/// Adds the options of the mod, and of a problem of which only captures are drawn.
void addMaskProblem(CLI::App& command, ProblemOptions& options);

/// Reads the captures, or draws those that nothing gives, and says on stderr which. `withScores`: also q and k.
Expected<HostOperands> findMaskProblem(const Mod& mod, const ProblemOptions& options, Elements elements,
                                       bool withScores);

/// Whether --set gives a capture.
bool isSet(const ProblemOptions& options, const std::string& capture);

/// Returns "window = 9, causal = True": the scalar captures that have a value; "" if none has.
std::string valuesText(const Captures& captures);

/// Returns "sliding_window.py: window = 9", the title of a picture.
std::string titleOf(const Mod& mod, const Captures& captures);

} // namespace attnc::cli
