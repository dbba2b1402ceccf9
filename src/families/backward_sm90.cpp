// Gradients with wgmma and TMA on Hopper. The tiles were measured: bench/notes/backward.md has the figures.
#include "families/backward_delta.h"

#include "families/reductions.h"
#include "families/row_table.h"
#include "families/tangents.h"
#include "launch/tensor_maps.h"
#include "support/try.h"

#include <fmt/format.h>

#include <llvm/ADT/STLExtras.h>
#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace attnc::plan {
namespace {

int slabs(int dim) { return (dim + 63) / 64; }

/// Tiles have 64 or 128 rows of q, and a multiple of 64 columns. To suit both, rows are rounded up to 128.
size_t sumBytes(const LaunchOperands& operands) {
  const int64_t columns = 64 * slabs(int(operands.q.shape[3]));
  return sizeof(float) * size_t(operands.problem.qHeads) * size_t(qTilesOf(operands, 128)) * 128 * size_t(columns);
}

/// Two counters per tile: algo/turns.cuh.
size_t turnBytes(const LaunchOperands& operands) {
  return 2 * sizeof(int) * size_t(operands.problem.qHeads) * size_t(qTilesOf(operands, 64));
}

/// One bit per block, in words: algo/visits.cuh. Without lists, sized for the smallest blocks.
size_t visitBytes(const LaunchOperands& operands) {
  const ProblemShape& problem = operands.problem;
  BlockMaskShape shape{problem.batch, problem.qHeads, problem.qLen, problem.kvLen, 64, 64};
  if (operands.lists) shape = operands.lists->shape;
  return sizeof(unsigned) * size_t(shape.batch) * size_t(shape.heads) * size_t(shape.qBlocks()) *
         size_t((shape.kvBlocks() + 31) / 32);
}

/// Wide kernels, whose tiles have 64 rows of k and v: algo/kv_sums.cuh. None if no heads share a KV head.
size_t kvSumBytes(const LaunchOperands& operands) {
  if (sharersOf(operands) == 1) return 0;
  const int64_t columns = 64 * (slabs(int(operands.k.shape[3])) + slabs(int(operands.v.shape[3])));
  return sizeof(float) * size_t(operands.problem.kvHeads) * size_t(kvTilesOf(operands, 64)) * 64 * size_t(columns);
}
size_t kvArrivalBytes(const LaunchOperands& operands) {
  if (sharersOf(operands) == 1) return 0;
  return 8 * sizeof(int) * size_t(operands.problem.kvHeads) * size_t(kvTilesOf(operands, 64));
}

size_t diagonalBytes(const LaunchOperands& operands) {
  const ProblemShape& problem = operands.problem;
  // Unsigned, because problems that fit into no memory may be asked about, and overflow.
  return sizeof(float) * size_t(problem.batch) * size_t(problem.qHeads) * size_t(problem.qLen + problem.kvLen);
}

/// Returns the places of the maps in the parameters.
std::array<MapPlace, 4> mapsOf(BackwardParamsSm90& params, const Stage& stage, const LaunchOperands& operands) {
  const int blockM = stage.config.blockM, blockN = stage.config.blockN;
  return {MapPlace{"q", &operands.q, blockM, &params.q, &params.q_batch_step},
          {"k", &operands.k, blockN, &params.k, &params.k_batch_step},
          {"v", &operands.v, blockN, &params.v, &params.v_batch_step},
          {"d_out", &operands.dOut, blockM, &params.d_out, &params.d_out_batch_step}};
}

/// Returns the parameters without the maps.
BackwardParamsSm90 backwardParamsSm90(const Stage& stage, const LaunchOperands& operands, const Device& device,
                                      const WorkspaceView& workspace) {
  const auto& config = stage.config;
  BackwardParamsSm90 params{};
  params.base = backwardParams(operands, workspace);
  params.d_q_sums = static_cast<float*>(workspace.at(Use::DqSums));
  if (*config.takesTurns) params.turns = static_cast<int*>(workspace.at(Use::DqTurns));
  params.visits = static_cast<unsigned*>(workspace.at(Use::DqVisits));
  // Q, dO and the sums of dQ of all query heads that share a KV head.
  const ForwardParams& forward = params.base.forward;
  const int64_t rowBytes =
      int64_t(config.headDimQk + config.headDimV) * dtypeBytes(config.dtype) + 4 * int64_t(config.headDimQk);
  params.kv_sums = static_cast<float*>(workspace.at(Use::KvSums));
  params.kv_arrivals = static_cast<int*>(workspace.at(Use::KvArrivals));
  params.sharers = params.kv_sums ? int(sharersOf(operands)) : 1;
  // If tiles are few, the longest of all heads must come first, or those of the last heads begin too late.
  const int64_t ofHead = params.kv_sums ? 1 : forward.group; // query heads that a CTA walks
  const int64_t heads = operands.k.shape[0] * forward.kv_heads * params.sharers;
  const int64_t tiles = forward.kv_heads * kvTilesOf(operands, config.blockN) * params.sharers;
  params.section = tiles <= 4 * device.multiprocessors
                       ? int(std::max<int64_t>(1, heads))
                       : int(sectionOf(heads, rowBytes * ofHead * rowsOfQ(operands), device.l2Bytes));
  return params;
}

/// Whether a tile is one of backward_wide_sm90.cu, where dK and dV have a warpgroup each. In the other two kernels, a
/// warpgroup has both, of its 64 rows.
bool isWide(int blockN) { return blockN == 64; }
/// Whether the kernel for a tile that is not wide is backward_192_sm90.cu, not backward_sm90.cu.
bool isLong(int headDim) { return headDim > 128; }

/// Mirrors `Memory` of templates/backward_sm90.cu: K and V, rings of Q and dO, two tiles of dS, dQ on its way out,
/// control words, tables of rows. backward_192_sm90.cu has a tile of dS, and targets of dQ. backward_wide_sm90.cu has a
/// tile of rates instead of dQ.
int backwardSharedBytes(const codegen::Config& config, const KernelMod& mod) {
  const bool wide = isWide(config.blockN), is192 = !wide && isLong(config.headDimQk);
  const int slotsOfS = is192 ? 1 : 2;
  const auto tileBytes = [](int rows, int dim) { return rows * 128 * slabs(dim); };
  const int q = tileBytes(1, config.headDimQk), v = tileBytes(1, config.headDimV);
  // as in DqSums
  const int columns = config.blockM == 128 ? int(llvm::alignTo(config.headDimQk, 16)) : 32 * slabs(config.headDimQk);
  const int tiles = config.blockN * (q + v) + config.blockM * (config.qStages * q + config.kvStages * v) +
                    slotsOfS * tileBytes(config.blockN, config.blockM) +
                    (wide ? tileBytes(config.blockN, config.blockM) : 2 * 64 * columns * 4);
  const int control = config.qStages * 32 + config.kvStages * 16 + (wide ? 4 * 8 : slotsOfS * 16 + 8 + 3 * 16);
  const int turns = *config.takesTurns ? 4 * 8 : 0, targets = is192 ? 16 * 8 : 0;
  const int ownPlace = wide ? 0 : 16;
  return int(llvm::alignTo(tiles + control, 16)) + ownPlace + turns + targets +
         config.qStages * rowTableBytes(config.blockM, mod);
}

/// A tile, and whether CTAs take turns at the sums of dQ (templates/algo/turns.cuh) by choice.
struct BackwardTile {
  Tile tile;
  bool takesTurns = false;
};

/// "64x128x8", "64x128x8-turns"
std::string backwardTileText(const BackwardTile& shape) {
  return tileText(shape.tile) + (shape.takesTurns ? "-turns" : "");
}

/// Returns the config without shared memory.
codegen::Config backwardConfig(const Request& request, const BackwardTile& shape) {
  const KernelOptions& options = request.options;
  const bool wide = isWide(shape.tile.blockN);
  const bool longSteps = shape.tile.blockM == 128;
  codegen::Config config = configOf(options, shape.tile);
  config.kvStages = 2;
  // 3: S of the next step begins before dK of the last one is known to be complete
  config.qStages = wide || isLong(options.headDim) ? 2 : 3;
  const int qk = int(llvm::alignTo(options.headDim, 16)), v = int(llvm::alignTo(options.headDimV, 16));
  const bool deterministic = options.features.has(Feature::Deterministic);
  config.deterministic = deterministic;
  config.takesTurns = deterministic || shape.takesTurns || (longSteps && !options.blockSparse);
  config.wgmmaShapes = {config.blockM, qk, v, 32, 64};
  if (!wide) config.sumsDiagonals = false;
  return config;
}

/// Whether dK and dV of 64 rows fit into one warpgroup.
bool fitsRegisters(const KernelOptions& options) {
  return options.headDim <= 192 && options.headDimV <= (options.headDim <= 64 ? 64 : 128);
}
/// The same, next to what a step of the mod needs.
bool fitsOneWarpgroup(const Request& request, const BackwardTile& shape) {
  const KernelOptions& options = request.options;
  if (!fitsRegisters(options) || !isLong(options.headDim)) return fitsRegisters(options);
  return request.mod->facts.keepsGradient && (!options.blockSparse || options.maskKvBlock >= shape.tile.blockN) &&
         backwardSharedBytes(backwardConfig(request, shape), *request.mod) <= request.arch.sharedBytesPerCta();
}

/// Steps have 128 rows up to head dim 64, unless score() or prob_gradient() is called for each score: that takes
/// registers. Turns save memory time, but cost time in the storers, and in the producer if it must look turns up in
/// lists: long steps always take them, short ones where walks are short. The default comes first.
std::vector<BackwardTile> backwardTiles(const Request& request) {
  const KernelOptions& options = request.options;
  const BackwardTile wide{{64, 64, 8}}, tall{{64, 128, 8}};
  if (!fitsOneWarpgroup(request, tall)) return {wide};
  if (isLong(options.headDim))
    return options.features.has(Feature::Deterministic) ? std::vector{tall} : std::vector{tall, wide};
  std::vector<BackwardTile> tiles{tall};
  const BackwardTile turning{{64, 128, 8}, true};
  if (!options.blockSparse && !options.features.has(Feature::Deterministic) &&
      backwardSharedBytes(backwardConfig(request, turning), *request.mod) <= request.arch.sharedBytesPerCta())
    tiles.push_back(turning);
  if (options.headDim <= 64 && request.mod->facts.form != analysis::ScoreForm::General &&
      !options.features.has(Feature::Reductions))
    tiles.insert(tiles.begin(), {{128, 128, 8}});
  return tiles;
}

/// Takes turns at steps of 64 rows where a walk is short: nothing is zeroed then, and the first to add only stores. In
/// long walks the waiting costs as much, and more where a CTA walks the rows of several heads.
std::string backwardTileOfLaunch(const Request& request, const WalkFacts& facts) {
  if (request.options.features.has(Feature::Tangents)) return {};
  constexpr int64_t kShort = 2048;
  if (facts.columns > kShort || facts.group > 1) return {};
  const std::vector<BackwardTile> tiles = backwardTiles(request);
  return tiles.size() == 2 && tiles.back().takesTurns ? backwardTileText(tiles.back()) : "";
}

/// Returns the tile that is asked for, or the default.
BackwardTile chosenTile(const Request& request) {
  return chosenOf(backwardTiles(request), request.options, backwardTileText);
}

std::vector<std::string> backwardSm90Candidates(const Request& request) {
  if (request.options.features.has(Feature::Tangents)) return {}; // there is one tile
  return spelledAll(backwardTiles(request), backwardTileText);
}

/// Whether all requested gradients of captures can be computed from sums along diagonals, and may be added in any
/// order. False if none are requested.
bool diagonalsSuffice(const Request& request) {
  const KernelOptions& options = request.options;
  const auto needsScores = [](const CaptureAccess& capture) { return capture.needsScores(); };
  const auto hasPlaces = [](const CaptureAccess& capture) { return !capture.inColumns && !capture.places.empty(); };
  const auto isOfDiagonals = [](const analysis::GradientAccess& place) { return place.ofDiagonals; };
  constexpr Features kOthers{Feature::Deterministic, Feature::Ragged, Feature::Lengths, Feature::Offsets};
  return !isWide(chosenTile(request).tile.blockN) && !isLong(options.headDim) &&
         (featuresOf(options) & kOthers).empty() && llvm::any_of(request.mod->captures, needsScores) &&
         llvm::any_of(request.mod->captures, hasPlaces) &&
         llvm::all_of(request.mod->captures, [&](const CaptureAccess& capture) {
           return capture.inColumns || llvm::all_of(capture.places, isOfDiagonals);
         });
}

codegen::Config backwardConfig(const Request& request) { return backwardConfig(request, chosenTile(request)); }

std::string unservedByBackwardSm90(const Request& request) {
  const KernelOptions& options = request.options;
  if (request.arch.capability != 90 || !request.arch.specific) return "needs arch sm_90a";
  if (options.features.has(Feature::Tangents)) return unservedTangents(request, Family::Sm90);
  if (std::string why = unservedOutputGradients(request); !why.empty()) return why;
  const bool wide = isWide(chosenTile(request).tile.blockN);
  if (options.features.has(Feature::Reductions) && (wide || isLong(options.headDim)))
    return "takes no gradients of outputs with these head dims";
  if (request.mod->facts.hasProbMod && (wide || isLong(options.headDim)))
    return "takes no dropout with these head dims";
  if (wide && options.features.has(Feature::Deterministic))
    return fmt::format("adds up the gradient of q in any order with these head dims{}",
                       !fitsRegisters(options)                            ? ""
                       : options.blockSparse && options.maskKvBlock < 128 ? " and kv blocks of 64"
                                                                          : " and this mod");
  if (!wide && options.blockSparse && options.maskKvBlock < 128)
    return "takes block masks with kv blocks of 128 or 256 at head dims up to 128";
  if (!wide && options.blockSparse && options.headDim <= 64 && options.maskQBlock < 128)
    return "takes block masks with q blocks of 128 or 256 at head dims up to 64";
  if (backwardSharedBytes(backwardConfig(request), *request.mod) > request.arch.sharedBytesPerCta())
    return "has no shared memory for what the mod knows of its rows";
  return {};
}

/// Checks that tensor maps can describe what is read; gradients are stored 16 bytes at a time.
Status checkBackwardSm90Layout(const LaunchOperands& operands) {
  for (auto [name, tensor] : {std::pair("q", &operands.q),
                              {"k", &operands.k},
                              {"v", &operands.v},
                              {"out", &operands.out},
                              {"d_out", &operands.dOut},
                              {"d_q", &operands.dQ},
                              {"d_k", &operands.dK},
                              {"d_v", &operands.dV}})
    ATTNC_TRY(checkMappable(name, *tensor));
  return operands.tangents ? checkTangentsSm90Layout(*operands.tangents) : Status();
}

Expected<ParameterBlock> backwardParametersSm90(const Stage& stage, const LaunchOperands& operands,
                                                const Device& device, const WorkspaceView& workspace) {
  ATTNC_TRY(checkBackwardSm90Layout(operands));
  BackwardParamsSm90 params = backwardParamsSm90(stage, operands, device, workspace);
  ATTNC_TRY(encodeMaps(mapsOf(params, stage, operands), operands));
  return ParameterBlock(params);
}

/// Fills the parameters without tensor maps: a stage without tiles of K and V has no boxes for these.
Expected<ParameterBlock> visitParameters(const Stage&, const LaunchOperands& operands, const Device&,
                                         const WorkspaceView& workspace) {
  BackwardParamsSm90 params{};
  params.base = backwardParams(operands, workspace);
  params.visits = static_cast<unsigned*>(workspace.at(Use::DqVisits));
  return ParameterBlock(params);
}

Plan planBackwardSm90(const Request& request) {
  if (request.options.features.has(Feature::Tangents)) return planTangents(request, Family::Sm90);
  const KernelOptions& options = request.options;
  codegen::Config config = backwardConfig(request);
  const passes::Algebra algebra = algebraFor(options);
  const bool sums = diagonalsSuffice(request);
  Plan plan;
  plan.tile = backwardTileText(chosenTile(request));
  addDelta(plan, request);
  codegen::Config finish = config;
  finish.sumsDiagonals.reset();
  if (sums) config.sumsDiagonals = true;
  config.sharedBytes = backwardSharedBytes(config, *request.mod);
  const bool wide = isWide(chosenTile(request).tile.blockN);
  const bool marksVisits = options.features.has(Feature::Deterministic) && options.blockSparse;
  if (marksVisits)
    plan.stages.push_back({.templateName = "backward_visits.cu",
                           .entry = "attnc_backward_visits",
                           .config = configOf(options, {64, 0, 4}),
                           .algebra = algebra,
                           .threads = 128,
                           .ctas = perMaskColumn,
                           .parameters = visitParameters});
  plan.stages.push_back({.templateName = wide                      ? "backward_wide_sm90.cu"
                                         : isLong(options.headDim) ? "backward_192_sm90.cu"
                                                                   : "backward_sm90.cu",
                         .entry = "attnc_backward",
                         .config = config,
                         .algebra = algebra,
                         .forCaptures = sums,
                         .threads = 384,
                         .ctas = wide ? perKvTileOfEachQHead : perKvTile,
                         .parameters = backwardParametersSm90});
  plan.stages.push_back({.templateName = "backward_finish_sm90.cu",
                         .entry = "attnc_backward_finish",
                         .config = finish,
                         .algebra = algebra,
                         .threads = 256,
                         .ctas = perQTile,
                         .parameters = backwardParametersSm90});
  using Zeroed = WorkspaceUse::Zeroed;
  const bool takesTurns = *config.takesTurns;
  plan.workspace.push_back(
      {.use = Use::DqSums, .bytes = sumBytes, .zeroed = takesTurns ? Zeroed::Never : Zeroed::EveryLaunch});
  if (takesTurns) plan.workspace.push_back({.use = Use::DqTurns, .bytes = turnBytes, .zeroed = Zeroed::EveryLaunch});
  if (wide) plan.workspace.push_back({.use = Use::KvSums, .bytes = kvSumBytes, .zeroed = Zeroed::EveryLaunch});
  if (wide) plan.workspace.push_back({.use = Use::KvArrivals, .bytes = kvArrivalBytes, .zeroed = Zeroed::EveryLaunch});
  if (marksVisits) plan.workspace.push_back({.use = Use::DqVisits, .bytes = visitBytes, .zeroed = Zeroed::EveryLaunch});
  if (sums)
    plan.workspace.push_back(
        {.use = Use::DiagonalSums, .bytes = diagonalBytes, .zeroed = WorkspaceUse::Zeroed::EveryLaunch});
  return plan;
}

} // namespace

const FamilyRow kBackwardSm90{.kind = KernelKind::Backward,
                              .family = Family::Sm90,
                              .arch = "sm_90a",
                              .madeFor = 90,
                              .walksBounds = true,
                              .takesProbMods = FamilyRow::ProbMods::Drops,
                              .takes = {Feature::Lengths, Feature::Offsets, Feature::Ragged, Feature::BlockMask,
                                        Feature::Gradients, Feature::Deterministic, Feature::Tangents,
                                        Feature::Reductions},
                              .unserved = unservedByBackwardSm90,
                              .plan = planBackwardSm90,
                              .candidates = backwardSm90Candidates,
                              .tileOfLaunch = backwardTileOfLaunch,
                              .layouts = "rows aligned to 16 bytes, strides above 0 (of the batch: 0, too)",
                              .checkLayout = checkBackwardSm90Layout};

} // namespace attnc::plan
