#include "families/backward_one_walk.h"

#include "families/backward_delta.h"
#include "families/row_table.h"
#include "templates/params_backward_sm80.cuh"

#include <llvm/Support/MathExtras.h>

#include <algorithm>

// NOTE: tiles are chosen for little shared-memory traffic apart from the products. The first of each list needs 0.45
// ldmatrix per 16 x 8 x 16 product, as FlashAttention-2 does; with 16 rows per warp it is 0.6.

namespace attnc::plan {
namespace {

/// Mirrors DqSums of templates/algo/d_q_sums_mma.cuh, for any tile here: a tile's columns are dealt to at most four
/// warps in groups of 16, and its rows come in multiples of 128.
size_t oneWalkSumBytes(const LaunchOperands& operands) {
  const uint64_t columns = (uint64_t(operands.q.shape[3]) + 63) / 64 * 64;
  return sizeof(float) * size_t(operands.problem.qHeads) * size_t(qTilesOf(operands, 128)) * 128 * columns;
}

BackwardParamsSm80 backwardParamsSm80(const LaunchOperands& operands, const WorkspaceView& workspace) {
  return {backwardParams(operands, workspace), static_cast<float*>(workspace.at(Use::DqSums))};
}

/// In order of preference, for heads up to 64 and up to 128 columns. A warp owns 32 rows of K and V. With 4 warps for
/// 128 columns, warps share no rows; with 8 warps for 128 or 4 for 64, two warps share the same rows.
constexpr Tile kNarrowTiles[] = {{32, 128, 4}, {32, 64, 4}, {64, 128, 8}, {64, 64, 4}};
constexpr Tile kWideTiles[] = {{64, 128, 8}, {32, 64, 4}, {64, 64, 4}};

constexpr int kWalkBytes = 64; // equals that of templates/backward_sm80.cu

/// Whether the mod computes angles. These take more registers than the large tiles leave: sin() and similar functions
/// reduce arguments of any size.
bool takesAngles(const analysis::ModFacts& facts) {
  return facts.weight == Weight::Heavy && !facts.loadsAt(ir::Level::Element);
}

/// Whether rates of soft caps take too many registers as well: before sm_90, where sums of dQ are added one by one.
bool takesRates(const Request& request, analysis::ScoreForm form) {
  return request.arch.capability < 90 && (form == analysis::ScoreForm::Tanh || form == analysis::ScoreForm::TanhApprox);
}

int sharedBytesOf(const Tile& tile, const Request& request) {
  return oneWalkSharedBytes(tile, request.options, kWalkBytes,
                            [&](int rows) { return rowTableBytes(rows, *request.mod); });
}

Expected<ParameterBlock> oneWalkParameters(const Stage&, const LaunchOperands& operands, const Device&,
                                           const WorkspaceView& workspace) {
  return ParameterBlock(backwardParamsSm80(operands, workspace));
}

} // namespace

int oneWalkSharedBytes(const Tile& tile, const KernelOptions& options, int walkBytes,
                       llvm::function_ref<int(int)> tableBytes) {
  const int split = tile.warps / (tile.blockN / 32);
  return (tile.blockN + 2 * tile.blockM) * paddedRowBytes(options) +
         (split == 1 ? 1 : 2) * tile.blockN * paddedRowBytes(tile.blockM, options.dtype) + walkBytes +
         2 * split * tableBytes(tile.blockM / split);
}

std::vector<Tile> oneWalkTiles(const Request& request, analysis::ScoreForm form,
                               llvm::function_ref<int(const Tile&)> sharedBytes) {
  const KernelOptions& options = request.options;
  const int widest = std::max(options.headDim, options.headDimV);
  std::vector<Tile> tiles;
  if (options.dtype == DType::F32 || widest > kOneWalkWidest) return tiles;
  const llvm::ArrayRef<Tile> all = widest <= 64 ? llvm::ArrayRef(kNarrowTiles) : llvm::ArrayRef(kWideTiles);
  for (const Tile& tile : all) {
    if ((takesAngles(request.mod->facts) || takesRates(request, form)) && tile.blockN > 64) continue;
    if (options.blockSparse && options.maskKvBlock < tile.blockN) continue;
    if (sharedBytes(tile) <= request.arch.sharedBytesPerCta()) tiles.push_back(tile);
  }
  return tiles;
}

std::vector<Tile> oneWalkTiles(const Request& request) {
  if (request.options.features.has(Feature::Deterministic)) return {};
  return oneWalkTiles(request, request.mod->facts.form, [&](const Tile& tile) { return sharedBytesOf(tile, request); });
}

Plan planBackwardOneWalk(const Request& request) {
  const KernelOptions& options = request.options;
  const Tile tile = chosenOf(oneWalkTiles(request), options, tileText);
  const codegen::Config finish = configOf(options, tile);
  codegen::Config config = finish;
  config.sharedBytes = sharedBytesOf(tile, request);
  Plan plan;
  const auto add = [&](const char* file, const char* entry, const codegen::Config& config, const CountCtas& ctas,
                       const MakeParameters& parameters) {
    plan.stages.push_back({.templateName = file,
                           .entry = entry,
                           .config = config,
                           .algebra = algebraFor(options),
                           .threads = 32 * config.warps,
                           .ctas = ctas,
                           .parameters = parameters});
  };
  addDelta(plan, request);
  add("backward_sm80.cu", "attnc_backward", config, perKvTile, oneWalkParameters);
  add("backward_finish_sm80.cu", "attnc_backward_finish", finish, perQTile, oneWalkParameters);
  plan.workspace.push_back({.use = Use::DqSums, .bytes = oneWalkSumBytes, .zeroed = WorkspaceUse::Zeroed::EveryLaunch});
  return plan;
}

} // namespace attnc::plan
