// mma.sync and cp.async: serves everything. The tiles were measured: bench/notes/forward.md has the figures.
#include "families/family.h"

#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace attnc::plan {
namespace {

DType inputOf(const KernelOptions& options) {
  return options.features.has(Feature::Fp8Q) ? DType::E4M3 : options.dtype;
}

/// Mirrors `Memory` of templates/forward_sm80.cu.
int sm80SharedBytes(const Tile& tile, const KernelOptions& options) {
  const DType input = inputOf(options);
  const int qk = paddedRowBytes(options.headDim, input), v = paddedRowBytes(options.headDimV, input);
  return tile.blockM * std::max(qk, paddedRowBytes(options.headDimV, options.dtype)) + tile.blockN * (qk + v);
}

/// Registers hold the tile's scores and a warp's rows of the output. At head dim 128, 255 registers per thread allow
/// 128x64 with four warps only without a mod, and 48 columns if the mod needs next to nothing. (For sm_100 and later,
/// ptxas needs more registers than before, and so does the walk along lists.) A gather for every score leaves room for
/// one group of 16 rows per warp. From head dim 192 on, the rows are dealt to eight warps.
Tile sm80Tile(const Request& request) {
  const KernelOptions& options = request.options;
  const Arch& arch = request.arch;
  const int widest = std::max(options.headDim, options.headDimV);
  const bool smallShared = arch.sharedBytesPerCta() < 128 * 1024, isHeavy = request.mod->facts.weight == Weight::Heavy;
  const bool isPlain = options.features.empty() && options.offsets == QueryOffsets::None;
  // lengths and starts also take registers, and so do lists over pages
  const bool isTight = options.features.has(Feature::Ragged) &&
                       (request.mod->facts.weight > Weight::Light || (options.blockSparse && options.pageSize));
  const Weight weight = isPlain ? request.mod->facts.weight : std::max(request.mod->facts.weight, Weight::Medium);
  if (options.dtype == DType::F32) return widest > 192 && smallShared ? Tile{64, 16, 4} : Tile{64, 32, 4};
  if (widest <= 64) return {128, isHeavy ? 32 : 64, 4};
  if (widest <= 128) {
    if (isHeavy || isTight) return {64, arch.capability < 100 ? 64 : 32, 4};
    if (weight > Weight::Light || arch.capability >= 100 || options.blockSparse) return {128, 32, 4};
    return {128, weight == Weight::Light ? 48 : 64, 4};
  }
  if (smallShared || isHeavy) return {64, 32, 4};
  return {128, weight <= Weight::Light ? 64 : 32, 8};
}

/// The tile for q, k and v of e4m3. A warp has 16 rows, since sums that are not yet added to O take registers. It was
/// chosen by these, and not measured.
Tile sm80Fp8Tile(const Request& request) {
  const KernelOptions& options = request.options;
  const Weight weight = request.mod->facts.weight;
  const int widest = std::max(options.headDim, options.headDimV);
  const bool isPlain = options.features.without({Feature::Fp8Q, Feature::Fp8Kv}).empty() && !options.blockSparse &&
                       !options.pageSize && options.offsets == QueryOffsets::None && weight <= Weight::Light;
  const bool hasRoom = widest <= 64 ? weight != Weight::Heavy : widest <= 128 && isPlain;
  return {64, hasRoom ? 64 : 32, 4};
}

/// Returns the model's tile, then others that are faster for some mod or mask.
std::vector<Tile> sm80Tiles(const Request& request) {
  const KernelOptions& options = request.options;
  const int widest = std::max(options.headDim, options.headDimV);
  const bool smallBlocks = options.blockSparse && options.maskQBlock < 128;
  const bool isFp8 = options.features.has(Feature::Fp8Q);
  Tile own = isFp8 ? sm80Fp8Tile(request) : sm80Tile(request);
  if (options.blockSparse && options.maskQBlock < own.blockM) own = {64, own.blockN, 4};
  std::vector<Tile> tiles{own};
  const auto add = [&](const Tile& tile) {
    if (tile == own || (smallBlocks && tile.blockM > options.maskQBlock)) return;
    if (sm80SharedBytes(tile, options) <= request.arch.sharedBytesPerCta()) tiles.push_back(tile);
  };
  if (options.dtype == DType::F32) {
    for (int blockN : {32, 16}) add({64, blockN, 4});
    return tiles;
  }
  const int warps = widest <= 128 && !isFp8 ? 4 : 8; // for 128 rows
  for (const Tile& tile : {Tile{128, 64, warps}, Tile{128, 32, warps}, Tile{64, 64, 4}, Tile{64, 32, 4}}) add(tile);
  return tiles;
}

std::string unservedBySm80(const Request& request) {
  const KernelOptions& options = request.options;
  if (!options.features.has(Feature::Fp8Kv)) return {};
  if (!options.features.has(Feature::Fp8Q)) return "takes k and v of e4m3 only with q of e4m3";
  return request.arch.capability < 89 ? "takes q, k and v of e4m3 on GPUs from sm_89 on" : "";
}

std::vector<std::string> sm80Candidates(const Request& request) { return spelledAll(sm80Tiles(request), tileText); }

Expected<ParameterBlock> sm80Parameters(const Stage& stage, const LaunchOperands& operands, const Device&,
                                        const WorkspaceView&) {
  return withScales(forwardParams(operands), stage, operands);
}

Plan planSm80(const Request& request) {
  const KernelOptions& options = request.options;
  const Tile tile = chosenOf(sm80Tiles(request), options, tileText);
  codegen::Config config = configOf(options, tile);
  config.fp8 = options.features.has(Feature::Fp8Q);
  config.sharedBytes = sm80SharedBytes(tile, options);
  Plan plan;
  plan.stages.push_back({.templateName = "forward_sm80.cu",
                         .entry = "attnc_forward",
                         .config = std::move(config),
                         .algebra = algebraFor(options),
                         .threads = 32 * tile.warps,
                         .ctas = perQTile,
                         .parameters = sm80Parameters});
  return plan;
}

} // namespace

const FamilyRow kForwardSm80{.kind = KernelKind::Forward,
                             .family = Family::Sm80,
                             .walksBounds = true,
                             .takesProbMods = FamilyRow::ProbMods::All,
                             .takesWeightMods = true,
                             .takes = {Feature::Lengths, Feature::Offsets, Feature::Pages, Feature::Appends,
                                       Feature::Ragged, Feature::BlockMask, Feature::F32, Feature::RowMax,
                                       Feature::Fp8Kv, Feature::Fp8Q},
                             .unserved = unservedBySm80,
                             .plan = planSm80,
                             .candidates = sm80Candidates,
                             .layouts = "any strides, the last one 1",
                             .checkLayout = takesAnyLayout};

} // namespace attnc::plan
