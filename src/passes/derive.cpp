#include "passes/derive.h"

#include <vector>

namespace attnc::passes {

Status deriveForKernels(ir::Module& module, Algebra algebra, const PipelineOptions& options) {
  std::vector<Pass> order;
  if (algebra.scale) order.push_back(*findPass("derive-scale"));
  if (algebra.rowShift)
    order.push_back(*findPass("derive-row-shift")); // natural units, which only derive-scale changes
  if (algebra.kvBounds) order.push_back(*findPass("derive-kv-bounds"));
  return runPasses(module, order, options);
}

} // namespace attnc::passes
