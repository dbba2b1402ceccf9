// The minimum work of a problem: query-key pairs that the mask lets live, and columns of K and V that queries see.
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

/// Returns the module whose mask is counted. If queries stand at the last keys, its rows are their positions.
Expected<ir::Module> countedModule(const Mod& mod, const KernelOptions& kernel);

/// Counts what a box kernel of a grid visits; nullopt for other kernels. `mod` has its pins folded in; captures lie in
/// host memory.
Expected<std::optional<GridCensus>> countedOnGrid(const Mod& mod, const plan::Plan& plan, const Captures& captures,
                                                  const ProblemShape& problem);

struct Work {
  ProblemShape problem;
  double pairs = 0; ///< over all batch entries and heads
  /// Columns over all batch entries and KV heads. For a decode kernel, those that some query sees; if heads see
  /// different ones, their mean. For other kernels, all columns.
  double kvColumns = 0;
  bool isEstimate = false;

  /// Returns the FLOPs. As usual, only matrix products count: two for a forward pass, five for a backward one.
  double flops(const KernelOptions& kernel) const;
  /// Returns the bytes of memory traffic if each tensor is read or written once: q, k, v and out; for a backward pass
  /// also lse and the gradients.
  double bytes(const KernelOptions& kernel) const;
};

/// Counts in bounded time; beyond that it estimates. Sequences count as a whole, with all rows and columns of the
/// problem. `captures` lie in host memory. `mod` has its pins folded in. Errors: captures that do not fit.
Expected<Work> countWork(const Mod& mod, const Captures& captures, const KernelOptions& kernel,
                         const ProblemShape& problem);

} // namespace attnc::cli
