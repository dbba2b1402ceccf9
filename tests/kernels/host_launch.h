// A whole launch of a kernel on the host.
#pragma once

#include "api/recorded_launch.h"
#include "helpers/plan_parts.h"
#include "kernels/host_stage.h"
#include "launch/tensor_maps.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <vector>

namespace attnc::test {

struct HostLaunch {
  unsigned seed = 3; ///< of the order of threads and copies
  int multiprocessors = 3;
  bool hasWorkspace = true;
  unsigned resident = 1;                  ///< CTAs that run at a time
  std::vector<char>* workspace = nullptr; ///< receives what the launch leaves there
};

/// Runs the kernels of a launch. The workspace holds NaN at first, where a launch may not rely on zeros.
/// `paramsType`: of a stage's first parameter, in C++.
inline void launchOnHost(const Mod& mod, const KernelOptions& options, const BackwardOperands& operands,
                         const Outputs& outputs, const BackwardOutputs& gradients, const HostLaunch& how,
                         llvm::function_ref<std::string(const plan::Stage& stage)> paramsType) {
  const auto kernel = take(written(mod, options));
  uint64_t zero = 0;
  const plan::MapEncoder encoder(mapOf);
  const auto record = [&](void* workspace) {
    return take(plan::recordLaunch(kernel.plan(), kernel.mods, kernel.mod().module(), operands, outputs, gradients,
                                   {.multiprocessors = how.multiprocessors}, workspace, &zero));
  };
  std::vector<char> memory(record(nullptr).workspace.bytes() + 2 * kWorkspaceAlignment, char(0xff));
  char* const workspace =
      memory.data() + (kWorkspaceAlignment - reinterpret_cast<uintptr_t>(memory.data()) % kWorkspaceAlignment);
  plan::RecordedLaunch launch = record(how.hasWorkspace ? workspace : nullptr);
  for (const plan::WorkspacePart& part : launch.workspace.parts())
    if (part.use.zeroed != plan::WorkspaceUse::Zeroed::Never) std::memset(workspace + part.offset, 0, part.bytes);
  host::resident = how.resident;
  for (plan::RecordedStage& recorded : launch.stages) {
    const plan::Stage& stage = kernel.plan().stages[recorded.index];
    INFO(stage.templateName << ", " << recorded.ctas << " CTAs");
    const std::string error = hostStage(kernel.source(recorded.index), paramsType(stage))
                                  .run(recorded.params.data(), recorded.args.data(), unsigned(recorded.ctas),
                                       unsigned(stage.threads), how.seed);
    REQUIRE(error == "");
  }
  host::resident = 1;
  if (how.workspace) how.workspace->assign(workspace, workspace + launch.workspace.bytes());
}

/// Does the same for a forward or decode kernel.
inline void launchOnHost(const Mod& mod, const KernelOptions& options, const Operands& given, const Outputs& outputs,
                         const HostLaunch& how, llvm::function_ref<std::string(const plan::Stage& stage)> paramsType) {
  BackwardOperands operands;
  static_cast<Operands&>(operands) = given;
  launchOnHost(mod, options, operands, outputs, {}, how, paramsType);
}

} // namespace attnc::test
