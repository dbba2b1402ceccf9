// wgmma and TMA on Hopper, by boxes of a grid.
#include "families/family.h"

#include "families/grids/grid_plan.h"
#include "launch/tensor_maps.h"
#include "support/try.h"
#include "templates/params_grid_sm90.cuh"

#include <llvm/Support/MathExtras.h>

#include <fmt/format.h>

#include <algorithm>

namespace attnc::plan {
namespace {

std::string unservedByGrid(const Request& request) {
  const KernelOptions& options = request.options;
  if (!request.mod->grid) return "takes mods whose mask is a box of keys on a grid";
  if (request.arch.capability != 90 || !request.arch.specific) return "needs arch sm_90a";
  if (std::max(options.headDim, options.headDimV) > 128) return "takes head dims up to 128";
  const bool isAsked = options.family == Family::Grid;
  if (!isAsked && options.noBoxes) return "goes by no lists, which the backward pass of this training walks";
  if (options.maskByBoxes && request.mod->grid->beside)
    return "takes block masks of mods all of whose tokens lie on grids";
  if (!isAsked && request.mod->facts.kvEdges) return "gains nothing where each query sees the keys from one to another";
  return {};
}

/// A third consumer is slower: bench/notes/grids.md.
constexpr int kConsumers = 2;

/// Mirrors `Memory` of templates/forward_grid_sm90.cu.
int sharedBytes(const codegen::Config& config) {
  const auto tileBytes = [](int rows, int dim) { return rows * 128 * ((dim + 63) / 64); };
  const int kvBytes = tileBytes(config.blockN, config.headDimQk) + tileBytes(config.blockN, config.headDimV);
  const int rings = config.qStages * tileBytes(config.blockM, std::max(config.headDimQk, config.headDimV)) +
                    config.kvStages * kvBytes;
  const int control = config.qStages * 32 + config.kvStages * (32 + 16) + config.qStages * kConsumers * 8;
  const int planBarriers = 2 * 2 * 8, plans = 2 * 4 * (config.blockSparse ? 5 : 10 + 2 * kConsumers);
  return int(llvm::alignTo(rings + control + planBarriers, 16)) + plans;
}

/// Checks what tensor maps require, and that heads of all batch entries lie along one axis.
Status checkGridLayout(const LaunchOperands& operands) {
  ATTNC_TRY(checkGrids(operands, /*takesBeside=*/true));
  for (auto [name, tensor] :
       {std::pair("q", &operands.q), {"k", &operands.k}, {"v", &operands.v}, {"out", &operands.out}})
    ATTNC_TRY(checkMappableOnGrid(name, *tensor));
  return {};
}

/// Adds the off-grid tokens of a launch, if the mod allows them.
Expected<ParameterBlock> withBeside(const ForwardGridParamsSm90& params, const codegen::Config& config,
                                    const LaunchOperands& operands) {
  const LaunchOperands::Grids& grids = *operands.grids;
  const std::array<int64_t, 2> queries = queriesBeside(grids, operands.problem),
                               keys = keysBeside(grids, operands.problem);
  ForwardGridBesideParamsSm90 all{};
  static_cast<ForwardGridParamsSm90&>(all) = params;
  std::copy(queries.begin(), queries.end(), all.q_beside);
  std::copy(keys.begin(), keys.end(), all.kv_beside);
  for (auto [name, tensor, extents, tokens, box, maps] :
       {std::tuple("q", &operands.q, &grids.queries, &queries, 64, all.q_run),
        {"k", &operands.k, &grids.keys, &keys, config.blockN, all.k_run},
        {"v", &operands.v, &grids.keys, &keys, config.blockN, all.v_run},
        {"out", &operands.out, &grids.queries, &queries, 64, all.out_run}})
    ATTNC_TRY(mapRuns(name, *tensor, *extents, *tokens, box, somewhereIn(operands), maps));
  return ParameterBlock(all);
}

Expected<ParameterBlock> gridParameters(const Stage& stage, const LaunchOperands& operands, const Device& device,
                                        const WorkspaceView& workspace) {
  ATTNC_TRY(checkGridLayout(operands));
  const codegen::Config& config = stage.config;
  ATTNC_TRY(checkListedBoxes(config, operands));
  const LaunchOperands::Grids& grids = *operands.grids;
  void* const somewhere = somewhereIn(operands);
  ForwardGridParamsSm90 params{};
  const int64_t q0 = queriesBeside(grids, operands.problem)[0], kv0 = keysBeside(grids, operands.problem)[0];
  for (auto [name, tensor, extents, first, box, map, step] :
       {std::tuple("q", &operands.q, &grids.queries, q0, &config.boxes->queries, &params.q, &params.q_batch_step),
        {"k", &operands.k, &grids.keys, kv0, &config.boxes->keys, &params.k, &params.k_batch_step},
        {"v", &operands.v, &grids.keys, kv0, &config.boxes->keys, &params.v, &params.v_batch_step},
        {"out", &operands.out, &grids.queries, q0, &config.boxes->queries, &params.out, &params.out_batch_step}}) {
    ATTNC_TRY_AS(mapped, mapOnGrid(name, *tensor, *extents, *box, somewhere, first));
    *map = mapped->map, *step = mapped->batchStep;
  }
  params.base = forwardParams(operands);
  const std::array<int64_t, 3> along = queryBoxesAlong(stage, operands);
  for (size_t axis = 0; axis < 3; ++axis) {
    params.q_extent[axis] = int(grids.queries[axis]);
    params.kv_extent[axis] = int(grids.keys[axis]);
    params.q_tiles[axis] = int(along[axis]);
  }
  const ForwardParams& base = params.base;
  const int64_t kvBytes = rowsOfKv(operands) * (config.headDimQk + config.headDimV) * dtypeBytes(config.dtype);
  params.order.q_tiles = int(queryBoxesOf(stage, operands));
  params.order.heads = base.batch * base.q_heads;
  params.order.section = int(sectionOf(int64_t(base.batch) * base.kv_heads, kvBytes, device.l2Bytes) * base.group);
  params.order.counters = static_cast<unsigned*>(workspace.at(Use::Counters));
  if (grids.before) return withBeside(params, config, operands);
  return ParameterBlock(params);
}

/// Returns several boxes, since the model cannot rank the first few reliably.
std::vector<codegen::Config::Boxes> gridBoxes(const Request& request) {
  const bool isHeavy = request.mod->facts.weight == Weight::Heavy;
  const BoxModel model{.consumers = kConsumers, .mostKeys = isHeavy ? 64 : 128, .byLists = request.options.maskByBoxes};
  return rankBoxes(*request.mod->grid, request.options.headDim, request.options.headDimV, model, 12);
}

std::vector<std::string> gridCandidates(const Request& request) { return spelledAll(gridBoxes(request), boxesText); }

Plan planGrid(const Request& request) {
  const KernelOptions& options = request.options;
  const codegen::Config::Boxes boxes = chosenOf(gridBoxes(request), options, boxesText);
  codegen::Config config =
      configOf(options, {64 * kConsumers, boxes.keys[0] * boxes.keys[1] * boxes.keys[2], 4 * kConsumers});
  config.boxes = boxes;
  config.qStages = 2;
  for (config.kvStages = 6; config.kvStages > 2; --config.kvStages)
    if (sharedBytes(config) + 1024 <= request.arch.sharedBytesPerCta()) break;
  config.wgmmaShapes = {config.blockN, int(llvm::alignTo(options.headDimV, 16))};
  config.sharedBytes = sharedBytes(config);
  Plan plan;
  plan.grid = request.mod->grid;
  plan.tile = boxesText(boxes);
  plan.stages.push_back({.templateName = "forward_grid_sm90.cu",
                         .entry = "attnc_forward",
                         .config = std::move(config),
                         .algebra = algebraOnGrid(options.dtype),
                         .onGrid = true,
                         .threads = 128 + 128 * kConsumers,
                         .ctas = persistent(perQueryBox),
                         .tiles = queryBoxTiles,
                         .parameters = gridParameters});
  plan.workspace.push_back(tileCounters());
  return plan;
}

} // namespace

const FamilyRow kForwardGridSm90{
    .kind = KernelKind::Forward,
    .family = Family::Grid,
    .arch = "sm_90a",
    .madeFor = 90,
    .walksBoxes = true,
    .takes = {Feature::BoxMask, Feature::RowMax},
    .unserved = unservedByGrid,
    .plan = planGrid,
    .candidates = gridCandidates,
    .layouts =
        "rows aligned to 16 bytes, strides above 0 (of the batch: 0, too), those of the batch multiples of the heads'",
    .checkLayout = checkGridLayout};

} // namespace attnc::plan
