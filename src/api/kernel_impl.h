// What a Kernel holds: a plan, loaded stage by stage.
#pragma once

#include "api/plan_impl.h"
#include "jit/loaded_kernel.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <memory>
#include <vector>

namespace attnc {

/// Enqueues zeros for those uses of a workspace that are zeroed at this time. `memory`: the workspace's; enqueues
/// nothing if null.
Status enqueueZeros(const plan::WorkspaceView& workspace, plan::WorkspaceUse::Zeroed when, Stream stream);

struct Kernel::Impl {
  Plan handle;
  StageMods mods;          ///< of its stages: they say how a launch fills ModArgs
  CompiledStages compiled; ///< as the call that made this obtained them
  std::vector<jit::LoadedKernel> stages;
  plan::Device device;
  bool checks = false; ///< whether each launch checks the values of its operands first

  const plan::Plan& plan() const { return PlanAccess::of(handle).plan; }
  const ir::Module& module() const { return PlanAccess::of(handle).mod.module(); }
  const KernelOptions& options() const { return plan().options; }

  plan::WorkspaceLayout workspaceFor(const plan::LaunchOperands& operands) const {
    return {plan().workspace, operands};
  }

  /// Calls plan::addCaptureOutputs(). Precondition: a backward plan.
  Status addCaptureOutputs(plan::LaunchOperands& checked, const BackwardOperands& operands,
                           const BackwardOutputs& outputs, bool launches) const;

  /// Enqueues all stages that have CTAs. Binds the operands to the launch. `captures`: null for none. `before`: what to
  /// enqueue ahead of the first stage, when it is checked.
  Status launch(plan::LaunchOperands&& operands, const Captures* captures, void* workspace, Stream stream,
                llvm::function_ref<Status()> before = nullptr) const;
};

} // namespace attnc
