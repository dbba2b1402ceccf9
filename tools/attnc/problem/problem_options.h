// The mod and problem options of `mask` and `probe`.
#pragma once

#include "cli_fwd.h"
#include "problem/operands.h"
#include "problem/run_options.h"

#include <optional>
#include <string>

namespace attnc::cli {

struct ProblemOptions {
  RunOptions run; ///< for mod, input, sets, seed
  std::optional<ProblemShape> shape;
  bool draw = false;

  void addTo(CLI::App& command);
  /// Reads the mod. Captures that it does not declare may come from the file of --in. Throws CLI::Error as
  /// ModOptions::load().
  Expected<Mod> loadMod();
  Expected<HostOperands> find(const Mod& mod, Elements elements, bool withScores) const;
};

/// Returns "window = 9, causal = True": the scalar captures that have a value; "" if none has.
std::string valuesText(const Captures& captures);

} // namespace attnc::cli
