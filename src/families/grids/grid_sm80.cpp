// mma.sync and cp.async, by boxes of a grid: for GPUs without a box kernel of their own.
#include "families/family.h"

#include "families/grids/grid_plan.h"
#include "support/try.h"
#include "templates/params_grid_sm80.cuh"

#include <llvm/Support/MathExtras.h>

namespace attnc::plan {
namespace {

std::string unservedByGridSm80(const Request& request) {
  const KernelOptions& options = request.options;
  if (!request.mod->grid) return "takes mods whose mask is a box of keys on a grid";
  if (request.mod->grid->beside) return "takes mods all of whose tokens lie on grids";
  if (std::max(options.headDim, options.headDimV) > 128) return "takes head dims up to 128";
  const bool isAsked = options.family == Family::Grid;
  if (!isAsked && options.noBoxes) return "goes by no lists, which the backward pass of this training walks";
  if (!isAsked && request.mod->facts.kvEdges) return "gains nothing where each query sees the keys from one to another";
  return {};
}

/// Mirrors `Memory` of templates/forward_grid_sm80.cu.
int gridSharedBytes(int queries, int keys, const KernelOptions& options) {
  return queries * paddedRowBytes(std::max(options.headDim, options.headDimV), options.dtype) +
         keys * paddedRowBytes(options);
}

/// A CTA's warps wait for each other twice per step, so a multiprocessor needs several CTAs and many warps. It has as
/// many as shared memory and registers allow: kCtas of templates/forward_grid_sm80.cu. The factors are not measured.
double burdenOf(const Request& request, const codegen::Config::Boxes& boxes) {
  constexpr int64_t kReserved = 1024; // reserved per CTA; a multiprocessor has this much more than one CTA may use
  const KernelOptions& options = request.options;
  const int queries = tokensOf(boxes.queries), keys = tokensOf(boxes.keys), warps = queries / 16;
  const int64_t most = request.arch.sharedBytesPerCta(), bytes = gridSharedBytes(queries, keys, options);
  if (bytes > most) return 0;
  const int columns = int(llvm::alignTo(options.headDimV, 16)),
            parts = options.dtype != DType::F32 ? 0
                    : columns > 48              ? (columns - 32) / 2
                                                : 8,
            taken = (keys + columns) / 2 + (request.mod->grid->axes.size() == 3 ? 24 : 0) + parts;
  const bool isPlain = request.mod->facts.weight <= Weight::Light;
  const int64_t fitting = !isPlain ? 8 : taken <= 64 ? 16 : taken <= 92 ? 12 : 8; // warps that fit into registers
  const int64_t ctas = std::max<int64_t>(1, std::min((most + kReserved) / (bytes + kReserved), fitting / warps));
  return (ctas * warps >= 12 ? 1 : ctas * warps >= 8 ? 1.1 : 1.4) * (ctas == 1 ? 1.2 : 1);
}

/// Registers hold a warp's 16 rows of scores and of the output. A gather for every score leaves room for fewer keys.
std::vector<codegen::Config::Boxes> gridBoxesSm80(const Request& request) {
  const KernelOptions& options = request.options;
  const bool isHeavy = request.mod->facts.weight == Weight::Heavy,
             isWide = std::max(options.headDim, options.headDimV) > 64;
  BoxModel model{.queries = {64, 128}, .leastKeys = 48, .mostKeys = isHeavy ? 64 : isWide ? 96 : 128, .together = 16};
  // mma.sync at 60 % of its peak, which is half of wgmma's.
  model.byLists = options.maskByBoxes;
  model.flopsPerCycle = 2048 * 0.6, model.cyclesOfStep = 60;
  if (options.dtype == DType::F32) { // three products of TF32, each at half the rate, unless one will do
    const bool isVolume = request.mod->grid->axes.size() == 3; // whose coordinates take registers
    model.leastKeys = 32, model.mostKeys = isVolume ? 32 : isWide || isHeavy ? 48 : 64;
    model.flopsPerCycle /= options.tf32 ? 2 : 6, model.elementBytes = 4;
  }
  model.burden = [&](const codegen::Config::Boxes& boxes) { return burdenOf(request, boxes); };
  return rankBoxes(*request.mod->grid, options.headDim, options.headDimV, model, 12);
}

std::vector<std::string> gridCandidatesSm80(const Request& request) {
  return spelledAll(gridBoxesSm80(request), boxesText);
}

Expected<ParameterBlock> gridParametersSm80(const Stage& stage, const LaunchOperands& operands, const Device&,
                                            const WorkspaceView&) {
  ATTNC_TRY(checkGrids(operands));
  ATTNC_TRY(checkListedBoxes(stage.config, operands));
  ForwardGridParamsSm80 params{};
  params.base = forwardParams(operands);
  const std::array<int64_t, 3> along = queryBoxesAlong(stage, operands);
  for (size_t axis = 0; axis < 3; ++axis) {
    params.q_extent[axis] = int(operands.grids->queries[axis]);
    params.kv_extent[axis] = int(operands.grids->keys[axis]);
    params.q_tiles[axis] = int(along[axis]);
  }
  return ParameterBlock(params);
}

Plan planGridSm80(const Request& request) {
  const KernelOptions& options = request.options;
  const codegen::Config::Boxes boxes = chosenOf(gridBoxesSm80(request), options, boxesText);
  const int queries = tokensOf(boxes.queries), keys = tokensOf(boxes.keys), warps = queries / 16;
  codegen::Config config = configOf(options, {queries, keys, warps});
  config.boxes = boxes;
  config.sharedBytes = gridSharedBytes(queries, keys, options);
  Plan plan;
  plan.grid = request.mod->grid;
  plan.tile = boxesText(boxes);
  plan.stages.push_back({.templateName = "forward_grid_sm80.cu",
                         .entry = "attnc_forward",
                         .config = std::move(config),
                         .algebra = algebraOnGrid(options.dtype),
                         .onGrid = true,
                         .threads = 32 * warps,
                         .ctas = perQueryBox,
                         .tiles = queryBoxTiles,
                         .parameters = gridParametersSm80});
  return plan;
}

} // namespace

const FamilyRow kForwardGridSm80{.kind = KernelKind::Forward,
                                 .family = Family::Grid,
                                 .walksBoxes = true,
                                 .takes = {Feature::BoxMask, Feature::RowMax, Feature::F32},
                                 .unserved = unservedByGridSm80,
                                 .plan = planGridSm80,
                                 .candidates = gridCandidatesSm80,
                                 .layouts = "any strides, the last one 1",
                                 .checkLayout = takesAnyLayoutOnGrids};

} // namespace attnc::plan
