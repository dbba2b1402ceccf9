// Gradients: without tensor cores, the oracle; and with mma.sync and cp.async.
#include "families/backward_delta.h"

#include "families/backward_one_walk.h"
#include "families/reductions.h"
#include "families/tangents.h"

#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace attnc::plan {
namespace {

std::string unservedByBackwardNaive(const Request& request) {
  return request.options.features.has(Feature::Tangents) ? unservedTangents(request, Family::Naive) : "";
}

std::string unservedByBackwardSm80(const Request& request) {
  if (request.options.features.has(Feature::Tangents)) return unservedTangents(request, Family::Sm80);
  return request.mod->facts.hasProbMod ? "takes no prob_mod" : unservedOutputGradients(request);
}

Plan planBackwardNaive(const Request& request) {
  if (request.options.features.has(Feature::Tangents)) return planTangents(request, Family::Naive);
  codegen::Config config = configOf(request.options, {8, 8, 8}); // equals the tile of backward_naive.cu
  const bool hasProbWeight = request.mod->facts.hasProbWeight;
  if (hasProbWeight) config.deterministic = request.options.features.has(Feature::Deterministic);
  Plan plan;
  for (auto [entry, ctas] :
       {std::pair("attnc_backward_sums", &perQRow), {"attnc_backward_q", &perQRow}, {"attnc_backward_kv", &perKvRow}})
    plan.stages.push_back({.templateName = hasProbWeight ? "backward_prob.cu" : "backward_naive.cu",
                           .entry = entry,
                           .config = config,
                           .forCaptures = plan.stages.empty(),
                           .threads = 32 * config.warps,
                           .ctas = ctas,
                           .parameters = backwardBlock});
  plan.workspace.push_back(rowSums());
  if (request.options.features.has(Feature::Reductions) || hasProbWeight) plan.workspace.push_back(deltas());
  return plan;
}

/// Mirrors `Memory` of templates/algo/backward_tiles_mma.cuh: rows of q and d_out, of k and v.
codegen::Config withSharedBytes(codegen::Config config) {
  const int ofRow = paddedRowBytes(config.headDimQk, config.dtype) + paddedRowBytes(config.headDimV, config.dtype);
  config.sharedBytes = (config.blockM + config.blockN) * ofRow;
  return config;
}

/// Returns the tiles of the walk for dQ, the model's first; the other walk has the same, transposed. A CTA owns 16 rows
/// per warp and steps along the other axis. A step has as many rows as registers and shared memory allow, or fewer. At
/// most 64, so that a tile lies in one block of a mask, and a block is a power of two of steps.
std::vector<Tile> twoWalksTiles(const Request& request) {
  const KernelOptions& options = request.options;
  const int widest = std::max(options.headDim, options.headDimV);
  const bool isF32 = options.dtype == DType::F32;
  const int warps = isF32 && widest > 64 ? 2 : 4, own = widest <= 64 ? 64 : isF32 ? 16 : 32;
  std::vector<Tile> tiles{{16 * warps, own, warps}};
  for (int step : {32, 16}) {
    const Tile tile{16 * warps, step, warps};
    if (step == own || (isF32 && widest > 128)) continue;
    if (withSharedBytes(configOf(options, tile)).sharedBytes <= request.arch.sharedBytesPerCta()) tiles.push_back(tile);
  }
  return tiles;
}

int64_t twicePerKvTile(const Stage& stage, const LaunchOperands& operands, const Device& device) {
  return 2 * perKvTile(stage, operands, device);
}

/// Plans two walks, one for dK and dV and one for dQ.
Plan planBackwardTwoWalks(const Request& request) {
  const KernelOptions& options = request.options;
  const auto [rows, step, warps] = chosenOf(twoWalksTiles(request), options, tileText);
  const bool apart = llvm::alignTo(options.headDim, 16) + llvm::alignTo(options.headDimV, 16) > 256; // kApart
  const auto stage = [&](const char* file, const char* entry, codegen::Config config, const CountCtas& ctas) {
    Stage made{.templateName = file,
               .entry = entry,
               .algebra = algebraFor(options.dtype),
               .threads = 32 * config.warps,
               .ctas = ctas,
               .parameters = backwardBlock};
    made.config = std::move(config);
    return made;
  };
  Plan plan;
  addDelta(plan, request);
  plan.stages.push_back(stage("backward_kv_sm80.cu", "attnc_backward_kv",
                              withSharedBytes(configOf(options, {step, rows, warps})),
                              apart ? twicePerKvTile : perKvTile));
  plan.stages.push_back(stage("backward_q_sm80.cu", "attnc_backward_q",
                              withSharedBytes(configOf(options, {rows, step, warps})), perQTile));
  return plan;
}

Plan planBackwardSm80(const Request& request) {
  if (request.options.features.has(Feature::Tangents)) return planTangents(request, Family::Sm80);
  return oneWalkTiles(request).empty() ? planBackwardTwoWalks(request) : planBackwardOneWalk(request);
}

std::vector<std::string> backwardSm80Candidates(const Request& request) {
  if (request.options.features.has(Feature::Tangents)) return {}; // there is one tile
  const std::vector<Tile> tiles = oneWalkTiles(request);
  return spelledAll(tiles.empty() ? twoWalksTiles(request) : tiles, tileText);
}

} // namespace

const FamilyRow kBackwardNaive{.kind = KernelKind::Backward,
                               .family = Family::Naive,
                               .takesProbMods = FamilyRow::ProbMods::All,
                               .takesWeightMods = true,
                               .takes = {Feature::Lengths, Feature::Offsets, Feature::Ragged, Feature::BlockMask,
                                         Feature::F32, Feature::Gradients, Feature::Deterministic, Feature::Tangents,
                                         Feature::Reductions},
                               .unserved = unservedByBackwardNaive,
                               .plan = planBackwardNaive,
                               .layouts = "any strides, the last one 1",
                               .checkLayout = takesAnyLayout};

const FamilyRow kBackwardSm80{.kind = KernelKind::Backward,
                              .family = Family::Sm80,
                              .walksBounds = true,
                              .takesProbMods = FamilyRow::ProbMods::All, // with tangents
                              .takes = {Feature::Lengths, Feature::Offsets, Feature::Ragged, Feature::BlockMask,
                                        Feature::F32, Feature::Gradients, Feature::Deterministic, Feature::Tangents,
                                        Feature::Reductions},
                              .unserved = unservedByBackwardSm80,
                              .plan = planBackwardSm80,
                              .candidates = backwardSm80Candidates,
                              .layouts = "any strides, the last one 1",
                              .checkLayout = takesAnyLayout};

} // namespace attnc::plan
