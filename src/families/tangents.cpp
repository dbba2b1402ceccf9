#include "families/tangents.h"

#include "families/backward_delta.h"
#include "launch/tensor_maps.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/Support/MathExtras.h>

#include <algorithm>
#include <tuple>

namespace attnc::plan {

TangentParams tangentParams(const LaunchOperands& operands, const WorkspaceView& workspace) {
  TangentParams params = tangentParams(operands, backwardParams(operands, workspace));
  params.t_delta = static_cast<float*>(workspace.at(Use::TangentDelta));
  return params;
}

Status checkTangentsSm90Layout(const LaunchOperands::Tangents& tangents) {
  for (auto [name, tensor] : {std::pair("the tangent of q", &tangents.q),
                              {"the tangent of k", &tangents.k},
                              {"the tangent of v", &tangents.v},
                              {"the tangent of out", &tangents.out}})
    ATTNC_TRY(checkMappable(name, *tensor));
  return {};
}

namespace {

Expected<ParameterBlock> tangentBlock(const Stage&, const LaunchOperands& operands, const Device&,
                                      const WorkspaceView& workspace) {
  return ParameterBlock(tangentParams(operands, workspace));
}

constexpr int kWidestOfTiles = 128; // head dim of tangents_q_sm80.cu and tangents_q_sm90.cu

Expected<ParameterBlock> tangentBlockSm90(const Stage& stage, const LaunchOperands& operands, const Device&,
                                          const WorkspaceView& workspace) {
  ATTNC_TRY(kBackwardSm90.checkLayout(operands));
  TangentParamsSm90 params{};
  params.base = tangentParams(operands, workspace);
  const LaunchOperands::Tangents& tangents = *operands.tangents;
  const int blockM = stage.config.blockM, blockN = stage.config.blockN;
  std::vector<MapPlace> places{{"d_out", &operands.dOut, blockM, &params.d_out, &params.d_out_batch_step}};
  for (auto [name, own, tangent, rows, maps] : {std::tuple("q", &operands.q, &tangents.q, blockM, &params.q),
                                                {"k", &operands.k, &tangents.k, blockN, &params.k},
                                                {"v", &operands.v, &tangents.v, blockN, &params.v}}) {
    places.push_back({name, own, rows, &maps->own, &maps->own_batch_step});
    places.push_back({name, tangent, rows, &maps->tangent, &maps->tangent_batch_step});
  }
  ATTNC_TRY(encodeMaps(places, operands));
  return ParameterBlock(params);
}

/// Returns the config of a kernel that owns 128 rows of q, or of k and v. Mirrors `Memory` of templates/
/// tangents_q_sm90.cu and tangents_kv_sm90.cu.
codegen::Config tangentConfigSm90(const KernelOptions& options, bool ownsKv) {
  codegen::Config config = configOf(options, ownsKv ? Tile{32, 128, 8} : Tile{128, 64, 8});
  config.kvStages = ownsKv ? 3 : 2;
  if (ownsKv) config.qStages = 3;
  const int qk = int(llvm::alignTo(options.headDim, 16)), v = int(llvm::alignTo(options.headDimV, 16));
  config.wgmmaShapes = {ownsKv ? config.blockM : config.blockN, qk, v};
  const auto rowBytes = [](int dim) { return 128 * ((dim + 63) / 64); };
  const int ofQ = 2 * rowBytes(options.headDim), ofO = rowBytes(options.headDimV), ofKv = ofQ + 2 * ofO;
  config.sharedBytes = ownsKv ? 128 * ofKv + 3 * 32 * (ofQ + ofO + 20) + 3 * 32 + 3 * 16 + 8
                              : 128 * (ofQ + ofO) + 2 * 64 * ofKv + 2 * 24 + 2 * 16 + 8;
  return config;
}

/// Returns the config of a kernel that owns 64 rows, and takes `step` of the other axis at a time. Mirrors `Memory` of
/// templates/algo/tangents_mma.cuh.
codegen::Config tangentConfigSm80(const KernelOptions& options, bool ownsKv) {
  const int step = options.dtype != DType::F32 && !ownsKv ? 32 : 16;
  codegen::Config config = configOf(options, ownsKv ? Tile{step, 64, 4} : Tile{64, step, 4});
  const int qk = paddedRowBytes(config.headDimQk, config.dtype), v = paddedRowBytes(config.headDimV, config.dtype);
  config.sharedBytes = config.blockM * (2 * qk + v) + config.blockN * 2 * (qk + v);
  return config;
}

} // namespace

std::string unservedTangents(const Request& request, Family family) {
  const KernelOptions& options = request.options;
  if (options.features.has(Feature::Ragged)) return "takes no tangents in ragged batches";
  if (options.features.has(Feature::Lengths) || options.offsets != QueryOffsets::None)
    return "takes no tangents with KV lengths or offsets of queries";
  if (family == Family::Naive) return {};
  if (family == Family::Sm90 && options.blockSparse && std::min(options.maskQBlock, options.maskKvBlock) < 128)
    return "takes tangents with block masks of blocks of 128 or 256";
  const int widest = std::max(options.headDim, options.headDimV),
            most = options.dtype == DType::F32 ? kWidestOfTiles / 2 : kWidestOfTiles;
  return widest > most ? fmt::format("takes tangents of {} of head dims up to {}", dtypeName(options.dtype), most) : "";
}

Plan planTangents(const Request& request, Family family) {
  const bool isNaive = family == Family::Naive;
  const codegen::Config oracle = configOf(request.options, {8, 8, 8}); // equals the tile of tangents_naive.cu
  Plan plan;
  const auto add = [&](const char* file, const char* entry, const codegen::Config& config, const CountCtas& ctas,
                       bool forCaptures, const MakeParameters& parameters = tangentBlock) {
    plan.stages.push_back({.templateName = file,
                           .entry = entry,
                           .config = config,
                           .forCaptures = forCaptures,
                           .threads = 32 * config.warps,
                           .ctas = ctas,
                           .parameters = parameters});
  };
  if (isNaive) {
    add("backward_naive.cu", "attnc_backward_sums", oracle, perQRow, true, backwardBlock);
    add("tangents_naive.cu", "attnc_tangent_rows", oracle, perQRow, true);
    add("tangents_naive.cu", "attnc_tangent_q", oracle, perQRow, false);
    add("tangents_naive.cu", "attnc_tangent_kv", oracle, perKvRow, false);
  } else {
    const bool isSm90 = family == Family::Sm90;
    const auto configure = isSm90 ? tangentConfigSm90 : tangentConfigSm80;
    const char* const ofQ = isSm90 ? "tangents_q_sm90.cu" : "tangents_q_sm80.cu";
    const char* const ofKv = isSm90 ? "tangents_kv_sm90.cu" : "tangents_kv_sm80.cu";
    const MakeParameters parameters = isSm90 ? tangentBlockSm90 : tangentBlock;
    add(ofQ, "attnc_tangent_rows", configure(request.options, false), perQTile, true, parameters);
    add(ofQ, "attnc_tangent_q", configure(request.options, false), perQTile, false, parameters);
    add(ofKv, "attnc_tangent_kv", configure(request.options, true), perKvTile, false, parameters);
    if (isSm90)
      for (Stage& stage : plan.stages) stage.threads += 128;
    // Gradients of captures come from the oracle, whose weights are normalised by its own sums.
    if (!request.mod->captures.empty())
      add("backward_naive.cu", "attnc_backward_sums", oracle, perQRow, true, backwardBlock);
  }
  plan.workspace = {rowSums(), deltas(Use::Delta), deltas(Use::TangentDelta)};
  return plan;
}

} // namespace attnc::plan
