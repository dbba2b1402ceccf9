// The kernels without tensor cores: the oracle, and the builders of block masks.
#include "families/family.h"

#include "families/grids/grid_plan.h"
#include "launch/kernel_options.h"
#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace attnc::plan {
namespace {

Expected<ParameterBlock> naiveParameters(const Stage& stage, const LaunchOperands& operands, const Device&,
                                         const WorkspaceView&) {
  return withScales(forwardParams(operands), stage, operands);
}

/// It serves every request, but e4m3 and wide heads only if it is asked for: no fast kernel should turn into the oracle
/// unnoticed.
std::string unservedByNaive(const Request& request) {
  const KernelOptions& options = request.options;
  const bool isFp8 = options.features.has(Feature::Fp8Q);
  if (options.features.has(Feature::Fp8Kv) && !isFp8) return "takes k and v of e4m3 only with q of e4m3";
  if (options.family == Family::Naive) return {};
  if (hasWideHeads(options)) return "takes head dims above 256 only if it is asked for";
  return isFp8 ? "takes q, k and v of e4m3 only if it is asked for" : "";
}

Plan planNaive(const Request& request) {
  const Tile tile{8, 32, 8}; // equals the tile of forward_naive.cu
  codegen::Config config = configOf(request.options, tile);
  config.fp8 = request.options.features.has(Feature::Fp8Q);
  config.rowScales = request.options.features.has(Feature::RowScales);
  Plan plan;
  plan.stages.push_back({.templateName = "forward_naive.cu",
                         .entry = "attnc_forward",
                         .config = std::move(config),
                         .threads = 32 * tile.warps,
                         .ctas = perQTile,
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

std::string unservedByBlockMask(const Request& request) {
  const KernelOptions& options = request.options;
  if (!options.maskByBoxes) return {};
  if (options.offsets != QueryOffsets::None) return "builds no lists over boxes for queries with offsets";
  if (!request.mod->grid) return "builds lists over boxes of mods that have a kernel by boxes of a grid";
  if (request.mod->grid->beside) return "builds lists over boxes of mods all of whose tokens lie on grids";
  return options.columnLists ? "builds no lists over boxes by column" : "";
}

Expected<ParameterBlock> boxMaskParameters(const Stage&, const LaunchOperands& operands, const Device&,
                                           const WorkspaceView&) {
  ATTNC_TRY(checkGrids(operands));
  const BlockMaskView& mask = *operands.lists;
  const BoxLattice &queries = mask.shape.boxes->queries, &keys = mask.shape.boxes->keys;
  if (queries.extents != operands.grids->queries || keys.extents != operands.grids->keys)
    return Error::environment(fmt::format(
        "block mask: it is of grids of {} and {}, the launch has {} and {}", fmt::join(queries.extents, "x"),
        fmt::join(keys.extents, "x"), fmt::join(operands.grids->queries, "x"), fmt::join(operands.grids->keys, "x")));
  BoxMaskParams params{mask.partialCount,
                       mask.partialIndex,
                       mask.fullCount,
                       mask.fullIndex,
                       int(mask.shape.batch),
                       int(mask.shape.heads),
                       {},
                       {},
                       {},
                       {}};
  for (size_t axis = 0; axis < 3; ++axis) {
    params.q_extent[axis] = int(queries.extents[axis]), params.kv_extent[axis] = int(keys.extents[axis]);
    params.q_box[axis] = queries.box[axis], params.kv_box[axis] = keys.box[axis];
  }
  return ParameterBlock(params);
}

Plan planBoxMask(const Request& request) {
  const Tile tile{0, 0, 16};
  Plan plan;
  plan.grid = request.mod->grid;
  plan.stages.push_back({.templateName = "box_mask.cu",
                         .entry = "attnc_box_mask",
                         .config = configOf(request.options, tile),
                         .algebra = algebraOnGrid(request.options.dtype),
                         .onGrid = true,
                         .threads = 32 * tile.warps,
                         .ctas = perMaskRow,
                         .parameters = boxMaskParameters});
  return plan;
}

Plan planBlockMask(const Request& request) {
  if (request.options.maskByBoxes) return planBoxMask(request);
  const Tile tile{0, 0, 16};
  Plan plan;
  plan.stages.push_back({.templateName = "block_mask.cu",
                         .entry = "attnc_block_mask",
                         .config = configOf(request.options, tile),
                         .judges = true,
                         .threads = 32 * tile.warps,
                         .ctas = persistent(perMaskRow, 2),
                         .parameters = blockMaskParameters});
  if (!request.options.columnLists) return plan;
  const Tile columns{0, 0, 4};
  plan.stages.push_back({.templateName = "block_mask_columns.cu",
                         .entry = "attnc_block_mask_columns",
                         .config = configOf(request.options, columns),
                         .threads = 32 * columns.warps,
                         .ctas = perMaskColumn,
                         .parameters = blockMaskParameters});
  return plan;
}

} // namespace

const FamilyRow kForwardNaive{.kind = KernelKind::Forward,
                              .family = Family::Naive,
                              .takesWideHeads = true,
                              .takesProbMods = FamilyRow::ProbMods::All,
                              .takesWeightMods = true,
                              .takes = {Feature::Lengths, Feature::Offsets, Feature::Pages, Feature::Appends,
                                        Feature::Ragged, Feature::BlockMask, Feature::F32, Feature::RowMax,
                                        Feature::Fp8Kv, Feature::Fp8Q, Feature::RowScales, Feature::VInK},
                              .unserved = unservedByNaive,
                              .plan = planNaive,
                              .layouts = "any strides, the last one 1",
                              .checkLayout = takesAnyLayout};

const FamilyRow kBlockMask{
    .kind = KernelKind::BlockMask,
    .family = Family::Naive,
    .takesProbMods = FamilyRow::ProbMods::All,
    .takes = {Feature::Lengths, Feature::Offsets, Feature::Pages, Feature::Ragged, Feature::BoxMask},
    .unserved = unservedByBlockMask,
    .plan = planBlockMask,
    .layouts = "lists as BlockMask::viewInto lays them out",
    .checkLayout = takesAnyLayout};

} // namespace attnc::plan
