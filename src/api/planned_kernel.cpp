#include "api/planned_kernel.h"

#include "support/try.h"

namespace attnc {

std::vector<KernelSource> PlannedKernel::sources() const {
  std::vector<KernelSource> all;
  for (size_t stage = 0; stage < mods.size(); ++stage) all.push_back(source(stage));
  return all;
}

Expected<PlannedKernel> planned(Mod derived, plan::Plan plan) {
  PlannedKernel kernel{std::move(derived), std::move(plan), {}};
  for (const plan::Stage& stage : kernel.plan.stages) {
    ATTNC_TRY_AS(mod, kernelModOf(kernel.mod, formOf(stage)));
    kernel.mods.push_back(*std::move(mod));
  }
  return kernel;
}

Expected<PlannedKernel> planned(const Mod& mod, const KernelOptions& options) {
  ATTNC_TRY_AS(derived, derive(mod, options));
  ATTNC_TRY_AS(plan, choosePlan(*derived, options));
  return planned(*std::move(derived), *std::move(plan));
}

} // namespace attnc
