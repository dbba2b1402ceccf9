// Backward kernels that walk boxes of a grid: a CTA owns a box of keys, and walks boxes of queries.
#pragma once

#include "families/family.h"

#include <string>
#include <vector>

namespace attnc::plan {

/// Returns why none of these kernels serves a request, as FamilyRow::unserved does.
std::string unservedByBackwardBoxes(const Request& request);

/// Mirrors kReadsQueries of templates/algo/grid_transposed_scores.cuh. Precondition: mod.grid and mod.onGrid.
bool readsQueries(const KernelMod& mod);

/// Returns at most `count` box shapes of `queries` and `keys` tokens, best first. The best makes the fewest steps:
/// steps of a CTA, times the share by which boxes of keys overhang the grid. Among equals, the longest along the
/// fastest axis wins. Deterministic kernels' boxes of queries are cells of a lattice, and so more on average.
/// Precondition: request.mod->grid.
std::vector<codegen::Config::Boxes> rankBackwardBoxes(const Request& request, int queries, int keys, size_t count);

} // namespace attnc::plan
