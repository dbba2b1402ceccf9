// A mod's grids, and the box of keys that a query sees on them, as text.
#pragma once

#include "problem/problem_options.h"

#include "attnc/explain.h"

#include <string>

namespace attnc::cli {

/// Returns lines "grid        128 x 128: queries and keys", with the box or why it has no box. For a grid that is not
/// declared, says which kernels take it; for a mod whose divisions of positions are not a grid, how to declare one.
/// Otherwise empty.
std::string gridsText(const ModGrids& grids);

/// Sets the lengths of the shape to those of the declared grids of queries and keys, if --set, --pin and the text give
/// their extents.
Expected<ProblemShape> onDeclaredGrids(const Mod& mod, const ProblemOptions& options, ProblemShape shape);

} // namespace attnc::cli
