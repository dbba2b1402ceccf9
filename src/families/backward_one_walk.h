// Gradients with mma.sync and cp.async in one walk: each product is computed once, and dQ is summed in fp32.
#pragma once

#include "families/family.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <vector>

namespace attnc::plan {

constexpr int kOneWalkWidest = 128; ///< head dim; beyond it, a warp's dK and dV take all registers

/// Mirrors `Memory` of templates/algo/backward_step_mma.cuh. tableBytes(rows): bytes that a kernel keeps for `rows`
/// rows of a step. walkBytes: bytes that it keeps for what it walks.
int oneWalkSharedBytes(const Tile& tile, const KernelOptions& options, int walkBytes,
                       llvm::function_ref<int(int)> tableBytes);

/// Returns the tiles that fit into registers, shared memory and the blocks of lists, the model's choice first. Empty if
/// no tile fits: f32, wide heads, lists of small blocks. `form`: of the score as the kernel is written.
std::vector<Tile> oneWalkTiles(const Request& request, analysis::ScoreForm form,
                               llvm::function_ref<int(const Tile&)> sharedBytes);

/// Returns the tiles for the faster form of the sm80 family's backward kernels. Empty if dQ must not depend on the
/// order in which CTAs add to it (Feature::Deterministic).
std::vector<Tile> oneWalkTiles(const Request& request);

/// Precondition: oneWalkTiles() returns a tile.
Plan planBackwardOneWalk(const Request& request);

} // namespace attnc::plan
