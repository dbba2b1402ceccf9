// The inside of plans.
#pragma once

#include "api/compiler_access.h"
#include "api/compiler_impl.h"
#include "helpers/plans.h"

#include <utility>

namespace attnc::test {

/// Reads what blockMaskOptions() keeps of the options.
inline Expected<BlockMaskKernel> loadBlockMask(const Compiler& compiler, const Mod& mod, const KernelOptions& options) {
  ATTNC_TRY_AS(plan, compiler.plan(mod, blockMaskOptions(options)));
  return CompilerAccess::loadBlockMask(compiler, *plan);
}

/// Returns the plan of a mod that is derived for these options.
inline Expected<plan::Plan> choosePlan(const Mod& derived, const KernelOptions& options) {
  ATTNC_TRY_AS(kernelMod, kernelModOf(derived, plan::algebraFor(options)));
  ATTNC_TRY_AS(request, plan::selectFamily(*std::move(kernelMod), options));
  return plan::planOf(*request);
}

/// Returns a plan with this loop, for facts about kernels that are made up.
inline Plan planWith(const Mod& mod, KernelOptions options, KvLoop loop) {
  if (options.arch.empty()) options.arch = "sm_80";
  PlanAccess::Impl impl = PlanAccess::of(*Compiler().plan(mod, options));
  impl.kvLoop = loop;
  return PlanAccess::make(std::move(impl));
}

/// A plan, and the mods that its stages are written from.
struct WrittenPlan {
  Plan handle;
  StageMods mods;

  const plan::Plan& plan() const { return PlanAccess::of(handle).plan; }
  const Mod& mod() const { return PlanAccess::of(handle).mod; }
  KernelSource source(size_t stage) const { return PlanAccess::of(handle).source(mods, stage); }
};

inline Expected<WrittenPlan> written(const Mod& mod, const KernelOptions& options) {
  ATTNC_TRY_AS(plan, Compiler().plan(mod, options));
  ATTNC_TRY_AS(mods, PlanAccess::of(*plan).stageMods());
  return WrittenPlan{*std::move(plan), *std::move(mods)};
}

/// Returns a plan with other members.
template <class Change> Plan changed(const Plan& plan, Change change) {
  PlanAccess::Impl impl = PlanAccess::of(plan);
  change(impl);
  return PlanAccess::make(std::move(impl));
}

} // namespace attnc::test
