// The kernels without tensor cores: the oracle, and the builder of block masks.
#include "plan/family.h"

namespace attnc::plan {
namespace {

Expected<ParameterBlock> naiveParameters(const Stage& stage, const LaunchOperands& operands, const Device&,
                                         const WorkspaceView&) {
  return withCache(forwardParams(operands), stage, operands);
}

Plan planNaive(const Request& request) {
  const Tile tile{8, 32, 8}; // as forward_naive.cu has it
  Plan plan;
  plan.stages.push_back({.templateName = "forward_naive.cu",
                         .entry = "attnc_forward",
                         .config = configOf(request.options, tile),
                         .threads = 32 * tile.warps,
                         .grid = Grid::QTiles,
                         .parameters = naiveParameters});
  return plan;
}

Expected<ParameterBlock> blockMaskParameters(const Stage&, const LaunchOperands& operands, const Device&,
                                             const WorkspaceView&) {
  const BlockMaskView& mask = *operands.lists;
  const BlockMaskShape& shape = mask.shape;
  const BlockMaskColumns& columns = mask.columns;
  return ParameterBlock(BlockMaskParams{mask.partialCount, mask.partialIndex, mask.fullCount, mask.fullIndex,
                                        int(shape.batch), int(shape.heads), int(shape.qLen), int(shape.kvLen),
                                        shape.qBlock, shape.kvBlock, columns.partialCount, columns.partialIndex,
                                        columns.fullCount, columns.fullIndex});
}

Plan planBlockMask(const Request& request) {
  const Tile tile{0, 0, 16};
  Plan plan;
  plan.stages.push_back({.templateName = "block_mask.cu",
                         .entry = "attnc_block_mask",
                         .config = configOf(request.options, tile),
                         .threads = 32 * tile.warps,
                         .grid = Grid::MaskRows,
                         .parameters = blockMaskParameters});
  if (!request.options.columnLists) return plan;
  const Tile columns{0, 0, 4};
  plan.stages.push_back({.templateName = "block_mask_columns.cu",
                         .entry = "attnc_block_mask_columns",
                         .config = configOf(request.options, columns),
                         .threads = 32 * columns.warps,
                         .grid = Grid::MaskColumns,
                         .parameters = blockMaskParameters});
  return plan;
}

} // namespace

const FamilyRow kForwardNaive{.kind = KernelKind::Forward,
                              .family = Family::Naive,
                              .unserved = servesAll,
                              .plan = planNaive,
                              .layouts = "any strides, the last one 1",
                              .checkLayout = takesAnyLayout};

const FamilyRow kBlockMask{.kind = KernelKind::BlockMask,
                           .family = Family::Naive,
                           .unserved = servesAll,
                           .plan = planBlockMask,
                           .layouts = "lists as BlockMask::viewInto lays them out",
                           .checkLayout = takesAnyLayout};

} // namespace attnc::plan
