// wgmma and TMA on Hopper. The tiles were measured: bench/notes/forward.md has the figures.
#include "families/catalog.h"
#include "families/family.h"

#include "launch/tensor_maps.h"
#include "support/ceil_div.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/Support/MathExtras.h>

#include <algorithm>
#include <bit>

namespace attnc::plan {
namespace {

/// Returns the places of the maps in the parameters.
std::array<MapPlace, 4> mapsOf(ForwardParamsSm90& params, const Stage& stage, const LaunchOperands& operands) {
  const int blockM = stage.config.blockM, blockN = stage.config.blockN / stage.config.cluster->ctas;
  // A page is an entry of the batch: no copy goes beyond one.
  const int kvRows = operands.pageTable ? std::min(blockN, stage.config.pageSize) : blockN;
  return {MapPlace{"q", &operands.q, blockM, &params.q, &params.q_batch_step},
          {"k", &operands.k, kvRows, &params.k, &params.k_batch_step},
          {"v", &operands.v, kvRows, &params.v, &params.v_batch_step},
          {"out", &operands.out, blockM, &params.out, &params.out_batch_step}};
}

/// Returns the parameters without the maps.
ForwardParamsSm90 forwardParamsSm90(const Stage& stage, const LaunchOperands& operands, const Device& device,
                                    const WorkspaceView& workspace) {
  ForwardParamsSm90 params{};
  params.base = forwardParams(operands);
  const ForwardParams& base = params.base;
  const auto& config = stage.config;
  const int64_t kvBytes = rowsOfKv(operands) * (config.headDimQk + config.headDimV) * dtypeBytes(operands.k.dtype);
  const int batch = operands.cuSeqlensQ ? 1 : base.batch;
  const int64_t allKvHeads = int64_t(batch) * base.kv_heads;
  const auto [ctas, heads] = *config.cluster;
  params.order.q_tiles = ceilDiv(int(qTilesOf(operands, config.blockM) / batch), ctas / heads);
  params.order.heads = batch * base.q_heads / heads;
  params.order.section = int(sectionOf(allKvHeads, kvBytes, device.l2Bytes) * base.group / heads);
  params.order.counters = static_cast<unsigned*>(workspace.at(Use::Counters));
  return params;
}

/// It needs an arch with Hopper's instructions, 16-bit elements, and blocks of at least its 128 rows.
std::string unservedBySm90(const Request& request) {
  const KernelOptions& options = request.options;
  if (request.arch.capability != 90 || !request.arch.specific) return "needs arch sm_90a";
  const bool isFp8 = options.features.has(Feature::Fp8Q);
  if (options.features.has(Feature::Fp8Kv) && !isFp8) return "takes k and v of e4m3 only with q of e4m3";
  if (options.pageSize && options.pageSize < 8) return "takes pages of 8 rows and more";
  if (options.blockSparse && options.maskQBlock < 128) return "takes block masks with q blocks of 128 or 256";
  return {};
}

/// Returns the facts of the mod; if it chooses, of the one that takes most registers, since a tile computes one.
const analysis::ModFacts& factsOf(const KernelMod& mod) {
  const analysis::ModFacts* most = mod.variants.empty() ? &mod.facts : &mod.variants[0].facts;
  for (const codegen::Variant& variant : mod.variants)
    if (std::pair(variant.facts.weight, variant.facts.form) > std::pair(most->weight, most->form))
      most = &variant.facts;
  return *most;
}

/// The tile for q, k and v of e4m3. No product runs during a warpgroup's softmax but those of others, so three
/// warpgroups gain 4 to 17 %, even where a soft cap or scales of rows spill some registers. Lists may have blocks of
/// 128 rows.
Tile sm90Fp8Tile(const Request& request) {
  const KernelOptions& options = request.options;
  const int widest = std::max(options.headDim, options.headDimV);
  const Weight weight = factsOf(*request.mod).weight;
  if (weight == Weight::Heavy || (weight == Weight::Gather && widest > 128)) return {128, 64, 8};
  const analysis::ScoreForm form = factsOf(*request.mod).form;
  const bool fitsThree = widest <= 64 || weight == Weight::None || weight == Weight::Light ||
                         form == analysis::ScoreForm::Linear || form == analysis::ScoreForm::Tanh;
  if (widest > 128 || options.blockSparse || !fitsThree) return {128, 128, 8};
  return {192, 128, 12};
}

/// A consumer warpgroup has 64 rows. Three warpgroups (192 rows, 160 registers per thread) pay off at head dim 64 if
/// rows need not match a mask's blocks and the mod needs few registers. Addresses of loads for every score take some,
/// and so do addresses of pages, more than four words that the mod keeps of each row, and weight_mods. With lists,
/// blockN divides the block.
Tile sm90Tile(const Request& request) {
  const KernelOptions& options = request.options;
  if (options.features.has(Feature::Fp8Q)) return sm90Fp8Tile(request);
  const int widest = std::max(options.headDim, options.headDimV);
  const Weight weight = factsOf(*request.mod).weight;
  const bool lists = options.blockSparse, heavy = weight == Weight::Heavy, isWeight = request.mod->facts.isWeight;
  if (widest <= 64) {
    if (lists) return {128, 128, 8};
    if (heavy) return {128, 64, 8};
    return options.pageSize || request.mod->source.rowBytes > 16 || isWeight ? Tile{128, 128, 8} : Tile{192, 128, 12};
  }
  if (widest <= 128) return {128, heavy ? 64 : 128, 8};
  if (lists) return {128, 64, 8};
  if (heavy) return {128, widest <= 192 ? 64 : 48, 8};
  if (weight == Weight::Gather || isWeight) return {128, 64, 8}; // what is loaded by column needs shared memory
  return {128, widest > 192 ? 80 : options.headDimV <= 128 ? 128 : 96, 8};
}

/// Mirrors `Memory` of templates/algo/forward_parts_sm90.cuh: rings of tiles in slabs of 128 bytes of columns, their
/// control words, columns of the mod, factors of rows.
int sm90SharedBytes(const codegen::Config& config, int columnBytes) {
  const bool isFp8 = config.fp8.value_or(false);
  const auto tileBytes = [](int rows, int bytes) { return rows * 128 * ((bytes + 127) / 128); };
  const int bytes = isFp8 ? 1 : 2, outBytes = config.qStages > 1 ? 2 * config.headDimV : 0;
  // O leaves through the slot of its Q.
  const int qSlotBytes = tileBytes(config.blockM, std::max(bytes * config.headDimQk, outBytes));
  const int loadedBytes =
      tileBytes(config.blockN, bytes * config.headDimQk) + tileBytes(config.blockN, bytes * config.headDimV);
  const int turnedBytes = isFp8 ? tileBytes(int(llvm::alignTo(config.headDimV, 16)), config.blockN) : 0;
  const int rings = config.qStages * qSlotBytes + config.kvStages * (loadedBytes + turnedBytes);
  // Each slot has a message of 16 or 8 bytes and two barriers. Slots of V have only barriers. O has one barrier per
  // slot of Q. With fp8, slots of K have messages of 16 bytes, and those of loaded V have one of 8. Orders of V have
  // one of 16.
  const int ofK = isFp8 ? config.kvStages * 32 : int(llvm::alignTo(config.kvStages * 24, 16));
  const int ofV = config.kvStages * (isFp8 ? 16 + 24 : 16);
  const bool ordersV = config.pageSize && config.pageSize <= 16 && config.blockN >= 128 && !isFp8 && !columnBytes;
  const int ofOrders = ordersV ? config.kvStages * 32 : 0;
  const int control = config.qStages * 32 + ofK + ofV + ofOrders, ofRows = config.rowScales.value_or(false) ? 8 : 0;
  return int(llvm::alignTo(rings + control + config.qStages * 8, 16)) +
         config.kvStages * config.blockN * (columnBytes + ofRows);
}

/// Checks that tensor maps can describe q, k and v; out is stored 16 bytes at a time.
Status checkSm90Layout(const LaunchOperands& operands) {
  for (auto [name, tensor] :
       {std::pair("q", &operands.q), {"k", &operands.k}, {"v", &operands.v}, {"out", &operands.out}})
    if (Status status =
            checkMappable(name, *tensor, operands.pageTable && (tensor == &operands.k || tensor == &operands.v));
        !status)
      return status;
  return {};
}

Expected<ParameterBlock> sm90Parameters(const Stage& stage, const LaunchOperands& operands, const Device& device,
                                        const WorkspaceView& workspace) {
  ATTNC_TRY(checkSm90Layout(operands));
  ATTNC_TRY(checkCluster(stage.config, operands.problem));
  ForwardParamsSm90 params = forwardParamsSm90(stage, operands, device, workspace);
  ATTNC_TRY(encodeMaps(mapsOf(params, stage, operands), operands));
  if (!operands.columns) return withScales(params, stage, operands);
  const auto& [q, k] = *operands.columns;
  WithColumns<ForwardParamsSm90> wide{params};
  ATTNC_TRY(encodeMaps({{"further columns of q", &q, stage.config.blockM, &wide.q_columns, &wide.q_columns_batch_step},
                        {"further columns of k", &k, stage.config.blockN, &wide.k_columns, &wide.k_columns_batch_step}},
                       operands));
  wide.q_columns_head_step = q.shape[1] > 1;
  wide.k_columns_head_step = k.shape[1] > 1;
  return ParameterBlock(wide);
}

/// A tile, and the CTAs that load K and V for one another.
struct ForwardTile {
  Tile tile;
  codegen::Config::Cluster cluster = {};
};

/// "128x128x8"; a cluster of two: "128x128x8-2heads", "128x128x8-2tiles"
std::string forwardTileText(const ForwardTile& shape) {
  const auto [ctas, heads] = shape.cluster;
  return tileText(shape.tile) + (ctas == 1 ? "" : heads == 1 ? "-2tiles" : "-2heads");
}

/// Returns everything that the shared memory of a launch depends on, for this tile.
codegen::Config sm90Config(const Request& request, const Tile& tile) {
  const KernelOptions& options = request.options;
  const int widest = std::max(options.headDim, options.headDimV);
  codegen::Config config = configOf(options, tile);
  config.fp8 = options.features.has(Feature::Fp8Q);
  config.rowScales = options.features.has(Feature::RowScales);
  config.narrowHeadDim = options.headDim;
  config.cluster.emplace();
  config.qStages = widest <= 128 ? 2 : 1;
  const int columns = int(llvm::alignTo(options.headDimV, 16));
  config.wgmmaShapes = {tile.blockN, *config.fp8 ? out_part_columns(columns, tile.warps) : columns};
  // With 16 bits, wider heads leave no room for a third stage, and a fourth gains nothing.
  for (config.kvStages = widest <= 64 || *config.fp8 ? 3 : 2;; --config.kvStages) {
    config.sharedBytes = sm90SharedBytes(config, request.mod->source.columnBytes);
    if (!*config.fp8 || config.kvStages == 2 || config.sharedBytes <= request.arch.sharedBytesPerCta()) break;
  }
  return config;
}

/// Returns the model's tile, then others that are faster for some mod or mask.
std::vector<Tile> sm90Tiles(const Request& request) {
  const KernelOptions& options = request.options;
  const int widest = std::max(options.headDim, options.headDimV);
  Tile own = sm90Tile(request);
  if (sm90Config(request, own).sharedBytes > request.arch.sharedBytesPerCta())
    own = {128, std::min(own.blockN, 128), 8};
  if (options.blockSparse) own.blockN = std::min(own.blockN, options.maskKvBlock);
  if (options.pageSize) own.blockN = int(std::bit_floor(unsigned(own.blockN))); // whole pages, or a part of one
  std::vector<Tile> tiles{own};
  const auto add = [&](const Tile& tile) {
    if (options.blockSparse && options.maskKvBlock % tile.blockN) return;
    if ((options.blockSparse || options.pageSize) && !std::has_single_bit(unsigned(tile.blockN))) return;
    if (tile != own && sm90Config(request, tile).sharedBytes <= request.arch.sharedBytesPerCta()) tiles.push_back(tile);
  };
  const bool isFp8 = options.features.has(Feature::Fp8Q);
  if (isFp8) {
    if (widest <= 128 && !options.blockSparse) add({192, 128, 12});
    for (int blockN : {128, 64}) add({128, blockN, 8});
    return tiles;
  }
  if (widest <= 64 && !options.blockSparse && !options.pageSize && factsOf(*request.mod).weight != Weight::Heavy)
    for (int blockN : {128, 96, 64}) add({192, blockN, 12});
  const int most = widest <= 128 || (widest <= 192 && options.headDimV <= 128) ? 128 : widest <= 192 ? 96 : 80;
  for (int blockN : {128, 112, 96, 80, 64, 48})
    if (blockN <= most) add({128, blockN, 8});
  return tiles;
}

/// Returns the tiles of one CTA, then those of two that walk the same steps and load K and V for one another: tiles of
/// two heads that a mask does not tell apart, or of one head without a mask. Heads up to 64 load too little for that.
std::vector<ForwardTile> forwardTiles(const Request& request) {
  const KernelOptions& options = request.options;
  const KernelMod& mod = *request.mod;
  std::vector<ForwardTile> tiles;
  for (const Tile& tile : sm90Tiles(request)) tiles.push_back({tile});
  const bool hasClusters = !options.blockSparse && !options.pageSize && !options.features.has(Feature::Ragged) &&
                           !options.features.has(Feature::Fp8Q) && !mod.source.columnBytes && !request.widens;
  if (!hasClusters || std::max(options.headDim, options.headDimV) <= 64) return tiles;
  const Tile own = tiles.front().tile;
  if (!mod.facts.masksByHead) tiles.push_back({own, {.ctas = 2, .heads = 2}});
  if (!mod.facts.masks) tiles.push_back({own, {.ctas = 2, .heads = 1}});
  return tiles;
}

/// Whether tiles of 192 rows leave too many idle, so that tiles of 128 do better. Where the first tile begins in front
/// of row 0, its rows are copied one by one. Among walks as short as q, that costs more than the larger tile gains.
bool isShort(const Request& request, const WalkFacts& facts) {
  constexpr int64_t kFew = 256, kFewIfAnchored = 640;
  const Features& features = request.options.features;
  if (features.has(Feature::Ragged) || features.has(Feature::Fp8Q)) return false;
  const bool isAnchored = request.mod->facts.kvEdges && !request.mod->facts.drops;
  if (facts.rows <= kFew) return llvm::alignTo(facts.rows, 192) > llvm::alignTo(facts.rows, 128);
  return isAnchored && facts.rows <= kFewIfAnchored && facts.rows % 192 && facts.columns <= facts.rows;
}

/// Takes fewer rows for a short q, and for a narrow window: its walks are so short that more rows in a tile mean more
/// dead scores, which cost more than the loads that they save. Takes two heads if they share K and V, unless walks are
/// short; or two tiles, unless they are few and odd, so that one of the last two has no rows.
std::string tileOfLaunchSm90(const Request& request, const WalkFacts& facts) {
  constexpr int64_t kNarrow = 640, kShort = 512, kMany = 16;
  const std::vector<ForwardTile> tiles = forwardTiles(request);
  const int blockM = tiles.front().tile.blockM;
  if (blockM > 128 && ((facts.isWindow && facts.columns <= kNarrow) || isShort(request, facts)))
    return tileText({128, 128, 8});
  const int64_t count = ceilDiv(facts.rows, blockM);
  for (const ForwardTile& shape : tiles)
    if (shape.cluster.heads == 2 ? facts.group % 2 == 0 && facts.columns >= kShort
                                 : shape.cluster.ctas == 2 && (count % 2 == 0 || count >= kMany))
      return forwardTileText(shape);
  return "";
}

std::vector<std::string> sm90Candidates(const Request& request) {
  return spelledAll(forwardTiles(request), forwardTileText);
}

/// Returns a CTA for each tile, in whole clusters, up to one a multiprocessor. An odd number of tiles of a head has one
/// without rows.
int64_t perTileOrCluster(const Stage& stage, const LaunchOperands& operands, const Device& device) {
  const auto [ctas, heads] = *stage.config.cluster;
  const int64_t batch = std::max<int64_t>(operands.cuSeqlensQ ? 1 : operands.problem.batch, 1);
  const int64_t perHead = batch * ceilDiv(qTilesOf(operands, stage.config.blockM) / batch, ctas / heads);
  return ctas *
         std::min<int64_t>(operands.problem.qHeads / heads * perHead, std::max(device.multiprocessors / ctas, 1));
}

Plan planSm90(const Request& request) {
  const KernelOptions& options = request.options;
  const auto [tile, cluster] = chosenOf(forwardTiles(request), options, forwardTileText);
  codegen::Config config = sm90Config(request, tile);
  config.cluster = cluster;
  Plan plan;
  plan.tile = forwardTileText({tile, cluster});
  plan.stages.push_back({.templateName = "forward_sm90.cu",
                         .entry = "attnc_forward",
                         .config = std::move(config),
                         .algebra = algebraFor(options),
                         .threads = 128 + 32 * tile.warps,
                         .ctas = perTileOrCluster,
                         .parameters = sm90Parameters});
  plan.workspace.push_back(tileCounters());
  return plan;
}

} // namespace

Status checkCluster(const codegen::Config& config, const ProblemShape& problem) {
  const int heads = config.cluster ? config.cluster->heads : 1;
  if (heads == 1 || problem.qHeads / std::max<int64_t>(problem.kvHeads, 1) % heads == 0) return {};
  return Error::environment(fmt::format("the tile wants {} query heads, or a multiple, for each KV head", heads));
}

const FamilyRow kForwardSm90{.kind = KernelKind::Forward,
                             .family = Family::Sm90,
                             .arch = "sm_90a",
                             .madeFor = 90,
                             .walksBounds = true,
                             .takesProbMods = FamilyRow::ProbMods::All,
                             .takesWeightMods = true,
                             .takes = {Feature::Lengths, Feature::Offsets, Feature::Pages, Feature::Appends,
                                       Feature::Ragged, Feature::BlockMask, Feature::RowMax, Feature::Fp8Kv,
                                       Feature::Fp8Q, Feature::RowScales},
                             .unserved = unservedBySm90,
                             .plan = planSm90,
                             .candidates = sm90Candidates,
                             .tileOfLaunch = tileOfLaunchSm90,
                             .layouts = "rows aligned to 16 bytes, strides above 0 (of the batch: 0, too)",
                             .checkLayout = checkSm90Layout};

} // namespace attnc::plan
