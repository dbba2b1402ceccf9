#include "families/decode_plan.h"

#include "families/append.h"
#include "families/decode_parts.h"
#include "support/ceil_div.h"

#include <llvm/Support/MathExtras.h>

#include <algorithm>
#include <bit>
#include <optional>

namespace attnc::plan {

Divisor divisorOf(int64_t divisor) {
  const uint64_t d = uint64_t(std::max<int64_t>(divisor, 1));
  const unsigned shift = unsigned(std::bit_width(d - 1)); // log2, rounded up
  return {int(d), unsigned((uint64_t(1) << 32) * ((uint64_t(1) << shift) - d) / d + 1), shift};
}

static PackedParams packedParams(const Stage& stage, const LaunchOperands& operands) {
  const ProblemShape& problem = operands.problem;
  const int64_t heads = (operands.cuSeqlensQ ? 1 : problem.batch) * problem.kvHeads;
  return {forwardParams(operands), divisorOf(problem.kvHeads ? problem.qHeads / problem.kvHeads : 1),
          divisorOf(heads ? packedTiles(operands, stage.config.blockM) / heads : 1), divisorOf(problem.kvHeads)};
}

/// Per item: how many steps are live, their indices, and the words that mark them.
static constexpr int64_t kIntsOfWord = 32 + 1;
static size_t listBytes(const LaunchOperands& operands, int rows, int columns) {
  return sizeof(int) * size_t(packedTiles(operands, rows) * (1 + stepWords(operands, columns) * kIntsOfWord));
}

static DecodeListsParams listsOf(const Stage& stage, const LaunchOperands& operands, const WorkspaceView& workspace) {
  const int64_t items = packedTiles(operands, stage.config.blockM);
  DecodeListsParams lists{};
  lists.words_of_item = int(stepWords(operands, stage.config.blockN));
  lists.arrived = static_cast<int*>(workspace.at(Use::Counters)) + items;
  lists.count = static_cast<int*>(workspace.at(Use::StepLists));
  lists.index = lists.count + items;
  lists.words = reinterpret_cast<unsigned*>(lists.index + items * lists.words_of_item * 32);
  return lists;
}

int64_t partRows(const LaunchOperands& operands, int rows) {
  const ProblemShape& problem = operands.problem;
  return problem.kvHeads ? std::min<int64_t>(problem.qLen * (problem.qHeads / problem.kvHeads), rows) : 0;
}

/// Two parts per CTA: O, then states.
static size_t partBytes(const LaunchOperands& operands, int rows) {
  return sizeof(float) * size_t(2 * mostParts(operands, rows) * partRows(operands, rows) * (operands.v.shape[3] + 4));
}

/// One CTA per 32 steps along KV of each tile of packed rows.
static int64_t perStepWord(const Stage& stage, const LaunchOperands& operands, const Device&) {
  return packedTiles(operands, stage.config.blockM) * stepWords(operands, stage.config.blockN);
}

/// Returns the bytes of `counters` counters per item.
static size_t counterBytes(const LaunchOperands& operands, int rows, int counters) {
  return sizeof(int) * size_t(packedTiles(operands, rows) * counters);
}

/// Returns the CTAs of a decode kernel. `atOnce`: how many a multiprocessor runs at once.
static int64_t ctasOfParts(int64_t atOnce, const Stage& stage, const LaunchOperands& operands, const Device& device) {
  return std::min(mostParts(operands, stage.config.blockM), device.multiprocessors * atOnce);
}

/// Returns the parameters of the stage that lists the live steps.
static DecodeListsParams decodeListsParams(const Stage& stage, const LaunchOperands& operands,
                                           const WorkspaceView& workspace) {
  DecodeListsParams params = listsOf(stage, operands, workspace);
  params.forward = packedParams(stage, operands);
  return params;
}

/// Returns how many teams of CTAs deal items, each for a tile of a head: one, unless they leave few CTAs idle.
int64_t decodeTeams(const Stage& stage, const LaunchOperands& operands, int64_t ctas) {
  const ProblemShape& problem = operands.problem;
  const int64_t heads = problem.batch * problem.kvHeads;
  const int64_t tiles = heads ? packedTiles(operands, stage.config.blockM) / heads : 0;
  return operands.cuSeqlensQ || tiles < 2 || tiles > ctas / 2 || ctas % tiles > ctas / 16 ? 1 : tiles;
}

/// Returns what DecodeDealer of templates/algo/decode_work.cuh would find if all items have one length.
static EqualItems equalItems(const Stage& stage, const LaunchOperands& operands, int64_t ctas, int64_t teams) {
  ctas /= teams;
  const int64_t items = packedTiles(operands, stage.config.blockM) / teams, most = items ? ctas / items : 0;
  const int64_t length = std::max<int64_t>(ceilDiv(operands.problem.kvLen, stage.config.blockN), 1);
  const int64_t piece = most ? ceilDiv(length, most) : 0; // most steps of a piece; 0: more items than CTAs
  const int64_t steps = items * length, shares = std::max<int64_t>(std::min(ctas, steps), 1), each = steps / shares;
  const bool inPieces = piece && piece <= each + kStepsOfEnd;
  return {divisorOf(inPieces ? ceilDiv(length, piece) : length), divisorOf(each), divisorOf(each + 1),
          int(steps % shares), inPieces};
}

DecodeParams decodeParams(const Stage& stage, const LaunchOperands& operands, const Device& device,
                          const WorkspaceView& workspace, int64_t teams) {
  DecodeParams params{};
  params.forward = packedParams(stage, operands);
  params.part_rows = int(partRows(operands, stage.config.blockM));
  params.arrived = static_cast<int*>(workspace.at(Use::Counters));
  // Steps of all tiles are dealt by a 32-bit number. If they do not fit, the tiles suffice to keep a GPU busy.
  const int64_t steps =
      packedTiles(operands, stage.config.blockM) * (32 * stepWords(operands, stage.config.blockN) + 1);
  if (steps <= kMostTiles) params.part_out = static_cast<float*>(workspace.at(Use::Parts));
  params.k_scale = scalesOf(operands.kScales);
  params.v_scale = scalesOf(operands.vScales);
  const int64_t ctas = ctasOf(stage, operands, device);
  if (workspace.at(Use::StepLists)) {
    const DecodeListsParams lists = listsOf(stage, operands, workspace);
    const int64_t tiles = operands.problem.kvHeads ? packedTiles(operands, stage.config.blockM) /
                                                         (operands.problem.batch * operands.problem.kvHeads)
                                                   : 0;
    BlockLists& steps = params.forward.lists;
    steps.partial_count = lists.count;
    steps.partial_index = lists.index;
    steps.batch_stride = operands.problem.kvHeads * tiles;
    steps.head_stride = tiles;
    steps.index_stride = lists.words_of_item * 32;
    steps.q_block = stage.config.blockM;
    steps.kv_block = stage.config.blockN;
  }
  if (params.part_out) params.equal = equalItems(stage, operands, ctas, teams);
  if (params.part_out) params.part_state = params.part_out + 2 * ctas * params.part_rows * operands.v.shape[3];
  return params;
}

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
  const bool wide = copies.byWarpgroups(rows, options), asks = request.mod->facts.masks && !request.mod->facts.kvEdges;
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
  config.constants = codegen::constantText("kFp8Kv", options.features.has(Feature::Fp8Kv));
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
  const bool lists = decodeListsSteps(request.mod->facts, options);
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
