// The minimum work of a problem: query-key pairs that the mask lets live, and columns of K and V that queries see.
#include "inspect/work.h"

#include "analysis/grid_box.h"
#include "api/own_stack.h"
#include "api/plan_impl.h"
#include "families/grids/grid_plan.h"
#include "inspect/grid_census.h"
#include "inspect/mask_census.h"
#include "ir/bind.h"
#include "launch/kernel_options.h"
#include "launch/mask_shape.h"
#include "passes/sequences.h"
#include "support/try.h"

#include <fmt/format.h>

namespace attnc {

Status checkBlocks(const BlockMaskShape& shape, const ProblemShape& problem, const char* what) {
  if (!shape.boxes && shape.qBlock > 0 && shape.kvBlock > 0 && shape.batch > 0 && shape.heads > 0 &&
      shape.qLen == problem.qLen && shape.kvLen == problem.kvLen)
    return {};
  return Error::environment(fmt::format("{} is of blocks of tokens of the problem's lengths", what));
}

Expected<ir::Module> countedModule(const Mod& mod, const KernelOptions& kernel) {
  if (kernel.offsets != QueryOffsets::FromLengths) return mod.module();
  ATTNC_TRY_AS(atLastKeys, sequencesMod(mod, {.offsets = kernel.offsets}, kernel.pins));
  return passes::byRows(atLastKeys->module());
}

Expected<std::optional<GridCensus>> countedOnGrid(const Mod& mod, const plan::Plan& plan, const Captures& captures,
                                                  const ProblemShape& problem) {
  if (!plan.grid) return std::optional<GridCensus>();
  ATTNC_TRY_AS(ofMod, ir::bind(mod.module(), captures, problem));
  ATTNC_TRY_AS(ofKernel, ir::bind(plan.grid->module, captures, problem));
  const auto take = plan.options.maskByBoxes ? takeBoxMaskCensus : takeGridCensus;
  return std::optional(
      take(plan.grid->module, *ofKernel, plan::walkingStage(plan).config, plan::gridsOf(*plan.grid, *ofMod), problem));
}

/// Counts the pairs that live from the boxes of a box kernel, which is far faster than asking the mask for each pair.
static Expected<std::optional<GridCensus>> pairsInBoxes(const Plan& kernel, const Captures& captures,
                                                        const ProblemShape& problem) {
  const PlanAccess::Impl& of = PlanAccess::of(kernel);
  const auto box = of.plan.grid ? analysis::gridBox(of.plan.grid->module) : std::nullopt;
  if (!box || !box->isMask()) return std::optional<GridCensus>();
  if (box->beside && box->beside->asks()) return std::optional<GridCensus>();
  return countedOnGrid(of.mod, of.plan, captures, problem);
}

/// Returns the work of a problem without a mask.
static Work unmasked(const ProblemShape& problem) {
  const double heads = double(problem.batch) * double(problem.qHeads);
  return {problem, heads * double(problem.qLen) * double(problem.kvLen),
          double(problem.batch) * double(problem.kvHeads) * double(problem.kvLen)};
}

Expected<Work> countWork(const Plan& plan, const Captures& captures, const ProblemShape& problem) {
  return onOwnStack([&]() -> Expected<Work> {
    const KernelOptions& kernel = plan.options();
    ATTNC_TRY_AS(pinned, plan.mod().pinned(kernel.pins));
    const Mod& mod = *pinned;
    Work work = unmasked(problem);
    if (!mod.hasMaskMod() || work.pairs == 0) return work;
    ATTNC_TRY_AS(inBoxes, pairsInBoxes(plan, captures, problem));
    if (*inBoxes) {
      work.pairs = (*inBoxes)->live;
      work.isEstimate = (*inBoxes)->isEstimate;
      return work;
    }
    ATTNC_TRY_AS(module, countedModule(mod, kernel));
    ATTNC_TRY_AS(bindings, ir::bind(*module, captures, problem));
    // With blocks of one element, blocks are pairs. To count columns, a block is a column of all rows.
    const MaskCensus elements = takeCensus(*module, *bindings, plan::smallestMask(*module, problem, 1, 1));
    work.pairs *= elements.live / elements.blocks;
    work.isEstimate = elements.estimated > 0;
    if (kernel.kind != KernelKind::Decode) return work;
    const MaskCensus columns =
        takeCensus(*module, *bindings, plan::smallestMask(*module, problem, int(problem.qLen), 1));
    work.kvColumns *= columns.live / columns.blocks;
    work.isEstimate |= columns.estimated > 0;
    return work;
  });
}

Expected<MaskCensus> takeCensus(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                const BlockMaskShape& shape) {
  ATTNC_TRY(checkBlocks(shape, problem, "a census"));
  ATTNC_TRY_AS(bindings, ir::bind(mod.module(), captures, problem));
  return takeCensus(mod.module(), *bindings, shape);
}

double Work::flops(const KernelOptions& given) const {
  const KernelOptions kernel = plan::completed(given);
  const bool isBackward = kernel.kind == KernelKind::Backward;
  return 2 * pairs * (isBackward ? 3 * kernel.headDim + 2 * kernel.headDimV : kernel.headDim + kernel.headDimV);
}

double Work::bytes(const KernelOptions& given) const {
  const KernelOptions kernel = plan::completed(given);
  const double rows = double(problem.batch) * double(problem.qHeads) * double(problem.qLen);
  const double ofOut = double(dtypeBytes(kernel.dtype)), ofQ = kernel.features.has(Feature::Fp8Q) ? 1 : ofOut,
               ofKv = kernel.features.has(Feature::Fp8Kv) ? 1 : ofOut;
  const int ofKvRow = kernel.headDim + (kernel.features.has(Feature::VInK) ? 0 : kernel.headDimV);
  const double once = rows * (kernel.headDim * ofQ + kernel.headDimV * ofOut) + kvColumns * ofKvRow * ofKv;
  return kernel.kind == KernelKind::Backward ? 2 * once + 4 * rows : once;
}

std::optional<double> readShareOfKv(const MaskCensus& census, const Preparation& preparation) {
  const bool isOne = census.shape.heads == 1 && preparation.problem.qLen <= census.shape.qBlock && census.blocks > 0;
  if (preparation.kernel.options().kind != KernelKind::Decode || !isOne) return std::nullopt;
  return census.live / census.blocks;
}

double leastBytes(const MaskCensus& census, const Preparation& preparation) {
  Work work = unmasked(preparation.problem);
  work.kvColumns *= readShareOfKv(census, preparation).value_or(1);
  return work.bytes(preparation.last().options());
}

WorkFlops flopsOf(const MaskCensus& census, const std::optional<GridCensus>& boxes, const Preparation& preparation) {
  const ProblemShape& problem = preparation.problem;
  const BlockMaskShape& shape = census.shape;
  // Two products of a multiplication and an addition each: q k^T over the head_dim of q and k, p v over that of v. A
  // backward pass has five; they are counted at the usual factor of 2.5.
  const KernelOptions& kernel = preparation.kernel.options();
  const double passes = preparation.backward ? 2.5 : 1;
  const double flopsPerPair = passes * 2 * (kernel.headDim + kernel.headDimV);
  const double rows = double(problem.batch) * double(problem.qHeads) * double(problem.qLen);
  WorkFlops flops{.dense = flopsPerPair * rows * double(problem.kvLen)};
  if (boxes) {
    flops.live = flopsPerPair * boxes->visited;
  } else if (census.blocks > 0) { // the mask of shape.batch x shape.heads serves the whole problem
    const int64_t batchCopies = problem.batch / shape.batch, headCopies = problem.qHeads / shape.heads;
    flops.live = flopsPerPair * double(batchCopies) * double(headCopies) * census.pairs;
  }
  return flops;
}

} // namespace attnc
