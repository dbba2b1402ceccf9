// Launches: arguments are checked, packed and enqueued. Nothing here allocates, compiles or waits, unless launches
// check the values of operands.
#include "attnc/kernel.h"

#include "api/check_values.h"
#include "api/kernel_impl.h"
#include "api/mod_impl.h"
#include "codegen/pack_args.h"
#include "families/capture_gradients.h"
#include "families/grids/grid_plan.h"
#include "families/two_walks.h"
#include "ir/bind.h"
#include "jit/enqueue_zeros.h"
#include "launch/launch_operands.h"
#include "support/try.h"

#include <fmt/format.h>

#include <limits>

namespace attnc {
namespace {

/// The largest ModArgs: an address, and for each axis a stride, a size and a free extent.
constexpr size_t kMaxArgWords =
    ir::kBuiltinDims + (ir::kMaxCaptures + std::size(ir::kSequenceTensors)) * (1 + 3 * TensorView::kMaxRank);
/// The limit of ptxas on every arch from sm_70 on.
constexpr size_t kMaxParameterBytes = 32'764;
static_assert(8 * kMaxArgWords + sizeof(plan::ParameterBlock) <= kMaxParameterBytes);

const Captures kNoCaptures;

/// Enqueues a stage with the parameters (params, ModArgs).
Status enqueue(const plan::Stage& stage, llvm::ArrayRef<codegen::ArgWord> slots, const jit::LoadedKernel& loaded,
               int64_t ctas, plan::ParameterBlock& params, const ir::Bindings& bindings, Stream stream) {
  if (ctas > std::numeric_limits<int32_t>::max())
    return Error::environment(fmt::format("{} CTAs are more than a grid holds", ctas), "split the batch");
  uint64_t words[kMaxArgWords];
  words[0] = 0; // not read if the mod captures nothing
  codegen::packArgs(slots, bindings, loaded.variable(), words);
  void* arguments[] = {params.data(), words};
  jit::LaunchShape shape;
  shape.grid[0] = unsigned(ctas);
  shape.block[0] = unsigned(stage.threads);
  shape.dynamicSharedBytes = unsigned(stage.config.sharedBytes);
  return loaded.launch(shape, stream, arguments);
}

} // namespace

Status enqueueZeros(const plan::WorkspaceView& workspace, plan::WorkspaceUse::Zeroed when, Stream stream) {
  for (const plan::WorkspacePart& part : workspace.layout.parts()) {
    if (!workspace.memory || part.use.zeroed != when) continue;
    ATTNC_TRY(jit::enqueueZeros(workspace.at(part.use.use), part.bytes, stream));
  }
  return {};
}

Status Kernel::Impl::addCaptureOutputs(plan::LaunchOperands& checked, const BackwardOperands& operands,
                                       const BackwardOutputs& outputs, bool launches) const {
  return plan::addCaptureOutputs(checked, plan(), module(), operands.captures, outputs.captures, launches);
}

Status Kernel::Impl::launch(plan::LaunchOperands&& operands, const Captures* captures, void* workspace, Stream stream,
                            llvm::function_ref<Status()> before) const {
  const plan::Plan& plan = this->plan();
  std::optional<plan::WideOperands> wide; // first with shapes only, for the layout
  if (plan.widensOperands) operands.wide = &wide.emplace(nullptr);
  const plan::WorkspaceLayout layout = workspaceFor(operands);
  const plan::WorkspaceView view{layout, workspace};
  ATTNC_TRY(plan::checkWorkspace(view));
  for (const plan::CaptureOutput& capture : operands.captureOutputs)
    if (capture.isDirect) ATTNC_TRY(jit::enqueueZeros(capture.out.data, capture.bytes(), stream));
  std::optional<ir::Bindings> bindings; // the same for all stages
  const auto bindOnce = [&]() -> Status {
    if (bindings) return {};
    ATTNC_TRY_AS(bound, ir::bind(module(), captures ? *captures : kNoCaptures, operands.problem, &operands));
    ATTNC_TRY(checkPins(module(), *bound, plan.options.pins));
    plan::bindLse(plan, *bound, operands, view);
    bindings = *std::move(bound);
    return {};
  };
  const bool isBackward = plan.options.kind == KernelKind::Backward; // has tiles of keys even without queries
  const bool asksGrids = plan.grid && (operands.problem.qLen > 0 || isBackward);
  if (asksGrids || plan.readsBindings) {
    ATTNC_TRY(bindOnce());
    operands.bindings = &*bindings;
    if (asksGrids) operands.grids = plan::gridsOf(*plan.grid, *bindings);
  }
  if (plan.widensOperands) operands.wide = &wide.emplace(&view); // with the values of captures
  ATTNC_TRY(plan::checkTileCounts(plan, operands));
  bool isFirst = true;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const plan::Stage& stage = plan.stages[i];
    const int64_t ctas = plan::ctasOf(stage, operands, device);
    if (ctas == 0) continue;
    ATTNC_TRY_AS(params, stage.parameters(stage, operands, device, view));
    ATTNC_TRY(bindOnce());
    if (isFirst && before) ATTNC_TRY(before());
    if (isFirst) ATTNC_TRY(enqueueZeros(view, plan::WorkspaceUse::Zeroed::EveryLaunch, stream));
    isFirst = false;
    ATTNC_TRY(enqueue(stage, mods[i]->source.slots, stages[i], ctas, *params, *bindings, stream));
  }
  return {};
}

