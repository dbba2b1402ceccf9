// Backward kernels by boxes of a grid: a CTA owns a box of keys, and walks boxes of queries.
#pragma once

#include "plan/family.h"

#include <string>
#include <vector>

namespace attnc::plan {

/// Why none of them serves a request, as FamilyRow::unserved.
std::string unservedByBackwardBoxes(const Request& request);

/// As kReadsQueries of templates/algo/grid_transposed_scores.cuh. Precondition: mod.grid and mod.onGrid.
bool readsQueries(const KernelMod& mod);

/// The shapes of boxes of `queries` and `keys` tokens that make the fewest steps, at most `count`, the best first:
/// steps of a CTA, times what boxes of keys reach beyond the grid. Of equal ones the one that is longest along the
/// fastest axis.
std::vector<codegen::Config::Boxes> rankBackwardBoxes(const passes::GridKernel& grid, int queries, int keys,
                                                      size_t count);

} // namespace attnc::plan
