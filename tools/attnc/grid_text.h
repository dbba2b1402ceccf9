// A mod's grids, and the box of keys that a query sees on them, as text and JSON.
#pragma once

#include "json_report.h"
#include "run_options.h"

#include "attnc/mod.h"
#include "attnc/operands.h"

#include <string>

namespace attnc::cli {

/// Returns lines "grid        128 x 128: queries and keys", with the box or why it has no box. For a grid that is not
/// declared, says which kernels take it; for a mod whose divisions of positions are not a grid, how to declare one.
/// Otherwise empty.
Expected<std::string> gridsText(const Mod& mod);

/// Returns {"grids": [{"extents", "before", "isDeclared", "ofQueries", "ofKeys"}], "box": {"isMask", "axes": [{"axis",
/// "begin", "end", "step", "phase"}]}}, with expressions as text; empty for a mod without grids.
Expected<JsonReport> gridsJson(const Mod& mod);

/// Sets the lengths of the shape to those of the declared grids of queries and keys, if --set, --pin and the text give
/// their extents.
Expected<ProblemShape> onDeclaredGrids(const Mod& mod, const RunOptions& options, ProblemShape shape);

/// Whether the mod declares grids, and does not split positions by hand.
bool declaresGrids(const Mod& mod);

} // namespace attnc::cli
