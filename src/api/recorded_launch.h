// What a launch would enqueue, without a device: the CTAs, parameters and arguments of each stage.
#pragma once

#include "plan/plan.h"

#include <llvm/ADT/ArrayRef.h>

#include <memory>
#include <vector>

namespace attnc::plan {

/// A stage that has CTAs.
struct RecordedStage {
  size_t index = 0; ///< in Plan::stages
  int64_t ctas = 0;
  ParameterBlock params;      ///< with padding of zeros
  std::vector<uint64_t> args; ///< the words of ModArgs
};

struct RecordedLaunch {
  LaunchOperands operands;
  WorkspaceLayout workspace;
  std::vector<RecordedStage> stages;
};

/// Records a launch of `plan`, whose stages are written from `mods`. `module`: of the derived mod. `device`: any
/// numbers. `workspace` and `zero`, the address of the kernels' attnc_zero, are any addresses. Memory is neither read
/// nor written. Tensor maps are encoded by the driver, or by a MapEncoder. Errors: those of a launch.
Expected<RecordedLaunch> recordLaunch(const Plan& plan, llvm::ArrayRef<std::shared_ptr<const KernelMod>> mods,
                                      const ir::Module& module, const BackwardOperands& operands,
                                      const Outputs& outputs, const BackwardOutputs& gradients, const Device& device,
                                      void* workspace, const void* zero);

} // namespace attnc::plan
