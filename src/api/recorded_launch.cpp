#include "api/recorded_launch.h"

#include "codegen/pack_args.h"
#include "families/capture_gradients.h"
#include "families/grids/grid_plan.h"
#include "families/two_walks.h"
#include "ir/bind.h"
#include "support/try.h"

namespace attnc::plan {
namespace {

Expected<LaunchOperands> checked(const Plan& plan, const ir::Module& module, const BackwardOperands& operands,
                                 const Outputs& outputs, const BackwardOutputs& gradients) {
  if (plan.options.kind == KernelKind::BlockMask && !operands.blockMask)
    return Error::environment("the lists that a block-mask kernel fills are not given", "set Operands::blockMask");
  if (plan.options.kind == KernelKind::BlockMask)
    return checkBlockMask(module, *operands.blockMask, problemOf(operands), plan.options);
  if (plan.options.kind != KernelKind::Backward) return checkForward(operands, outputs, plan.options);
  ATTNC_TRY_AS(all, checkBackward(operands, gradients, plan.options));
  ATTNC_TRY(addCaptureOutputs(*all, plan, module, operands.captures, gradients.captures, /*launches=*/true));
  return all;
}

} // namespace

Expected<RecordedLaunch> recordLaunch(const Plan& plan, llvm::ArrayRef<std::shared_ptr<const KernelMod>> mods,
                                      const ir::Module& module, const BackwardOperands& operands,
                                      const Outputs& outputs, const BackwardOutputs& gradients, const Device& device,
                                      void* workspace, const void* zero) {
  static const Captures kNone;
  ATTNC_TRY_AS(given, checked(plan, module, operands, outputs, gradients));
  LaunchOperands all = *given;
  WideOperands shapes(nullptr);
  if (plan.widensOperands) all.wide = &shapes;
  RecordedLaunch launch{*given, WorkspaceLayout(plan.workspace, all), {}};
  const WorkspaceView view{launch.workspace, launch.workspace.bytes() ? workspace : nullptr};
  ATTNC_TRY_AS(bindings,
               ir::bind(module, operands.captures ? *operands.captures : kNone, all.problem, &launch.operands));
  bindLse(plan, *bindings, all, view);
  all.bindings = &*bindings;
  if (plan.grid) all.grids = gridsOf(*plan.grid, *bindings);
  WideOperands wide(&view);
  if (plan.widensOperands) all.wide = &wide;
  ATTNC_TRY(checkTileCounts(plan, all));
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const Stage& stage = plan.stages[i];
    const int64_t ctas = ctasOf(stage, all, device);
    if (!ctas) continue;
    ATTNC_TRY_AS(params, stage.parameters(stage, all, device, view));
    params->clearPadding();
    const auto& slots = mods[i]->source.slots;
    std::vector<uint64_t> words(slots.size() + 1); // one more than packArgs() fills: kernels take a word at least
    codegen::packArgs(slots, *bindings, zero, words.data());
    if (!slots.empty()) words.pop_back();
    launch.stages.push_back({i, ctas, *params, std::move(words)});
  }
  return launch;
}

} // namespace attnc::plan
