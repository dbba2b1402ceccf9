// How much a problem takes at least: query-key pairs that the mask lets live, and columns of K and V that queries see.
#pragma once

#include "api/grid_census.h"
#include "attnc/captures.h"
#include "attnc/kernel.h"
#include "attnc/mod.h"
#include "attnc/problem.h"
#include "ir/ir.h"

namespace attnc::plan {
struct Plan;
} // namespace attnc::plan

namespace attnc::cli {

/// The module whose mask is counted: of a kernel whose queries stand at the last keys, with rows where they stand.
Expected<ir::Module> countedModule(const Mod& mod, const KernelOptions& kernel);

/// What a kernel by boxes of a grid visits; nothing of another one. `mod` has its pins folded in, captures lie in host memory.
Expected<std::optional<GridCensus>> countedOnGrid(const Mod& mod, const plan::Plan& plan, const Captures& captures,
                                                  const ProblemShape& problem);

struct Work {
  ProblemShape problem;
  double pairs = 0;     ///< over all batch entries and heads
  /// Over all batch entries and KV heads: of a decode kernel, those that some query sees, and where heads see different
  /// ones, their mean; of others all.
  double kvColumns = 0;
  bool isEstimate = false;

  /// Of the products alone, as is usual: two of a forward pass, five of a backward one.
  double flops(const KernelOptions& kernel) const;
  /// Of memory, if each tensor is read or written once: q, k, v and out; of a backward pass lse and the gradients, too.
  double bytes(const KernelOptions& kernel) const;
};

/// Counts, in bounded time; beyond that it estimates. Sequences count whole: as many rows and columns as the problem has.
/// `captures`: in host memory. `mod` has its pins folded in. Errors: captures that do not fit.
Expected<Work> countWork(const Mod& mod, const Captures& captures, const KernelOptions& kernel,
                         const ProblemShape& problem);

} // namespace attnc::cli
