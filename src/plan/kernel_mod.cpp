#include "plan/kernel_mod.h"

#include "passes/factor_gradients.h"
#include "passes/pipeline.h"
#include "passes/two_walks.h"
#include "passes/variant.h"
#include "support/try.h"

#include <llvm/ADT/STLExtras.h>

namespace attnc::plan {

/// Drops places, so that kernels that do not compute them are the same whether they exist or not.
static Status dropPlaces(ir::Module& module, llvm::ArrayRef<ir::CaptureGradient> places) {
  if (places.empty()) return {};
  module.dropOutputs(passes::outputsOf(places));
  return passes::runPasses(module, {*passes::findPass("dce")}, {});
}

/// Adds the accesses of places, which are outputs of the module.
static void addAccesses(std::vector<CaptureAccess>& captures, const ir::Module& module,
                        llvm::ArrayRef<ir::CaptureGradient> places, bool inColumns) {
  const auto accesses = analysis::gradientAccesses(module, places);
  for (size_t i = 0; i < accesses.size(); ++i) {
    CaptureAccess& capture =
        *llvm::find_if(captures, [&](const CaptureAccess& each) { return each.name == places[i].capture; });
    if (places[i].ofSink) {
      capture.inSink = true;
      continue;
    }
    capture.inOutputs |= places[i].ofOutputs;
    capture.places.push_back(accesses[i]);
    capture.inColumns = inColumns;
  }
}

/// Adds the mods that a mod chooses between. Kernels with gradients compute the choice itself.
static Status addVariants(KernelMod& mod, passes::Algebra algebra) {
  if (!algebra.variants) return {};
  for (const ir::OutputRole& role : {ir::kDScore, ir::kProbFactor, ir::kIsWeight})
    if (mod.module.output(role)) return {};
  const std::optional<analysis::Variants> variants = analysis::findVariants(mod.module);
  if (!variants) return {};
  for (size_t i = 0; i < variants->size(); ++i) {
    ATTNC_TRY_AS(module, passes::variantOf(mod.module, *variants, i));
    const size_t firstDerived = module->size();
    ATTNC_TRY(passes::deriveForKernels(*module, algebra));
    const analysis::ModFacts facts = analysis::modFacts(*module);
    mod.variants.push_back({*std::move(module), facts, firstDerived});
  }
  passes::addVariant(mod.module, *variants);
  return {};
}

/// Makes what kernels of a walk of two are written from. That of the first has the other.
static Expected<KernelMod> makeWalk(const ir::Module& module, ModForm form) {
  if (form.walksSecond) {
    ATTNC_TRY_AS(second, passes::secondWalk(module));
    return makeKernelMod(*second, form);
  }
  ATTNC_TRY_AS(first, passes::firstWalk(module));
  ATTNC_TRY_AS(mod, makeKernelMod(*first, form));
  mod->withoutLowRank = nullptr; // both walks take a low-rank term with the score
  if (mod->lowRank.term) mod->lowRank = {std::nullopt, "a prob_mod takes two walks, which compute it"};
  form.walksSecond = true;
  ATTNC_TRY_AS(second, makeWalk(module, form));
  mod->secondWalk = std::make_shared<const KernelMod>(*std::move(second));
  return mod;
}

Expected<KernelMod> makeKernelMod(const ir::Module& module, ModForm form, const ir::CaptureGradients& gradients) {
  using LowRank = passes::Algebra::LowRank;
  if (module.output(ir::kProbWeight) && !module.output(ir::kDScore)) return makeWalk(module, form);
  KernelMod mod{module, {}, {}, {}, {}};
  mod.reductions = ir::reductionsOf(module);
  if (!form.reduces && !mod.reductions.empty()) {
    ir::dropReductions(mod.module);
    ATTNC_TRY(passes::runPasses(mod.module, {*passes::findPass("dce")}, {}));
  }
  for (const std::string& name : gradients.captures) mod.captures.push_back({name, {}});
  ir::CaptureGradients hooks = gradients;
  if (form.algebra.lowRank == LowRank::Kept) {
    addAccesses(mod.captures, module, gradients.places, false);
    if (!form.gradients) ATTNC_TRY(dropPlaces(mod.module, gradients.places));
  } else if (module.output(ir::kDScore)) {
    // The term is taken out of the module with all gradients, so that all forms take out the same.
    ATTNC_TRY_AS(factors, passes::factorGradients(module, gradients));
    const auto inColumns = [&](const auto& place) { return !place.ofSink && factors->isInColumns(place.capture); };
    const bool isFactors = form.algebra.lowRank == LowRank::Factors;
    std::vector<ir::CaptureGradient> ofScores = gradients.places, gone;
    llvm::erase_if(ofScores, inColumns);
    if (isFactors) {
      mod.module = factors->module;
      hooks = factors->gradients;
      if (!form.gradients) gone = hooks.places;
    } else {
      ATTNC_TRY(passes::runPasses(mod.module, {*passes::findPass("derive-low-rank")}, {}));
      llvm::copy_if(gradients.places, std::back_inserter(gone),
                    [&](const auto& place) { return !form.gradients || inColumns(place); });
      hooks.places = ofScores;
      addAccesses(mod.captures, mod.module, ofScores, false);
    }
    addAccesses(mod.captures, factors->module, factors->gradients.places, true);
    ATTNC_TRY(dropPlaces(mod.module, gone));
  }
  if (form.algebra.lowRank == LowRank::Kept && !form.onGrid && !module.output(ir::kIsWeight)) {
    mod.lowRank = analysis::lowRank(module);
    if (mod.lowRank.term) {
      ModForm without = form;
      without.algebra.lowRank = LowRank::Left;
      ATTNC_TRY_AS(made, makeKernelMod(module, without, gradients));
      mod.withoutLowRank = std::make_shared<const KernelMod>(*std::move(made));
    }
  }
  ATTNC_TRY(addVariants(mod, form.algebra));
  const size_t firstDerived = mod.module.size();
  ATTNC_TRY(passes::deriveForKernels(mod.module, form.algebra));
  mod.facts = analysis::modFacts(mod.module);
  mod.source = codegen::emitMod(mod.module, mod.facts, firstDerived, form.gradients ? hooks : ir::CaptureGradients(),
                                form.judges, mod.variants);
  return mod;
}

passes::Algebra algebraFor(const KernelOptions& options) {
  const bool isPlain = options.kind == KernelKind::BlockMask || options.family == Family::Naive;
  if (isPlain) return {};
  passes::Algebra algebra = algebraFor(options.dtype);
  algebra.drops = options.dtype != DType::F32 && options.kind != KernelKind::Decode;
  return algebra;
}

} // namespace attnc::plan
