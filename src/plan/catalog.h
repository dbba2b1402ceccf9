// The catalogue: which family serves a request, and with which plan.
#pragma once

#include "plan/kernel_mod.h"
#include "plan/plan.h"

namespace attnc::plan {

/// What kernels of ragged batches do not go with.
Status checkRaggedOptions(const KernelOptions& options);

/// Whether lengths, offsets, pages and rows that are appended fit the kind of kernel, and each other.
Status checkSequenceOptions(const KernelOptions& options);

/// Head dims, dtypes and block sizes that there are kernels for, and options that fit each other.
Status checkOptions(const KernelOptions& options);

/// Chooses. `mod`: of algebraFor(options). With `layout` (from checkLayout()), families that do not take it are passed
/// over, or an error where one is asked for. Errors (environment): those of checkOptions(); a family, or no family, that does not
/// serve the options.
Expected<Plan> choosePlan(const KernelMod& mod, const KernelOptions& options, const LaunchOperands* layout = nullptr);

/// What KernelOptions::tile may be where this plan is chosen, the model's own first. `mod`: that it was chosen for.
Expected<std::vector<std::string>> candidatesOf(const KernelMod& mod, const Plan& plan);

/// Whether launches gain from a block mask: the mod masks something, and the plan's family cannot bound its loops by
/// itself.
bool wantsBlockMask(const analysis::ModFacts& facts, const Plan& plan);

/// choosePlan() for launches that pass a block mask: of boxes where the mod says grids and bounds what a query sees
/// along no axis, if a kernel by boxes takes it; for grids that the mod does not declare where that family is asked
/// for. Else of blocks of tokens in a row, with the reason in Plan::misfit where there is one. The plan's options say
/// which. `mayListBoxes`: false for training, whose passes share lists. Errors: those of choosePlan().
Expected<Plan> chooseListed(const KernelMod& mod, KernelOptions options, const LaunchOperands* layout,
                            bool mayListBoxes);

/// The options with what follows from others filled in: headDimV.
KernelOptions completed(KernelOptions options);

} // namespace attnc::plan
