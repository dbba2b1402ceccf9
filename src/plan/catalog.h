// The catalogue: which family serves a request, and with which plan.
#pragma once

#include "plan/kernel_mod.h"
#include "plan/plan.h"

namespace attnc::plan {

/// Returns the features that some family of this kind takes.
Features takenBy(KernelKind kind);

/// Checks that there are kernels for the head dims, dtypes and block sizes, and that the options fit each other.
Status checkOptions(const KernelOptions& options);

/// Chooses a plan. `mod`: made for algebraFor(options). With `layout` (from checkLayout()), families that reject that
/// layout are passed over; if one of them was asked for, that is an error. Errors (environment): those of
/// checkOptions(); no family serves the options, or the one asked for does not.
Expected<Plan> choosePlan(const KernelMod& mod, const KernelOptions& options, const LaunchOperands* layout = nullptr);

/// Returns the possible values of KernelOptions::tile for this plan, the model's own first. `mod`: the one it was
/// chosen for.
Expected<std::vector<std::string>> candidatesOf(const KernelMod& mod, const Plan& plan);

/// Whether launches gain from a block mask: the mod masks something, and the plan's family cannot bound its own loops.
bool wantsBlockMask(const analysis::ModFacts& facts, const Plan& plan);

/// choosePlan() for launches that pass a block mask. Its blocks are boxes if the mod declares grids, bounds what a
/// query sees along no axis, and a box kernel takes it. For grids that the mod does not declare, the family must be
/// asked for. Otherwise blocks are runs of tokens, and Plan::unserved says why, if there is a reason. The plan's
/// options tell which. `mayListBoxes`: false for training, whose passes share lists. Errors: those of choosePlan().
Expected<Plan> chooseListed(const KernelMod& mod, KernelOptions options, const LaunchOperands* layout,
                            bool mayListBoxes);

} // namespace attnc::plan
