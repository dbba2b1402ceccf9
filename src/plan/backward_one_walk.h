// Gradients with mma.sync and cp.async in one walk: every product once, dQ by sums in fp32.
#pragma once

#include "plan/family.h"

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/SmallVector.h>

#include <optional>

namespace attnc::plan {

constexpr int kOneWalkWidest = 128; ///< head dim; with more, a warp's dK and dV take all registers

/// As `Memory` of templates/algo/backward_step_mma.cuh. tableBytes(rows): of what a kernel keeps of so many rows of a
/// step; walkBytes: of what it walks.
int oneWalkSharedBytes(const Tile& tile, const KernelOptions& options, int walkBytes,
                       llvm::function_ref<int(int)> tableBytes);

/// The tiles of such kernels that fit into registers, into shared memory and into the blocks of lists, the one that is
/// taken first. `form`: of the score, as the kernel is written.
llvm::SmallVector<Tile, 2> oneWalkTiles(const Request& request, analysis::ScoreForm form,
                                        llvm::function_ref<int(const Tile&)> sharedBytes);

/// Of the sm80 family's backward kernels, the faster form. Its dQ depends on the order in which CTAs add to it. Nothing
/// where that may not be (KernelOptions::deterministic), and where its tiles do not fit: f32, wide heads, lists of
/// small blocks.
std::optional<Plan> planBackwardOneWalk(const Request& request);

} // namespace attnc::plan
