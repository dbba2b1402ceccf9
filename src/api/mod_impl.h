// What a Mod holds, and the mods that are made from other mods.
#pragma once

#include "attnc/mod.h"
#include "attnc/prepared.h"
#include "ir/bindings.h"
#include "ir/capture_gradient.h"
#include "ir/ir.h"
#include "passes/pass.h"
#include "plan/catalog.h"

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace attnc {

/// What a mod was read from.
struct ModSource {
  std::string text; ///< as parsed; empty for a mod read as IR
  std::vector<ModChoice> choices;
  std::vector<std::string> constants;
  std::vector<Diagnostic> warnings;
};

struct Mod::Impl {
  ir::Module module; ///< after all passes
  ir::Module traced; ///< before them, but with pins
  ModSource source;
  std::string hash;
  std::vector<CaptureInfo> captures; ///< in the module's order, tensors first
  ir::CaptureGradients gradients;    ///< outputs of the module

  Impl(ir::Module module, ir::Module traced, ModSource source, ir::CaptureGradients gradients = {});

  /// Made when it is first asked for, and kept.
  Expected<std::shared_ptr<const plan::KernelMod>> kernelMod(plan::ModForm form) const;

private:
  // With the lock held.
  Expected<std::shared_ptr<const plan::KernelMod>> lockedKernelMod(plan::ModForm form) const;
  Expected<plan::KernelMod> kernelModOnGrid(plan::ModForm form) const;
  Expected<std::shared_ptr<const passes::GridKernel>> gridKernel() const;

  mutable std::mutex mutex;
  mutable std::optional<std::shared_ptr<const passes::GridKernel>> onGrid;
  mutable std::map<plan::ModForm, std::shared_ptr<const plan::KernelMod>> kernelMods;
};

/// This very mod as kernels are written from it; `mod` as derive() gives it. Costs nothing after the first time.
Expected<std::shared_ptr<const plan::KernelMod>> kernelModOf(const Mod& mod, plan::ModForm form);

/// The plan of this very mod.
Expected<plan::Plan> choosePlan(const Mod& mod, const KernelOptions& options);

/// The mod as forward kernels and block masks are made of it: without stop_gradient, which would stand in the way of
/// what is known of its scores. `.detach()` costs them nothing and makes no kernel of its own.
Expected<Mod> forwardMod(const Mod& mod);

/// The mod for lists that say nothing of score_mod (BlockMaskView::ofWholeMod): masks of score_mod are scores of -inf
/// and no part of mask_mod, which full blocks do not ask. This very mod if its score_mod has no masks.
Expected<Mod> maskedByScore(const Mod& mod);

/// The mod for sequences with lengths and offsets: with the outputs kv_length and q_offset (src/ir/outputs.h). All
/// passes run anew, since most of them rely on where q_idx may lie; with `pins`, which the mod may have already. Errors
/// (environment): a capture with a name of attnc's own; those of Mod::pinned().
Expected<Mod> sequencesMod(const Mod& mod, passes::SequenceForm form, const std::map<std::string, int64_t>& pins);

/// The form of sequences that operands and options ask for.
passes::SequenceForm sequenceForm(const Operands& operands, const PrepareOptions& options);

/// The mod as backward kernels are made of it: with the gradient of its score and of the captures that are named, and
/// without stop_gradient then. Errors (environment): a name that is no captured float tensor or scalar.
Expected<Mod> gradientMod(const Mod& mod, const std::set<std::string>& captures = {});

/// The captured floats that a gradient arrives at: score_mod reads them where their derivative may be other than 0.
Expected<std::set<std::string>> reachedCaptures(const Mod& mod);

/// What gradientMod() added for captures.
const ir::CaptureGradients& captureGradients(const Mod& mod);

/// What of its result's gradient score_mod passes on to the score, and so to q and k.
enum class ScoreGradient {
  Some,
  Stopped, ///< it reads the score, and passes nothing on
  NoScore, ///< it does not read the score
};
Expected<ScoreGradient> scoreGradientOf(const Mod& mod);

/// The module with gradients of the score and of all captures that can have one, as IR text.
Expected<std::string> gradientIrText(const Mod& mod);

/// The module as the text says it, before all passes, to show what a line computes. Captures bind to it, too.
const ir::Module& tracedModule(const Mod& mod);

/// The mod's text; empty for a mod that was read as IR.
const std::string& sourceText(const Mod& mod);

/// Whether kernels of these options are made of maskedByScore().
bool keepsMasks(const KernelOptions& options);

/// The mod that kernels of these options are made of.
Expected<Mod> derive(const Mod& mod, const KernelOptions& options);

/// Whether a launch gives what was pinned; Blame::Environment naming the pin if not. A kernel that was compiled for
/// other values would compute a wrong result. `bindings` are of `module`.
Status checkPins(const ir::Module& module, const ir::Bindings& bindings, const std::map<std::string, int64_t>& pins);

} // namespace attnc
