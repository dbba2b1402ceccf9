// The tiles here are measured ones: bench/NOTES.md has the figures behind them.
#include "kernels/catalog.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnc::kernels {
namespace {

struct Tile {
  int blockM, blockN, warps;
};

int roundUp(int x, int multiple) { return (x + multiple - 1) / multiple * multiple; }

/// As PaddedTile of templates/tile/shared_tile.cuh: rows of whole 16-column groups, padded by 16 bytes.
int64_t rowBytes(int headDim, DType dtype) { return roundUp(headDim, 16) * dtypeBytes(dtype) + 16; }

int64_t sm80SharedBytes(const Tile& tile, const KernelOptions& options) {
  const int64_t qk = rowBytes(options.headDim, options.dtype), v = rowBytes(options.headDimV, options.dtype);
  return tile.blockM * std::max(qk, v) + tile.blockN * (qk + v);
}

/// How many registers a mod takes beside the tile.
enum class Weight {
  None,   ///< no mod
  Light,  ///< scores pass unchanged, and mask_mod is a few comparisons
  Medium, ///< arithmetic on every score
  Gather, ///< captured tensors by column
  Heavy,  ///< a gather or an angle for every score
};

/// Whether scores take a sin, cos or tan each. Its reduction of large angles is long beside the score: narrow tiles have
/// fewer copies of it to compile.
bool takesAngles(const ir::Module& module) {
  const std::vector<ir::Level> levels = ir::levels(module);
  for (uint32_t id = 0; id < module.size(); ++id) {
    const ir::Op op = module[{id}].op;
    const bool isAngle = op == ir::Op::Sin || op == ir::Op::Cos || op == ir::Op::Tan;
    if (isAngle && levels[id] == ir::Level::Element) return true;
  }
  return false;
}

Weight weightOf(const ir::Module& module, const KernelOptions& options) {
  const auto isScore = [&](ir::Value value) {
    return module[value].op == ir::Op::Param && ir::ParamKind(module[value].attr) == ir::ParamKind::Score;
  };
  const bool scoreChanges = module.scoreMod && !isScore(*module.scoreMod);
  if (ir::hasLoad(module, ir::Level::Element) || takesAngles(module)) return Weight::Heavy;
  if (ir::hasLoad(module, ir::Level::Column)) return Weight::Gather;
  constexpr size_t kLightMask = 12; // operations, leaves included: causal, window, prefix
  const bool maskIsLight = !module.maskMod || (module.tensors.empty() && module.size() <= kLightMask);
  if (options.rowMax || scoreChanges || !maskIsLight) return Weight::Medium;
  return module.maskMod ? Weight::Light : Weight::None;
}

/// Registers hold the tile's scores and a warp's rows of the output. 255 a thread allow 128x64 with four warps at head dim
/// 128 only without a mod, 48 columns if the mod needs next to nothing (ptxas for sm_100 and later needs more than
/// before, and the walk along lists some); a gather for every score leaves room for one group of 16 rows a warp. From head
/// dim 192 on the rows are dealt to eight warps.
Tile sm80Tile(const KernelOptions& options, const Arch& arch, Weight weight) {
  const int widest = std::max(options.headDim, options.headDimV);
  const bool smallShared = arch.sharedBytesPerCta() < 128 * 1024;
  if (options.dtype == DType::F32) return widest > 192 && smallShared ? Tile{64, 16, 4} : Tile{64, 32, 4};
  if (widest <= 64) return {128, weight == Weight::Heavy ? 32 : 64, 4};
  if (widest <= 128) {
    if (weight == Weight::Heavy) return {64, arch.capability < 100 ? 64 : 32, 4};
    if (weight > Weight::Light || arch.capability >= 100 || options.blockSparse) return {128, 32, 4};
    return {128, weight == Weight::Light ? 48 : 64, 4};
  }
  if (smallShared || weight == Weight::Heavy) return {64, 32, 4};
  return {128, weight <= Weight::Light ? 64 : 32, 8};
}

/// Whether the sm90 family serves a request: its instructions, 16-bit elements, blocks of at least its 128 rows.
bool servedBySm90(const KernelOptions& options, const Arch& arch) {
  return arch.capability == 90 && arch.specific && options.dtype != DType::F32 &&
         !(options.blockSparse && options.maskQBlock < 128);
}

/// The Hopper tile: rows of 64 per consumer warpgroup. Three of them (192 rows, 160 registers a thread) pay at head dim 64
/// as long as rows need not match the blocks of a mask, and the mod gets by with the registers: the addresses of loads for
/// every score take some. With lists blockN divides the block.
Tile sm90Tile(const ir::Module& module, const KernelOptions& options) {
  const int widest = std::max(options.headDim, options.headDimV);
  const Weight weight = weightOf(module, options);
  const bool lists = options.blockSparse, heavy = weight == Weight::Heavy;
  if (widest <= 64) {
    if (lists) return {128, 128, 8};
    return heavy ? Tile{128, 64, 8} : Tile{192, 128, 12};
  }
  if (widest <= 128) return {128, heavy ? 64 : 128, 8};
  if (lists) return {128, 64, 8};
  if (heavy) return {128, widest <= 192 ? 64 : 48, 8};
  if (weight == Weight::Gather) return {128, 64, 8}; // shared memory for what is loaded by column
  return {128, widest <= 192 ? 96 : 80, 8};
}

void chooseSm90Tile(Plan& plan, const ir::Module& module) {
  const KernelOptions& options = plan.options;
  const int widest = std::max(options.headDim, options.headDimV);
  Tile tile = sm90Tile(module, options);
  if (options.blockSparse) tile.blockN = std::min(tile.blockN, options.maskKvBlock);
  plan.blockM = tile.blockM;
  plan.blockN = tile.blockN;
  plan.warps = tile.warps;
  plan.threads = 128 + 32 * tile.warps;
  plan.stages = widest <= 64 ? 3 : 2; // a third has no room beyond, and a fourth gains nothing
  plan.qStages = widest <= 128 ? 2 : 1;
  // As `Memory` of templates/forward_sm90.cu: rings of tiles in slabs of 64 columns, then control words.
  const auto tileBytes = [](int rows, int dim) { return int64_t(rows) * 128 * ((dim + 63) / 64); };
  const int qSlotDim = plan.qStages > 1 ? widest : options.headDim; // O leaves through the slot of its Q
  const int64_t kvBytes = tileBytes(tile.blockN, options.headDim) + tileBytes(tile.blockN, options.headDimV);
  plan.sharedBytes = plan.qStages * tileBytes(tile.blockM, qSlotDim) + plan.stages * kvBytes;
  plan.sharedBytes += plan.qStages * 32 + roundUp(plan.stages * 24, 16) + plan.stages * 16 + plan.qStages * 8;
}

Status checkBlocks(const KernelOptions& options) {
  for (int size : {options.maskQBlock, options.maskKvBlock})
    if (size != 64 && size != 128 && size != 256)
      return Error::environment(fmt::format("block mask with blocks of {} is not supported", size),
                                "block sizes are 64, 128 and 256");
  return {};
}

Status checkForward(const KernelOptions& options) {
  if (options.dtype != DType::BF16 && options.dtype != DType::F16 && options.dtype != DType::F32)
    return Error::environment(fmt::format("q, k and v of {} are not supported", dtypeName(options.dtype)),
                              "bf16, f16 and f32 are");
  for (int dim : {options.headDim, options.headDimV})
    if (dim < 8 || dim > 256 || dim % 8)
      return Error::environment(fmt::format("head dim {} is not supported", dim), "multiples of 8 from 8 to 256 are");
  if (options.tf32 && options.dtype != DType::F32)
    return Error::environment("tf32 is an option of f32 kernels alone");
  return options.blockSparse ? checkBlocks(options) : Status();
}

Expected<Plan> planForward(const ir::Module& module, Plan plan, const Arch& arch) {
  KernelOptions& options = plan.options;
  if (Status status = checkForward(options); !status) return status.error();
  if (options.family == Family::Auto) options.family = servedBySm90(options, arch) ? Family::Sm90 : Family::Sm80;
  plan.entry = "attnc_forward";
  Tile tile{8, 32, 8}; // of the naive kernel; kept in forward_naive.cu
  switch (options.family) {
  case Family::Naive: plan.templateName = "forward_naive.cu"; break;
  case Family::Sm80:
    plan.templateName = "forward_sm80.cu";
    tile = sm80Tile(options, arch, weightOf(module, options));
    if (options.blockSparse && options.maskQBlock < tile.blockM) tile = {64, tile.blockN, 4};
    plan.sharedBytes = sm80SharedBytes(tile, options);
    break;
  case Family::Sm90:
    if (!servedBySm90(options, arch))
      return Error::environment("the sm90 family does not serve this request",
                                "it takes arch sm_90a, bf16 or fp16, and block masks with q blocks of 128 or 256");
    plan.templateName = "forward_sm90.cu";
    chooseSm90Tile(plan, module);
    return plan;
  case Family::Auto: return Error::internal("no family was chosen");
  }
  plan.blockM = tile.blockM;
  plan.blockN = tile.blockN;
  plan.warps = tile.warps;
  plan.threads = 32 * tile.warps;
  return plan;
}

Expected<Plan> planBlockMask(Plan plan) {
  plan.options.family = Family::Naive;
  plan.templateName = "block_mask.cu";
  plan.entry = "attnc_block_mask";
  plan.warps = 16;
  plan.threads = 32 * plan.warps;
  return plan;
}

} // namespace

Expected<Plan> choosePlan(const ir::Module& module, const KernelOptions& options) {
  Plan plan;
  plan.options = options;
  if (plan.options.headDimV == 0) plan.options.headDimV = plan.options.headDim;
  Expected<Arch> arch = parseArch(options.arch);
  if (!arch) return arch.error();
  switch (options.kind) {
  case KernelKind::Forward: return planForward(module, std::move(plan), *arch);
  case KernelKind::BlockMask: return planBlockMask(std::move(plan));
  }
  return Error::internal("unknown kind of kernel");
}

} // namespace attnc::kernels
