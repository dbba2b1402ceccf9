// Gradients with mma.sync and cp.async in one walk: every product once, dQ by sums in fp32.
#pragma once

#include "plan/family.h"

#include <vector>

namespace attnc::plan {

/// Tiles that fit into registers, into shared memory and into the blocks of lists, the model's first. None where dQ may
/// not depend on the order in which CTAs add to it (KernelOptions::deterministic), and where no tile fits: f32, wide
/// heads, lists of small blocks.
std::vector<Tile> oneWalkTiles(const Request& request);

/// Of the sm80 family's backward kernels, the faster form. Precondition: there is a tile.
Plan planBackwardOneWalk(const Request& request);

} // namespace attnc::plan
