// A kernel as planned: its plan, and the mod in the form that each stage is written from.
#pragma once

#include "api/mod_impl.h"
#include "plan/assemble.h"

#include <memory>
#include <vector>

namespace attnc {

struct PlannedKernel {
  Mod mod; ///< the derived mod that the plan is for
  plan::Plan plan;
  std::vector<std::shared_ptr<const plan::KernelMod>> mods; ///< by stage

  /// Returns the text of a stage.
  KernelSource source(size_t stage) const { return plan::assemble(*mods[stage], plan.stages[stage], plan.options); }
  std::vector<KernelSource> sources() const;
};

/// Returns the kernel of a plan for the derived mod.
Expected<PlannedKernel> planned(Mod derived, plan::Plan plan);

/// Derives the mod, and chooses a plan. `options` have an arch.
Expected<PlannedKernel> planned(const Mod& mod, const KernelOptions& options);

} // namespace attnc
