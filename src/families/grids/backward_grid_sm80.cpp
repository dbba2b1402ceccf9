// Gradients with mma.sync and cp.async, by boxes of a grid: for GPUs without a box kernel of their own.
#include "families/grids/backward_boxes.h"

#include "families/backward_delta.h"
#include "families/backward_one_walk.h"
#include "families/grids/grid_plan.h"
#include "support/try.h"
#include "templates/params_grid_sm80.cuh"

#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace attnc::plan {
namespace {

constexpr int kWalkBytes = 80; // equals that of templates/backward_grid_sm80.cu

/// Mirrors SeenTable of templates/algo/grid_transposed_scores.cuh.
int seenTableBytes(int queries, const KernelMod& mod) {
  const int ofRow = 12 + (readsQueries(mod) ? mod.onGrid->rowBytes : 0);
  return int(llvm::alignTo(queries * ofRow, 16)) + 4 * queries;
}

int gridSharedBytes(const Tile& tile, const Request& request) {
  return oneWalkSharedBytes(tile, request.options, kWalkBytes,
                            [&](int queries) { return seenTableBytes(queries, *request.mod); });
}

/// Tiles of f32, the last one for heads up to 64 columns. A warp owns 16 rows of dK and dV, and in the other walk of
/// dQ. Small boxes come first: products take most of the time, and they compute the fewest pairs that no window has.
constexpr Tile kF32Tiles[] = {{16, 32, 2}, {16, 64, 4}, {32, 64, 4}};

/// Mirrors `Memory` of templates/algo/backward_tiles_mma.cuh.
int walksSharedBytes(const Tile& tile, const KernelOptions& options) {
  return (tile.blockM + tile.blockN) * paddedRowBytes(options);
}

/// Returns the tiles, the model's first. Keys and queries of a tile are boxes. For 16 bits these are two tiles of
/// backward_sm80.cu.
std::vector<Tile> gridTiles(const Request& request) {
  if (request.options.dtype == DType::F32) {
    const bool isWide = std::max(request.options.headDim, request.options.headDimV) > 64;
    std::vector<Tile> tiles;
    for (const Tile& tile : kF32Tiles) {
      const int table = seenTableBytes(std::max(tile.blockM, tile.blockN), *request.mod); // static memory
      if (!(isWide && tile.blockM > 16) &&
          walksSharedBytes(tile, request.options) + table <= request.arch.sharedBytesPerCta())
        tiles.push_back(tile);
    }
    return tiles;
  }
  std::vector<Tile> tiles = oneWalkTiles(request, request.mod->onGrid->form,
                                         [&](const Tile& tile) { return gridSharedBytes(tile, request); });
  if (tiles.size() > 2) tiles.resize(2);
  return tiles;
}

std::string unservedByBackwardGridSm80(const Request& request) {
  if (std::string why = unservedByBackwardBoxes(request); !why.empty()) return why;
  if (request.mod->grid->beside) return "takes mods all of whose tokens lie on grids";
  if (std::max(request.options.headDim, request.options.headDimV) > kOneWalkWidest) return "takes head dims up to 128";
  if (gridTiles(request).empty()) return "has no shared memory for what the mod knows of its rows";
  return {};
}

/// Returns the boxes of all tiles, the first tile's first.
std::vector<codegen::Config::Boxes> boxesOf(const Request& request) {
  std::vector<codegen::Config::Boxes> all;
  for (const Tile& tile : gridTiles(request)) {
    const auto boxes = rankBackwardBoxes(request, tile.blockM, tile.blockN, 6);
    all.insert(all.end(), boxes.begin(), boxes.end());
  }
  return all;
}

std::vector<std::string> boxCandidates(const Request& request) { return spelledAll(boxesOf(request), boxesText); }

/// Returns the bytes of dq in f32, with rows rounded up to 16 columns, and of `turns` for each row.
size_t rowSumBytes(const LaunchOperands& operands, int turns) {
  const auto& shape = operands.q.shape;
  return sizeof(float) * size_t(shape[0]) * size_t(shape[1]) * size_t(shape[2]) *
         size_t(llvm::alignTo(uint64_t(shape[3]), 16) + uint64_t(turns));
}

Expected<ParameterBlock> boxParameters(const Stage& stage, const LaunchOperands& operands, const Device&,
                                       const WorkspaceView& workspace) {
  ATTNC_TRY(checkGrids(operands));
  BackwardGridParamsSm80 params{};
  params.base = backwardParams(operands, workspace);
  params.d_q_sums = static_cast<float*>(workspace.at(Use::DqSums));
  const std::array<int64_t, 3> along = keyBoxesAlong(stage, operands);
  for (size_t axis = 0; axis < 3; ++axis) {
    params.q_extent[axis] = int(operands.grids->queries[axis]);
    params.kv_extent[axis] = int(operands.grids->keys[axis]);
    params.kv_tiles[axis] = int(along[axis]);
  }
  return ParameterBlock(params);
}

Stage boxStage(const char* file, const char* entry, const codegen::Config& config, const CountCtas& ctas,
               const CountTiles& tiles) {
  return {.templateName = file,
          .entry = entry,
          .config = config,
          .algebra = algebraOnGrid(config.dtype),
          .onGrid = true,
          .threads = 32 * config.warps,
          .ctas = ctas,
          .tiles = tiles,
          .parameters = boxParameters};
}

/// Adds a walk for dK and dV, and one for dQ. In the latter, queries and keys change their boxes.
void addTwoWalks(Plan& plan, const KernelOptions& options, const Tile& tile, const codegen::Config::Boxes& boxes) {
  const auto add = [&](const char* file, const char* entry, const Tile& tile, const codegen::Config::Boxes& boxes,
                       const CountCtas& ctas, const CountTiles& tiles) {
    codegen::Config config = configOf(options, tile);
    config.boxes = boxes;
    config.sharedBytes = walksSharedBytes(tile, options);
    plan.stages.push_back(boxStage(file, entry, config, ctas, tiles));
  };
  add("backward_grid_kv_sm80.cu", "attnc_backward_kv", tile, boxes, perKeyBox, keyBoxTiles);
  add("backward_grid_q_sm80.cu", "attnc_backward_q", {tile.blockN, tile.blockM, tile.warps},
      {.queries = boxes.keys, .keys = boxes.queries}, perQueryBox, queryBoxTiles);
}

Plan planBackwardGridSm80(const Request& request) {
  const KernelOptions& options = request.options;
  const codegen::Config::Boxes boxes = chosenOf(boxesOf(request), options, boxesText);
  const auto tiles = gridTiles(request);
  const Tile& tile = *std::find_if(tiles.begin(), tiles.end(), [&](const Tile& tile) {
    return tile.blockM == tokensOf(boxes.queries) && tile.blockN == tokensOf(boxes.keys);
  });
  Plan plan;
  plan.grid = request.mod->grid;
  plan.tile = boxesText(boxes);
  addDelta(plan, request);
  if (options.dtype == DType::F32) {
    addTwoWalks(plan, options, tile, boxes);
    return plan;
  }
  codegen::Config config = configOf(options, tile);
  config.boxes = boxes;
  config.deterministic = options.features.has(Feature::Deterministic);
  config.sharedBytes = gridSharedBytes(tile, request);
  plan.stages.push_back(boxStage("backward_grid_sm80.cu", "attnc_backward", config, perKeyBox, keyBoxTiles));
  config.sharedBytes = 0;
  config.deterministic.reset();
  plan.stages.push_back(
      boxStage("backward_grid_finish_sm80.cu", "attnc_backward_finish", config, perQTile, tilesOfRows));
  plan.workspace.push_back({.use = Use::DqSums,
                            .bytes = [turns = options.features.has(Feature::Deterministic)](
                                         const LaunchOperands& operands) { return rowSumBytes(operands, turns); },
                            .zeroed = WorkspaceUse::Zeroed::EveryLaunch});
  return plan;
}

} // namespace

const FamilyRow kBackwardGridSm80{.kind = KernelKind::Backward,
                                  .family = Family::Grid,
                                  .walksBoxes = true,
                                  .takes = {Feature::Gradients, Feature::Deterministic, Feature::F32},
                                  .unserved = unservedByBackwardGridSm80,
                                  .plan = planBackwardGridSm80,
                                  .candidates = boxCandidates,
                                  .layouts = "any strides, the last one 1",
                                  .checkLayout = takesAnyLayoutOnGrids};

} // namespace attnc::plan
