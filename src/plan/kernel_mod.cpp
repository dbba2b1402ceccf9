#include "plan/kernel_mod.h"

#include "passes/pipeline.h"
#include "support/try.h"

#include <llvm/ADT/STLExtras.h>

namespace attnc::plan {

/// Drops the gradients of captures, so that kernels that do not compute them are the same whether they exist or not.
static Status dropGradients(ir::Module& module, const ir::CaptureGradients& gradients) {
  std::vector<std::string> gone;
  for (const ir::CaptureGradient& place : gradients.places) {
    gone.push_back(place.output);
    gone.insert(gone.end(), place.indices.begin(), place.indices.end());
  }
  module.dropOutputs(gone);
  return passes::runPasses(module, {*passes::findPass("dce")}, {});
}

Expected<KernelMod> makeKernelMod(const ir::Module& module, ModForm form, const ir::CaptureGradients& gradients) {
  KernelMod mod{module, {}, {}, {}, {}};
  for (const std::string& name : gradients.captures) mod.captures.push_back({name, {}});
  const auto accesses = analysis::gradientAccesses(module, gradients.places);
  for (size_t i = 0; i < accesses.size(); ++i)
    llvm::find_if(mod.captures, [&](const CaptureAccess& capture) {
      return capture.name == gradients.places[i].capture;
    })->places.push_back(accesses[i]);
  if (!form.gradients && !gradients.places.empty()) ATTNC_TRY(dropGradients(mod.module, gradients));
  if (form.algebra.lowRank == passes::Algebra::LowRank::Kept && !form.onGrid) {
    mod.lowRank = analysis::lowRank(mod.module);
    if (mod.lowRank.term) {
      ModForm without = form;
      without.algebra.lowRank = passes::Algebra::LowRank::Left;
      ATTNC_TRY_AS(made, makeKernelMod(module, without, gradients));
      mod.withoutLowRank = std::make_shared<const KernelMod>(*std::move(made));
    }
  }
  const size_t firstDerived = mod.module.size();
  ATTNC_TRY(passes::deriveForKernels(mod.module, form.algebra));
  mod.facts = analysis::modFacts(mod.module);
  mod.source = codegen::emitMod(mod.module, mod.facts, firstDerived,
                                form.gradients ? gradients : ir::CaptureGradients(), form.judges);
  return mod;
}

passes::Algebra algebraFor(const KernelOptions& options) {
  const bool isPlain = options.kind == KernelKind::BlockMask || options.family == Family::Naive;
  return isPlain ? passes::Algebra{} : algebraFor(options.dtype);
}

} // namespace attnc::plan
