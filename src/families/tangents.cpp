#include "families/tangents.h"

#include "families/backward_delta.h"

#include <fmt/format.h>
#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace attnc::plan {

TangentParams tangentParams(const LaunchOperands& operands, const WorkspaceView& workspace) {
  TangentParams params = tangentParams(operands, backwardParams(operands, workspace));
  params.t_delta = static_cast<float*>(workspace.at(Use::TangentDelta));
  return params;
}

namespace {

Expected<ParameterBlock> tangentBlock(const Stage&, const LaunchOperands& operands, const Device&,
                                      const WorkspaceView& workspace) {
  return ParameterBlock(tangentParams(operands, workspace));
}

constexpr int kWidestOfTiles = 128; // head dim of tangents_q_sm80.cu

/// Returns the config of a kernel that owns 64 rows, and takes `step` of the other axis at a time. Mirrors `Memory` of
/// templates/algo/tangents_mma.cuh.
codegen::Config sm80Config(const KernelOptions& options, bool ownsKv) {
  const int widest = std::max(options.headDim, options.headDimV);
  const int step = options.dtype != DType::F32 && !ownsKv ? 32 : 16;
  codegen::Config config = configOf(options, ownsKv ? Tile{step, 64, 4} : Tile{64, step, 4});
  const auto rowBytes = [&](int dim) { return int(llvm::alignTo(dim, 16) * dtypeBytes(config.dtype)) + 16; };
  const int qk = rowBytes(config.headDimQk), v = rowBytes(config.headDimV);
  config.sharedBytes = config.blockM * (2 * qk + v) + config.blockN * 2 * (qk + v);
  return config;
}

} // namespace

std::string unservedTangents(const Request& request, Family family) {
  const KernelOptions& options = request.options;
  if (options.features.has(Feature::Ragged)) return "takes no tangents in ragged batches";
  if (family == Family::Naive) return {};
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
    const codegen::Config ofQ = sm80Config(request.options, false);
    add("tangents_q_sm80.cu", "attnc_tangent_rows", ofQ, perQTile, true);
    add("tangents_q_sm80.cu", "attnc_tangent_q", ofQ, perQTile, false);
    add("tangents_kv_sm80.cu", "attnc_tangent_kv", sm80Config(request.options, true), perKvTile, false);
    // Gradients of captures come from the oracle, whose weights are normalised by its own sums.
    if (!request.mod->captures.empty())
      add("backward_naive.cu", "attnc_backward_sums", oracle, perQRow, true, backwardBlock);
  }
  plan.workspace = {rowSums(), deltas(Use::Delta), deltas(Use::TangentDelta)};
  return plan;
}

} // namespace attnc::plan
