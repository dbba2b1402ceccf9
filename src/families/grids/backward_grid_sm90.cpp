// Gradients with wgmma and TMA on Hopper, by boxes of a grid.
#include "families/backward_delta.h"

#include "families/grids/backward_boxes.h"
#include "families/grids/grid_plan.h"
#include "launch/tensor_maps.h"
#include "support/try.h"
#include "templates/params_grid_sm90.cuh"

#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace attnc::plan {
namespace {

using Boxes = codegen::Config::Boxes;

constexpr int kKeys = 128; // owned by a CTA

/// Steps have 128 queries up to head dim 64, unless score() or mask() is called for each score: that takes registers.
int queriesOf(const Request& request) {
  return request.options.headDim <= 64 && !readsQueries(*request.mod) ? 128 : 64;
}

/// Mirrors `Memory` of templates/backward_grid_sm90.cu.
int backwardGridSharedBytes(const codegen::Config& config, const KernelMod& mod) {
  const auto tileBytes = [](int rows, int dim) { return rows * 128 * ((dim + 63) / 64); };
  const int q = tileBytes(1, config.headDimQk), v = tileBytes(1, config.headDimV);
  const int columns =
      config.blockM == 128 ? int(llvm::alignTo(config.headDimQk, 16)) : 32 * ((config.headDimQk + 63) / 64);
  const int tiles = config.blockN * (q + v) + config.blockM * (config.qStages * q + config.kvStages * v) +
                    2 * tileBytes(config.blockN, config.blockM) + 2 * 64 * 128 * ((columns + 31) / 32);
  const int control = config.qStages * 32 + config.kvStages * 16 + 2 * 16 + 48 + 2 * 8 + 3 * 16, places = 8 * 16;
  const int ofQuery = 8 + config.blockN / 8 + (readsQueries(mod) ? 4 + mod.onGrid->rowBytes : 0);
  return int(llvm::alignTo(tiles + control, 16)) + places + (*config.deterministic ? 8 * 4 : 0) +
         config.qStages * int(llvm::alignTo(config.blockM * ofQuery, 16));
}

codegen::Config backwardGridConfig(const Request& request) {
  const KernelOptions& options = request.options;
  codegen::Config config = configOf(options, {queriesOf(request), kKeys, 8});
  config.kvStages = 2;
  config.qStages = 3;
  config.deterministic = options.features.has(Feature::Deterministic);
  const int qk = int(llvm::alignTo(options.headDim, 16)), v = int(llvm::alignTo(options.headDimV, 16));
  config.wgmmaShapes = {config.blockM, qk, v, 32, 64};
  return config;
}

std::string unservedByBackwardGrid(const Request& request) {
  const KernelOptions& options = request.options;
  if (std::string why = unservedByBackwardBoxes(request); !why.empty()) return why;
  if (std::max(options.headDim, options.headDimV) > 128 || (options.headDim <= 64 && options.headDimV > 64))
    return "takes head dims up to 128, and no wider v beside head dims up to 64";
  const bool isHeavier = request.mod->onGrid->form == analysis::ScoreForm::General &&
                         request.mod->facts.form != analysis::ScoreForm::General;
  if (options.family != Family::Grid && isHeavier && options.headDim > 64)
    return "has no registers beyond head dim 64 for scores that it has to call, as kernels by rows need not";
  if (backwardGridSharedBytes(backwardGridConfig(request), *request.mod) > request.arch.sharedBytesPerCta())
    return "has no shared memory for what the mod knows of its rows";
  return {};
}

std::vector<Boxes> backwardBoxes(const Request& request) {
  return rankBackwardBoxes(request, queriesOf(request), kKeys, 12);
}

std::vector<std::string> backwardGridCandidates(const Request& request) {
  return spelledAll(backwardBoxes(request), boxesText);
}

/// Returns the bytes of dq in f32, dense, of the counter after it, by which CTAs take boxes, and of `turns` for each
/// row.
size_t gridSumBytes(const LaunchOperands& operands, int turns) {
  const auto& shape = operands.q.shape;
  return sizeof(float) * size_t(shape[0]) * size_t(shape[1]) * size_t(shape[2]) * size_t(shape[3] + turns) +
         sizeof(unsigned);
}

/// Checks what tensor maps require; gradients are stored 16 bytes at a time.
Status checkBackwardGridLayout(const LaunchOperands& operands) {
  ATTNC_TRY(checkGrids(operands, /*takesBeside=*/true));
  for (auto [name, tensor] :
       {std::pair("q", &operands.q), {"k", &operands.k}, {"v", &operands.v}, {"d_out", &operands.dOut}})
    ATTNC_TRY(checkMappableOnGrid(name, *tensor));
  for (auto [name, tensor] :
       {std::pair("out", &operands.out), {"d_q", &operands.dQ}, {"d_k", &operands.dK}, {"d_v", &operands.dV}})
    ATTNC_TRY(checkMappable(name, *tensor));
  return {};
}

/// Returns a box of the sums of dQ: 64 tokens.
std::array<int, 3> sumsBoxOf(const codegen::Config& config) {
  std::array<int, 3> box = config.boxes->queries;
  if (config.blockM == 128) *std::find_if(box.begin(), box.end() - 1, [](int extent) { return extent > 1; }) /= 2;
  return box;
}

/// Adds the off-grid tokens of a launch, if the mod allows them.
Expected<ParameterBlock> withBeside(const BackwardGridParamsSm90& params, const codegen::Config& config,
                                    const LaunchOperands& operands, const TensorView& sums) {
  const LaunchOperands::Grids& grids = *operands.grids;
  const std::array<int64_t, 2> queries = queriesBeside(grids, operands.problem),
                               keys = keysBeside(grids, operands.problem);
  BackwardGridBesideParamsSm90 all{};
  static_cast<BackwardGridParamsSm90&>(all) = params;
  std::copy(queries.begin(), queries.end(), all.q_beside);
  std::copy(keys.begin(), keys.end(), all.kv_beside);
  for (auto [name, tensor, extents, tokens, box, maps] :
       {std::tuple("q", &operands.q, &grids.queries, &queries, config.blockM, all.q_run),
        {"k", &operands.k, &grids.keys, &keys, config.blockN, all.k_run},
        {"v", &operands.v, &grids.keys, &keys, config.blockN, all.v_run},
        {"d_out", &operands.dOut, &grids.queries, &queries, config.blockM, all.d_out_run},
        {"the gradient of q", &sums, &grids.queries, &queries, 64, all.sums_run}})
    ATTNC_TRY(mapRuns(name, *tensor, *extents, *tokens, box, somewhereIn(operands), maps));
  return ParameterBlock(all);
}

Expected<ParameterBlock> backwardGridParameters(const Stage& stage, const LaunchOperands& operands,
                                                const Device& device, const WorkspaceView& workspace) {
  ATTNC_TRY(checkBackwardGridLayout(operands));
  const codegen::Config& config = stage.config;
  const LaunchOperands::Grids& grids = *operands.grids;
  BackwardGridParamsSm90 params{};
  params.base = backwardParams(operands, workspace);
  params.d_q_sums = static_cast<float*>(workspace.at(Use::DqSums));
  const auto& shape = operands.q.shape;
  const TensorView sums = TensorView::contiguous(params.d_q_sums, DType::F32, {shape[0], shape[1], shape[2], shape[3]});
  const std::array<int, 3> sumsBox = sumsBoxOf(config);
  int sumsStep = 0; // heads are contiguous
  void* const somewhere = somewhereIn(operands);
  const int64_t q0 = queriesBeside(grids, operands.problem)[0], kv0 = keysBeside(grids, operands.problem)[0];
  for (auto [name, tensor, extents, first, box, map, step] :
       {std::tuple("q", &operands.q, &grids.queries, q0, &config.boxes->queries, &params.q, &params.q_batch_step),
        {"k", &operands.k, &grids.keys, kv0, &config.boxes->keys, &params.k, &params.k_batch_step},
        {"v", &operands.v, &grids.keys, kv0, &config.boxes->keys, &params.v, &params.v_batch_step},
        {"d_out", &operands.dOut, &grids.queries, q0, &config.boxes->queries, &params.d_out, &params.d_out_batch_step},
        {"the gradient of q", &sums, &grids.queries, q0, &sumsBox, &params.sums, &sumsStep}}) {
    ATTNC_TRY_AS(mapped, mapOnGrid(name, *tensor, *extents, *box, somewhere, first));
    *map = mapped->map, *step = mapped->batchStep;
  }
  const std::array<int64_t, 3> along = keyBoxesAlong(stage, operands);
  for (size_t axis = 0; axis < 3; ++axis) {
    params.q_extent[axis] = int(grids.queries[axis]);
    params.kv_extent[axis] = int(grids.keys[axis]);
    params.kv_tiles[axis] = int(along[axis]);
  }
  // Q, dO and the sums of dQ of all query heads that share a KV head.
  const ForwardParams& forward = params.base.forward;
  const int64_t rowBytes =
      int64_t(config.headDimQk + config.headDimV) * dtypeBytes(config.dtype) + 4 * int64_t(config.headDimQk);
  const int64_t heads = operands.k.shape[0] * forward.kv_heads;
  params.order.q_tiles = int(keyBoxesOf(stage, operands));
  params.order.heads = int(heads);
  params.order.section = int(sectionOf(heads, rowBytes * forward.group * rowsOfQ(operands), device.l2Bytes));
  params.order.counters = reinterpret_cast<unsigned*>(params.d_q_sums + operands.q.elements());
  if (grids.before) return withBeside(params, config, operands, sums);
  return ParameterBlock(params);
}

Plan planBackwardGrid(const Request& request) {
  const KernelOptions& options = request.options;
  codegen::Config config = backwardGridConfig(request);
  config.boxes = chosenOf(backwardBoxes(request), options, boxesText);
  config.sharedBytes = backwardGridSharedBytes(config, *request.mod);
  Plan plan;
  plan.grid = request.mod->grid;
  plan.tile = boxesText(*config.boxes);
  addDelta(plan, request);
  plan.stages.push_back({.templateName = "backward_grid_sm90.cu",
                         .entry = "attnc_backward",
                         .config = config,
                         .algebra = algebraOnGrid(options.dtype),
                         .onGrid = true,
                         .threads = 384,
                         .ctas = persistent(perKeyBox),
                         .tiles = keyBoxTiles,
                         .parameters = backwardGridParameters});
  config.sharedBytes = 0;
  config.deterministic.reset();
  plan.stages.push_back({.templateName = "backward_grid_finish_sm90.cu",
                         .entry = "attnc_backward_finish",
                         .config = config,
                         .algebra = algebraOnGrid(options.dtype),
                         .onGrid = true,
                         .threads = 256,
                         .ctas = perQTile,
                         .parameters = backwardGridParameters});
  plan.workspace.push_back({.use = Use::DqSums,
                            .bytes = [turns = options.features.has(Feature::Deterministic) ? 2 : 0](
                                         const LaunchOperands& operands) { return gridSumBytes(operands, turns); },
                            .zeroed = WorkspaceUse::Zeroed::EveryLaunch});
  return plan;
}

} // namespace

const FamilyRow kBackwardGridSm90{
    .kind = KernelKind::Backward,
    .family = Family::Grid,
    .arch = "sm_90a",
    .madeFor = 90,
    .walksBoxes = true,
    .takes = {Feature::Gradients, Feature::Deterministic},
    .unserved = unservedByBackwardGrid,
    .plan = planBackwardGrid,
    .candidates = backwardGridCandidates,
    .layouts =
        "rows aligned to 16 bytes, strides above 0 (of the batch: 0, too), those of the batch multiples of the heads'",
    .checkLayout = checkBackwardGridLayout};

} // namespace attnc::plan
