// Few queries over long KV, with mma.sync and cp.async.
#include "plan/decode_parts.h"
#include "plan/family.h"

#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace attnc::plan {
namespace {

/// As PaddedTile of templates/tile/shared_tile.cuh.
int paddedBytes(int headDim) { return int(llvm::alignTo(headDim, 16)) * 2 + 16; }

/// As `Memory` of templates/decode_sm80.cu.
int decodeSharedBytes(const Tile& tile, int stages, const KernelOptions& options) {
  const int qk = paddedBytes(options.headDim), v = paddedBytes(options.headDimV);
  const int sums = tile.warps * 16 * 4 * (int(llvm::alignTo(options.headDimV, 16)) + 4);
  return tile.blockM * qk + std::max(stages * tile.blockN * (qk + v), sums);
}

/// Beside its dynamic shared memory.
constexpr int kStaticBytes = 64, kReservedBytes = 1024;

struct DecodeTile {
  Tile tile;
  int stages, sharedBytes;
};

/// As many rows as asked for, fewer where these do not fit. Steps of 64 columns, of 32 where these do not fit twice; as many stages as leave room for a second CTA, at least two
/// and no more than four, which are more bytes under way than memory needs. nullopt: it does not fit.
std::optional<DecodeTile> decodeTile(const KernelOptions& options, const Arch& arch) {
  const int64_t most = arch.sharedBytesPerCta();
  for (int rows = options.packedRows; rows >= 16; rows /= 2)
    for (int columns : {64, 32}) {
      const Tile tile{rows, columns, std::min(4, rows / 16 * (columns / 16))};
      for (int64_t bytes : {(most - kReservedBytes) / 2, most})
        for (int stages = 4; stages >= (bytes == most ? 2 : 3); --stages)
          if (const int shared = decodeSharedBytes(tile, stages, options); shared + kStaticBytes <= bytes)
            return DecodeTile{tile, stages, shared};
    }
  return std::nullopt;
}

std::string unservedByDecode(const Request& request) {
  const KernelOptions& options = request.options;
  if (options.dtype == DType::F32) return "takes bf16 and fp16";
  if (options.blockSparse) return "takes no block mask";
  if (!decodeTile(options, request.arch)) return "has no room for this tile in shared memory";
  return {};
}

/// A counter an item.
template <int Rows> size_t arrivedBytes(const LaunchOperands& operands) {
  return sizeof(int) * size_t(packedTiles(operands, Rows));
}

int64_t partRows(const LaunchOperands& operands, int rows) {
  const ProblemShape& problem = operands.problem;
  return problem.kvHeads ? std::min<int64_t>(problem.qLen * (problem.qHeads / problem.kvHeads), rows) : 0;
}

/// Two parts a CTA: O, then states.
template <int Rows> size_t partBytes(const LaunchOperands& operands) {
  return sizeof(float) * size_t(2 * mostParts(operands, Rows) * partRows(operands, Rows) * (operands.v.shape[3] + 4));
}

Expected<ParameterBlock> decodeParameters(const Stage& stage, const LaunchOperands& operands, const Device& device,
                                          const WorkspaceView& workspace) {
  DecodeParams params{};
  params.forward = forwardParams(operands);
  params.part_rows = int(partRows(operands, stage.config.blockM));
  params.arrived = static_cast<int*>(workspace.at(Use::Counters));
  params.part_out = static_cast<float*>(workspace.at(Use::Parts));
  const int64_t ctas = ctasOf(stage, operands, device);
  if (params.part_out) params.part_state = params.part_out + 2 * ctas * params.part_rows * operands.v.shape[3];
  return withCache(params, stage, operands);
}

Plan planDecode(const Request& request) {
  const KernelOptions& options = request.options;
  const DecodeTile tile = *decodeTile(options, request.arch);
  codegen::Config config = configOf(options, tile.tile);
  config.appends = options.appends;
  config.kvStages = tile.stages;
  config.sharedBytes = tile.sharedBytes;
  const int64_t ofCta = tile.sharedBytes + kStaticBytes + kReservedBytes;
  Plan plan;
  plan.stages.push_back({.templateName = "decode_sm80.cu",
                         .entry = "attnc_decode",
                         .config = std::move(config),
                         .algebra = algebraFor(options.dtype),
                         .threads = 32 * tile.tile.warps,
                         .ctasAtOnce = int(std::min<int64_t>((request.arch.sharedBytesPerCta() + kReservedBytes) / ofCta, 3)),
                         .grid = Grid::Parts,
                         .parameters = decodeParameters});
  const auto add = [&](Use use, size_t (*bytes)(const LaunchOperands&), WorkspaceUse::Zeroed zeroed) {
    plan.workspace.push_back({.use = use, .bytes = bytes, .zeroed = zeroed, .isOptional = true});
  };
  const int rows = tile.tile.blockM;
  using Zeroed = WorkspaceUse::Zeroed;
  add(Use::Counters, rows == 16 ? arrivedBytes<16> : rows == 32 ? arrivedBytes<32> : arrivedBytes<64>, Zeroed::Once);
  add(Use::Parts, rows == 16 ? partBytes<16> : rows == 32 ? partBytes<32> : partBytes<64>, Zeroed::Never);
  return plan;
}

} // namespace

const FamilyRow kDecodeSm80{.kind = KernelKind::Decode,
                            .family = Family::Sm80,
                            .walksBounds = true,
                            .unserved = unservedByDecode,
                            .plan = planDecode,
                            .layouts = "any strides, the last one 1",
                            .checkLayout = takesAnyLayout};

} // namespace attnc::plan
