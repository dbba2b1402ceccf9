// How much of a problem a mask leaves to compute, in blocks, without making the lists of a block mask.
//
// Intervals decide whole regions at once, and captured data is read by rows and columns, so that a document mask over a
// million positions takes no longer than a causal one. What they leave open is evaluated by elements as far as a budget
// of operations goes, and estimated from samples beyond. So time and memory are bounded for every problem, and the
// result is the same on every machine.
#pragma once

#include "attnc/block_mask.h"
#include "ir/bindings.h"
#include "ir/ir.h"

#include <cstdint>

namespace attnc {

/// Operations of mask_mod that a census may take, for all batch entries and heads together: one evaluation of a
/// mask_mod of ten operations counts ten. Together a few seconds on one core.
struct CensusBudget {
  int64_t reading = int64_t(1) << 28;  ///< to evaluate what rows and columns know of captured data
  int64_t judging = int64_t(1) << 24;  ///< to judge regions by intervals
  int64_t elements = int64_t(1) << 30; ///< to evaluate blocks by elements
  int64_t heads = 4096;                ///< batch entries times heads that are looked at
};

/// Counts of blocks, over all batch entries and heads of the shape. They are doubles because problems within the limits
/// of bind() have up to 2^82 blocks.
struct MaskCensus {
  BlockMaskShape shape;
  double blocks = 0; ///< all
  double live = 0;   ///< those with an element that lives
  double full = 0;   ///< of these, those that lie inside [qLen, kvLen) whole and live whole
  double pairs = 0;  ///< elements of [qLen, kvLen) that lie in live blocks

  double estimated = 0; ///< blocks whose state is inferred from samples; 0: all counts are exact
  double sampled = 0;   ///< blocks from which it is inferred

  int64_t operations = 0; ///< what it took of the budget
};

/// Counts. `module` is verified; `bindings` are for it, with captures in host memory, of which those that mask_mod
/// reads are read. Uses all cores.
MaskCensus takeCensus(const ir::Module& module, const ir::Bindings& bindings, const BlockMaskShape& shape,
                      const CensusBudget& budget = {});

} // namespace attnc
