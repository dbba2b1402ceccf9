// What a mod's grids are, and the box of keys that a query sees on them: as lines for a person, and for programs.
#pragma once

#include "json_report.h"
#include "run_options.h"

#include "attnc/mod.h"
#include "attnc/operands.h"

#include <string>

namespace attnc::cli {

/// Lines "grid        128 x 128: queries and keys", with the box or why there is none; of a grid that no line declares, which
/// kernels take it; of a mod whose divisions of positions are no grid, how it declares one. Empty where it has none of that.
Expected<std::string> gridsText(const Mod& mod);

/// {"grids": [{"extents", "before", "isDeclared", "ofQueries", "ofKeys"}], "box": {"isMask", "axes": [{"axis", "begin", "end", "step",
/// "phase"}]}}, expressions as text; empty of a mod without grids.
Expected<JsonReport> gridsJson(const Mod& mod);

/// The shape, with the lengths of the grids that the mod declares for queries and for keys, where --set, --pin and the
/// text say their extents.
Expected<ProblemShape> onDeclaredGrids(const Mod& mod, const RunOptions& options, ProblemShape shape);

/// Whether the mod declares grids, and does not take positions apart by hand.
bool declaresGrids(const Mod& mod);

} // namespace attnc::cli
