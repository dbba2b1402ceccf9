#include "plan/decode_plan.h"

#include "plan/append.h"
#include "plan/decode_parts.h"
#include "support/ceil_div.h"

#include "templates/host/decode.h"

#include <llvm/Support/MathExtras.h>

#include <algorithm>
#include <bit>
#include <optional>

namespace attnc::plan {
namespace {

/// Mirrors `Memory` of templates/algo/decode.cuh.
int sharedBytes(const Tile& tile, int stages, const KernelOptions& options, const DecodeCopies& copies) {
  const int teamWarps = tile.blockM / 16, teams = tile.warps / teamWarps;
  const int sums = teamWarps * 8 * (4 * (int(llvm::alignTo(options.headDimV, 16)) + 8) + 16);
  const int slot = int(llvm::alignTo(std::max(copies.kvBytes(tile.blockN / teams, options), sums), copies.slotAlign));
  const int qFactors = options.features.has(Feature::Fp8Kv) ? 4 * tile.blockM : 0, words = 4 * (tile.warps + 2);
  return teams * stages * (slot + copies.barrierBytes) + 2 * copies.qBytes(tile.blockM, options) + qFactors + words;
}

constexpr int kReservedBytes = 1024; ///< reserved in each CTA

/// A ragged batch's rows are numbered as well.
uint64_t packedTilesAndRows(const Stage& stage, const LaunchOperands& operands) {
  return uint64_t(std::max(packedTiles(operands, stage.config.blockM), operands.cuSeqlensQ ? packedRows(operands) : 0));
}

Expected<ParameterBlock> listParameters(const Stage& stage, const LaunchOperands& operands, const Device&,
                                        const WorkspaceView& workspace) {
  return ParameterBlock(decodeListsParams(stage, operands, workspace));
}

/// Returns the tile with the most stages that fit. Nullopt if not even `leastStages` fit, or if other limits rule it
/// out.
std::optional<DecodeTile> decodeTileOf(int rows, int warps, int teamColumns, int leastStages, const Request& request,
                                       const DecodeCopies& copies) {
  const KernelOptions& options = request.options;
  const Tile tile{rows, warps * 16 / rows * teamColumns, warps};
  if (tile.blockN < 32 || tile.blockN > 256) return std::nullopt; // limits of decode_lists.cu
  // With O of wide heads, registers do not suffice for more scores: nor with masks that are asked for each score. K and
  // V of 16 bits gain nothing from more.
  const bool wide = copies.byWarpgroups(rows, options), asks = request.mod.facts.masks && !request.mod.facts.kvEdges;
  const int ofHeads = options.features.has(Feature::Fp8Kv) && !asks ? 128 : 64;
  if (teamColumns > (options.headDimV > 192 ? 16 : options.headDimV > ofHeads && !wide ? 32 : 64)) return std::nullopt;
  for (int stages = 6; stages >= leastStages; --stages)
    if (const int shared = sharedBytes(tile, stages, options, copies); shared <= request.arch.sharedBytesPerCta())
      return DecodeTile{tile, stages, shared};
  return std::nullopt;
}

std::optional<DecodeTile> modelsDecodeTile(const Request& request, const DecodeCopies& copies) {
  const KernelOptions& options = request.options;
  const int least = options.headDim + options.headDimV <= 128 ? 32 : 16,
            times = options.features.has(Feature::Fp8Kv) + 1;
  for (int rows = options.packedRows; rows >= 16; rows /= 2)
    for (int leastStages : {3, 2})
      for (int warps = 8; warps * 16 >= rows; warps /= 2)
        // Narrow heads and e4m3 take as many bytes per step as others, since the other costs of a step are the same.
        for (int teamColumns = std::max(rows, least) * times; teamColumns >= 16; teamColumns /= 2)
          if (auto tile = decodeTileOf(rows, warps, teamColumns, leastStages, request, copies)) return tile;
  return std::nullopt;
}

std::string decodeTileText(const DecodeTile& tile) { return tileText(tile.tile); }

} // namespace

std::vector<DecodeTile> decodeTiles(const Request& request, const DecodeCopies& copies) {
  const std::optional<DecodeTile> own = modelsDecodeTile(request, copies);
  if (!own) return {};
  std::vector<DecodeTile> tiles{*own};
  const int rows = own->tile.blockM;
  for (int warps = 8; warps >= 4; warps /= 2)
    for (int teamColumns : {64, 32, 16})
      if (const auto other = decodeTileOf(rows, warps, teamColumns, 2, request, copies);
          other && other->tile != own->tile)
        tiles.push_back(*other);
  return tiles;
}

std::vector<std::string> decodeCandidates(const Request& request, const DecodeCopies& copies) {
  return spelledAll(decodeTiles(request, copies), decodeTileText);
}

std::string whyNotE4m3(const Request& request) {
  const bool isFp8 = request.options.features.has(Feature::Fp8Kv);
  return isFp8 && request.arch.capability < 89 ? "takes k and v of e4m3 on GPUs from sm_89 on" : "";
}

int paddedRowBytes(int headDim, int elementBytes) { return int(llvm::alignTo(headDim, 16)) * elementBytes + 16; }

Plan planDecode(const Request& request, const DecodeCopies& copies) {
  const KernelOptions& options = request.options;
  const DecodeTile tile = chosenOf(decodeTiles(request, copies), options, decodeTileText);
  codegen::Config config = configOf(options, tile.tile);
  config.appends = appendsByItself(options);
  config.kvStages = tile.stages;
  config.fp8Kv = options.features.has(Feature::Fp8Kv);
  if (copies.byWarpgroups(tile.tile.blockM, options))
    config.wgmmaShapes = {tile.tile.blockN / (tile.tile.warps / 4), int(llvm::alignTo(options.headDimV, 16))};
  config.sharedBytes = tile.sharedBytes;
  const int64_t ofCta = tile.sharedBytes + kReservedBytes;
  const int64_t atOnce = std::min<int64_t>((request.arch.sharedBytesPerCta() + kReservedBytes) / ofCta, 3);
  return planWalking(request,
                     {.templateName = copies.templateName,
                      .config = std::move(config),
                      .threads = 32 * tile.tile.warps,
                      .parameters = copies.parameters},
                     atOnce);
}

Plan planWalking(const Request& request, Stage walking, int64_t atOnce) {
  const KernelOptions& options = request.options;
  const Tile tile{walking.config.blockM, walking.config.blockN, walking.config.warps};
  const bool lists = decodeListsSteps(request.mod.facts, options);
  Plan plan;
  if (lists) {
    codegen::Config ofLists = configOf(options, {tile.blockM, tile.blockN, 8});
    plan.stages.push_back({.templateName = "decode_lists.cu",
                           .entry = "attnc_decode_lists",
                           .config = std::move(ofLists),
                           .algebra = algebraFor(options.dtype),
                           .threads = 32 * 8,
                           .ctas = perStepWord,
                           .tiles = packedTilesAndRows,
                           .parameters = listParameters});
  }
  walking.entry = "attnc_decode";
  walking.algebra = algebraFor(options.dtype);
  walking.ctas = [atOnce](const Stage& stage, const LaunchOperands& operands, const Device& device) {
    return ctasOfParts(atOnce, stage, operands, device);
  };
  walking.tiles = packedTilesAndRows;
  plan.stages.push_back(std::move(walking));
  const auto add = [&](Use use, WorkspaceUse::Zeroed zeroed, auto bytes) {
    plan.workspace.push_back({.use = use, .bytes = std::move(bytes), .zeroed = zeroed, .isOptional = !lists});
  };
  using Zeroed = WorkspaceUse::Zeroed;
  const int counters = lists ? 2 : 1; // per item: parts that have arrived, and words
  add(Use::Counters, Zeroed::Once, [counters, rows = tile.blockM](const LaunchOperands& operands) {
    return counterBytes(operands, rows, counters);
  });
  add(Use::Parts, Zeroed::Never,
      [rows = tile.blockM](const LaunchOperands& operands) { return partBytes(operands, rows); });
  if (lists)
    add(Use::StepLists, Zeroed::Never,
        [tile](const LaunchOperands& operands) { return listBytes(operands, tile.blockM, tile.blockN); });
  return plan;
}

} // namespace attnc::plan
