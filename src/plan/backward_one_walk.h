// Gradients with mma.sync and cp.async in one walk: every product once, dQ by sums in fp32.
#pragma once

#include "plan/family.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <vector>

namespace attnc::plan {

constexpr int kOneWalkWidest = 128; ///< head dim; with more, a warp's dK and dV take all registers

/// As `Memory` of templates/algo/backward_step_mma.cuh. tableBytes(rows): of what a kernel keeps of so many rows of a
/// step; walkBytes: of what it walks.
int oneWalkSharedBytes(const Tile& tile, const KernelOptions& options, int walkBytes,
                       llvm::function_ref<int(int)> tableBytes);

/// Tiles of such kernels that fit into registers, into shared memory and into the blocks of lists, the model's first.
/// None where dQ may not depend on the order in which CTAs add to it (KernelOptions::deterministic), and where no tile
/// fits: f32, wide heads, lists of small blocks. `form`: of the score, as the kernel is written.
std::vector<Tile> oneWalkTiles(const Request& request, analysis::ScoreForm form,
                               llvm::function_ref<int(const Tile&)> sharedBytes);

/// Of the sm80 family's backward kernels, the faster form.
std::vector<Tile> oneWalkTiles(const Request& request);

/// Precondition: there is a tile.
Plan planBackwardOneWalk(const Request& request);

} // namespace attnc::plan
