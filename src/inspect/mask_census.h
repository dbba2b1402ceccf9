// Counts how much of a problem a mask leaves to compute, in blocks, without building a block mask's lists.
//
// Intervals decide whole regions at once, and captured data is read by rows and columns. So a document mask over a
// million positions takes as long as a causal one. What intervals leave open is evaluated element by element within a
// budget of operations, and estimated from samples beyond it. Time and memory are therefore bounded for every problem,
// and the result is the same on every machine.
#pragma once

#include "attnc/explain.h"
#include "ir/bindings.h"
#include "ir/ir.h"

#include <cstdint>

namespace attnc {

/// Operations of mask_mod that a census may take, over all batch entries and heads. One evaluation of a mask_mod of ten
/// operations counts as ten. The defaults add up to a few seconds on one core.
struct CensusBudget {
  int64_t reading = int64_t(1) << 28;  ///< for reading captured data by rows and columns
  int64_t judging = int64_t(1) << 24;  ///< for judging regions by intervals
  int64_t elements = int64_t(1) << 30; ///< for evaluating blocks element by element
  int64_t heads = 4096;                ///< batch entries times heads that are examined
};

/// Takes a census. `module` is verified. `bindings` are for it, with captures in host memory; only those that mask_mod
/// reads are read. Uses all cores.
MaskCensus takeCensus(const ir::Module& module, const ir::Bindings& bindings, const BlockMaskShape& shape,
                      const CensusBudget& budget = {});

} // namespace attnc