const CompiledStages& Kernel::compiled() const { return impl->compiled; }

const KernelOptions& Kernel::options() const { return impl->options(); }

Expected<size_t> ForwardKernel::workspaceBytes(const Operands& operands, const Outputs& outputs) const {
  ATTNC_TRY_AS(checked, plan::checkLayout(operands, outputs, options()));
  return impl->workspaceFor(*checked).bytes();
}

Status ForwardKernel::launch(const Operands& operands, const Outputs& outputs, void* workspace, Stream stream) const {
  ATTNC_TRY_AS(checked, plan::checkForward(operands, outputs, options()));
  if (impl->checks) {
    ATTNC_TRY(checkOnDevice(impl->module(), operands, options().kind, stream));
    ATTNC_TRY(checkZeros({impl->workspaceFor(*checked), workspace}, stream));
  }
  return impl->launch(*std::move(checked), operands.captures, workspace, stream);
}

Expected<size_t> BackwardKernel::workspaceBytes(const BackwardOperands& operands,
                                                const BackwardOutputs& outputs) const {
  ATTNC_TRY_AS(checked, plan::checkLayout(operands, {.out = operands.out}, options()));
  ATTNC_TRY(impl->addCaptureOutputs(*checked, operands, outputs, /*launches=*/false));
  return impl->workspaceFor(*checked).bytes();
}

Status BackwardKernel::launch(const BackwardOperands& operands, const BackwardOutputs& outputs, void* workspace,
                              Stream stream) const {
  ATTNC_TRY_AS(checked, plan::checkBackward(operands, outputs, options()));
  if (impl->checks) ATTNC_TRY(checkOnDevice(impl->module(), operands, KernelKind::Backward, stream));
  ATTNC_TRY(impl->addCaptureOutputs(*checked, operands, outputs, /*launches=*/true));
  return impl->launch(*std::move(checked), operands.captures, workspace, stream);
}

Status BlockMaskKernel::launch(const BlockMaskView& mask, const ProblemShape& problem, const Captures& captures,
                               Stream stream) const {
  if (options().offsets != QueryOffsets::None)
    return Error::environment(
        "this kernel builds the lists of queries with offsets, which Prepared::launch() alone can",
        "prepare with PrepareOptions::offsets None, or launch what was prepared");
  ATTNC_TRY_AS(checked, plan::checkBlockMask(impl->module(), mask, problem, options()));
  return impl->launch(*std::move(checked), &captures, nullptr, stream);
}

} // namespace attnc
