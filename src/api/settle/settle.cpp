// What operands decide: kernels, block mask, workspace.
#include "attnc/prepared.h"

#include "api/compiler_impl.h"
#include "api/settle/kind.h"
#include "api/settle/lists.h"
#include "api/settle/tiles.h"
#include "families/capture_gradients.h"
#include "families/family.h"
#include "families/grids/grid_plan.h"
#include "families/reductions.h"
#include "ir/bind.h"
#include "launch/mask_shape.h"
#include "support/try.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/Support/MathExtras.h>

#include <utility>

namespace attnc {

Status bindCaptures(const Mod& mod, const Captures* captures, const passes::GridKernel* grid,
                    plan::LaunchOperands& operands, const std::map<std::string, int64_t>& pins) {
  static const Captures kNone;
  if (!captures && !(grid && mod.captures().empty())) {
    if (grid) operands.grids = plan::gridsOf(*grid, operands.problem);
    return {};
  }
  ATTNC_TRY_AS(bindings, ir::bind(mod.module(), captures ? *captures : kNone, operands.problem, &operands));
  if (grid) operands.grids = plan::gridsOf(*grid, *bindings);
  return checkPins(mod.module(), *bindings, pins);
}

namespace {

plan::WorkspaceLayout workspaceOf(const plan::Plan& plan, const plan::LaunchOperands& operands,
                                  const std::optional<BlockMaskShape>& blockMask, BlockMask::Lists lists) {
  std::vector<plan::WorkspaceUse> uses = plan.workspace;
  if (blockMask) {
    uses.push_back({.use = plan::Use::Lists, .bytes = [shape = *blockMask, lists](const plan::LaunchOperands&) {
                      return BlockMask::storageBytes(shape, lists);
                    }});
  }
  return {uses, operands};
}

Expected<Preparation> settleFor(const Context& context, const Mod& derived, const Operands& operands,
                                const Outputs& outputs, KernelOptions options, bool buildBlockMask, bool mayDecode,
                                BlockMask::Lists lists) {
  const std::string askedTile = std::exchange(options.tile, {}); // of the kernel that is settled below
  ATTNC_TRY_AS(layout, plan::checkLayout(operands, outputs, options));
  ATTNC_TRY(plan::checkGiven(operands, options));
  ATTNC_TRY_AS(kernelMod, kernelModOf(derived, plan::algebraFor(options)));
  ATTNC_TRY(bindCaptures(derived, operands.captures, (*kernelMod)->grid.get(), *layout, options.pins));
  ATTNC_TRY(plan::checkReductions((*kernelMod)->reductions, *layout, /*launches=*/false));
  ATTNC_TRY_AS(request, plan::selectFamily(*kernelMod, options, &*layout));
  std::string whyKind;
  if (mayDecode) whyKind = againstDecode(layout->problem, options.dtype);
  if (mayDecode && whyKind.empty()) {
    KernelOptions few = options;
    few.kind = KernelKind::Decode;
    few.packedRows = packedRowsFor(layout->problem);
    Expected<plan::Request> divided = plan::selectFamily(*kernelMod, few, &*layout);
    whyKind = divided ? forDecode(layout->problem, few.packedRows) : divided.error().message;
    if (divided) request = std::move(divided);
  }
  std::string passedOver = passedOverBy(*request);
  const bool hasOffsets = options.offsets != QueryOffsets::None;
  bool buildsMask = buildBlockMask && !options.blockSparse &&
                    mayBuildLists(*layout, derived.module(), options, lists) && plan::wantsBlockMask(*request);
  if (buildsMask) {
    const bool mayListBoxes = lists == BlockMask::Lists::ByRow && !hasOffsets;
    Expected<plan::Request> listed = plan::selectListed(*kernelMod, options, &*layout, mayListBoxes);
    const auto hasTile = [&] { return llvm::is_contained(plan::candidatesOf(*listed), askedTile); };
    if (hasOffsets && (!listed || !(askedTile.empty() || hasTile())))
      buildsMask = false; // the caller may not know that there would be lists
    else
      request = std::move(listed);
  }
  if (buildsMask) {
    if (!request) return request.error();
    // The first request's reason, which leads to the mask, takes precedence. For mods that bound nothing it says only
    // that, so the new one's is better.
    const bool isUnbounded = (*kernelMod)->grid && !(*kernelMod)->grid->isBounded;
    if (passedOver.empty() || isUnbounded) passedOver = passedOverBy(*request);
  }
  std::string shapeClass = shapeClassOf(*layout, request->options.kind);
  const std::string ofModel = modelTile(*request, operands.captures, layout->problem);
  ATTNC_TRY_AS(kernel, planTiled(context, derived, *std::move(request), askedTile, ofModel, shapeClass,
                                 std::move(passedOver), buildsMask && hasOffsets));
  const plan::Plan& plan = PlanAccess::of(*kernel).plan;
  Preparation preparation{.kernel = *kernel,
                          .blockMaskKernel = {},
                          .backward = {},
                          .whyKind = std::move(whyKind),
                          .blockMask = {},
                          .problem = layout->problem,
                          .impl = {}};
  const bool byBoxes = plan.options.maskByBoxes;
  if (byBoxes) ATTNC_TRY(plan::checkListedBoxes(plan.stages.front().config, *layout));
  for (const plan::Stage& stage : plan.stages) ATTNC_TRY(plan::checkCluster(stage.config, layout->problem));
  if (buildsMask) {
    BlockMaskShape shape = shapeToBuild(derived.module(), layout->problem, options);
    if (byBoxes) shape.boxes = plan::latticesOf(plan.stages.front().config, *layout->grids);
    ATTNC_TRY(plan::checkShape(shape));
    preparation.blockMask = shape;
  }
  plan::WorkspaceLayout workspace = workspaceOf(plan, *layout, preparation.blockMask, lists);
  preparation.workspaceBytes = workspace.bytes();
  preparation.impl = std::make_shared<const Preparation::Impl>(Preparation::Impl{.workspace = std::move(workspace),
                                                                                 .qRows = operands.q.shape[2],
                                                                                 .kvRows = operands.k.shape[2],
                                                                                 .shapeClass = std::move(shapeClass)});
  return preparation;
}

/// Returns the options of the backward pass for a forward pass, without a block mask in the workspace. `ofOutputs`:
/// whether outputs of the mod have gradients.
KernelOptions backwardOptions(KernelOptions options, const Training& training, bool deterministic, bool ofOutputs) {
  options.tile.clear();
  options.kind = KernelKind::Backward;
  options.features.set(Feature::Deterministic, deterministic);
  options.features.set(Feature::Tangents, training.operands.qTangent.has_value());
  options.features.set(Feature::Reductions, ofOutputs);
  if (const Captures* captures = training.gradients.captures)
    for (const auto& [name, tensor] : captures->all()) options.gradients.insert(name);
  return options;
}

/// Whether the backward pass would walk boxes of a grid, and for mods on a grid, why it would not.
struct GradientsByBoxes {
  bool areTaken = false;
  std::string passedOver;
};

/// Ignores errors in the operands, which others report.
GradientsByBoxes gradientsByBoxes(const Mod& derived, const Training& training, const KernelOptions& options) {
  Expected<plan::LaunchOperands> layout = plan::checkBackwardLayout(training.operands, training.gradients, options);
  auto kernelMod = kernelModOf(derived, plan::algebraFor(options));
  if (!layout || !kernelMod || !(*kernelMod)->grid) return {};
  if (!bindCaptures(derived, training.operands.captures, (*kernelMod)->grid.get(), *layout, options.pins)) return {};
  const Expected<plan::Request> request = plan::selectFamily(*kernelMod, options, &*layout);
  if (!request) return {};
  return {request->family->walksBoxes, passedOverBy(*request)};
}

/// Adds the backward pass to a settled forward pass. `derived`: with the gradient of the score. `passedOver`:
/// GradientsByBoxes::passedOver, which takes precedence over what a block mask rules out.
Status settleBackward(const Context& context, const Mod& derived, const Training& training,
                      const KernelOptions& options, const std::string& askedTile, const std::string& passedOver,
                      Preparation& preparation) {
  ATTNC_TRY_AS(layout, plan::checkBackwardLayout(training.operands, training.gradients, options));
  ATTNC_TRY_AS(kernelMod, kernelModOf(derived, plan::algebraFor(options)));
  const BackwardOperands& operands = training.operands;
  ATTNC_TRY(bindCaptures(derived, operands.captures, (*kernelMod)->grid.get(), *layout, options.pins));
  ATTNC_TRY_AS(request, plan::selectFamily(*kernelMod, options, &*layout));
  Preparation::Impl all = *preparation.impl;
  all.backwardShapeClass = shapeClassOf(*layout, KernelKind::Backward);
  const std::string ofModel = modelTile(*request, operands.captures, layout->problem);
  const std::string why = passedOver.empty() ? passedOverBy(*request) : passedOver;
  ATTNC_TRY_AS(kernel,
               planTiled(context, derived, *std::move(request), askedTile, ofModel, all.backwardShapeClass, why));
  const plan::Plan& plan = PlanAccess::of(*kernel).plan;
  ATTNC_TRY(plan::addCaptureOutputs(*layout, plan, derived.module(), operands.captures, training.gradients.captures,
                                    /*launches=*/false));
  if (const auto& mask = preparation.blockMask) layout->lists = BlockMaskView{.shape = *mask};
  all.backwardWorkspace = plan::WorkspaceLayout(plan.workspace, *layout);
  if (const size_t bytes = all.backwardWorkspace->bytes())
    preparation.workspaceBytes = backwardOffset(all.workspace) + bytes;
  preparation.backward = *std::move(kernel);
  preparation.impl = std::make_shared<const Preparation::Impl>(std::move(all));
  return {};
}

} // namespace

size_t backwardOffset(const plan::WorkspaceLayout& forward) {
  return size_t(llvm::alignTo(forward.bytes(), kWorkspaceAlignment));
}

/// Returns the name of the device whose choices are looked up. Empty if nothing is looked up.
std::string Compiler::Impl::deviceOf(Lookup lookup, const std::string& arch) const {
  if (lookup == Lookup::None || !looksUpTuned) return {};
  if (lookup == Lookup::Named || !tunedDevice.empty()) return tunedDevice;
  const Expected<jit::DeviceInfo> device = jit::currentDevice();
  return device && device->arch == arch ? device->name : std::string();
}

Expected<Preparation> Compiler::Impl::settle(const Mod& mod, const Operands& operands, const Outputs& outputs,
                                             const PrepareOptions& options, Lookup lookup, const Training* training) {
  ATTNC_TRY_AS(kernel, withArch(optionsOf(operands, outputs, options)));
  ATTNC_TRY_AS(kind, decideKind(*kernel, operands, options, training != nullptr));
  std::optional<KernelOptions> backward;
  std::optional<Mod> gradientMod;
  GradientsByBoxes byBoxes;
  if (training) {
    ATTNC_TRY_AS(ofOutputs, ir::haveGradients(mod.module(), training->operands.captures));
    backward = backwardOptions(*kernel, *training, options.deterministic, *ofOutputs);
    ATTNC_TRY_AS(made, derived(mod, *backward));
    gradientMod = *std::move(made);
    byBoxes = gradientsByBoxes(*gradientMod, *training, *backward);
    kernel->noBoxes = !byBoxes.areTaken; // both passes use boxes, or both use lists
  }
  ATTNC_TRY_AS(derivedMod, derived(mod, *kernel));
  const BlockMask::Lists lists = training ? BlockMask::Lists::ByRowAndColumn : BlockMask::Lists::ByRow;
  const bool looksUp = options.tile.empty() || (training && options.backwardTile.empty());
  const std::string device = looksUp ? deviceOf(lookup, kernel->arch) : std::string();
  const TileLookup findTile = [&](const plan::Request& request,
                                  const std::string& shapeClass) -> std::optional<FoundChoice> {
    if (device.empty()) return std::nullopt;
    const auto candidates = [&] { return plan::candidatesOf(request); };
    return tuned.find(tunedKey(device, mod, request.options, shapeClass), candidates);
  };
  const Context context{mod, findTile, maxWork};
  Expected<Preparation> preparation =
      settleFor(context, *derivedMod, operands, outputs, *kernel, options.buildBlockMask, kind->mayDecode, lists);
  if (!preparation) return preparation;
  if (!kind->why.empty()) preparation->whyKind = kind->why;
  if (preparation->blockMask) {
    KernelOptions builder = preparation->kernel.options();
    builder.columnLists = training;
    ATTNC_TRY_AS(complete, withArch(blockMaskOptions(builder)));
    ATTNC_TRY_AS(ofMask, derived(mod, *complete));
    ATTNC_TRY_AS(plan, planned(mod, *std::move(ofMask), *complete, maxWork));
    preparation->blockMaskKernel = *std::move(plan);
  }
  if (!training) return preparation;
  // Both passes use one mask.
  if (preparation->blockMask) backward->blockSparse = backward->listsOfWholeMod = true;
  ATTNC_TRY(settleBackward(context, *gradientMod, *training, *backward, options.backwardTile, byBoxes.passedOver,
                           *preparation));
  return preparation;
}

Expected<Preparation> Compiler::settle(const Mod& mod, const Operands& operands, const Outputs& outputs,
                                       const PrepareOptions& options) const {
  // With an arch, no driver is opened.
  const auto lookup = options.arch.empty() ? Impl::Lookup::Device : Impl::Lookup::Named;
  return impl->settle(mod, operands, outputs, options, lookup);
}

Expected<Preparation> Compiler::settleTraining(const Mod& mod, const BackwardOperands& operands, const Outputs& outputs,
                                               const BackwardOutputs& gradients, const PrepareOptions& options) const {
  const Training training{operands, gradients};
  const auto lookup =
      options.arch.empty() ? Impl::Lookup::Device : Impl::Lookup::Named; // with an arch, no driver is opened
  return impl->settle(mod, operands, outputs, options, lookup, &training);
}

} // namespace attnc
