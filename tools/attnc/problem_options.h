// A mod and the problem that it is looked at in: what `mask` and `probe` are told.
#pragma once

#include "operands.h"
#include "run_options.h"

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

namespace attnc::cli {

struct ProblemOptions {
  RunOptions run; ///< mod, input, sets, seed
  std::optional<ProblemShape> shape;
  bool draw = false;

  void addTo(CLI::App& command);
  /// Reads the mod; what it does not declare may come from the file of --in. Throws CLI::Error as ModOptions::load().
  Expected<Mod> loadMod();
  Expected<HostOperands> find(const Mod& mod, Elements elements, bool withScores) const;
};

/// "window = 9, causal = True": the numbers among captures that have one; "" where there are none.
std::string valuesText(const Captures& captures);

} // namespace attnc::cli
