// What a Mod holds, and the mods that are derived from other mods.
#pragma once

#include "attnc/explain.h"
#include "attnc/mod.h"
#include "attnc/prepared.h"
#include "families/catalog.h"
#include "ir/bindings.h"
#include "ir/capture_gradient.h"
#include "ir/ir.h"
#include "passes/pass.h"
#include "passes/place_rows.h"

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace attnc {

/// What a mod was read from.
struct ModSource {
  std::string text; ///< as parsed; empty for a mod that was read as IR
  std::vector<ModChoice> choices;
  std::vector<std::string> constants;
  std::vector<Diagnostic> warnings;
  std::map<std::string, std::string> defines; ///< as given
  std::vector<std::string> declared;          ///< captures, as given
};

struct Mod::Impl {
  ir::Module module; ///< after all passes
  ir::Module traced; ///< before all passes, but with pins
  ModSource source;
  std::string hash;
  /// What the compiler's memory knows it by. Mods of equal IR may differ before the passes, which run anew for lengths,
  /// pins and a caller's lists; and in the names that launches and pins bind by.
  std::string key;
  std::vector<CaptureInfo> captures; ///< in the module's order, tensors first
  std::vector<CaptureInfo> reductions, reductionGradients;
  ir::CaptureGradients gradients; ///< outputs of the module

  Impl(ir::Module module, ir::Module traced, ModSource source, ir::CaptureGradients gradients = {});

  /// Returns the KernelMod of a form. Made at the first request, then kept.
  Expected<std::shared_ptr<const plan::KernelMod>> kernelMod(plan::ModForm form) const;

private:
  // Called with the lock held.
  Expected<std::shared_ptr<const plan::KernelMod>> lockedKernelMod(plan::ModForm form) const;
  Expected<plan::KernelMod> kernelModOnGrid(plan::ModForm form) const;
  Expected<std::shared_ptr<const passes::GridKernel>> gridKernel() const;

  mutable std::mutex mutex;
  mutable std::optional<std::shared_ptr<const passes::GridKernel>> onGrid;
  mutable std::map<plan::ModForm, std::shared_ptr<const plan::KernelMod>> kernelMods;
};

/// Returns this mod, without deriving it further, in the form that kernels are written from. `mod`: from derive().
/// Costs nothing after the first time.
Expected<std::shared_ptr<const plan::KernelMod>> kernelModOf(const Mod& mod, plan::ModForm form);

/// Returns the mod that forward kernels and block masks are made from: without stop_gradient, which would hide facts
/// about its scores. So `.detach()` costs forward kernels nothing and makes no separate kernel.
Expected<Mod> forwardMod(const Mod& mod);

/// Returns the mod for lists that ignore score_mod (BlockMaskView::ofWholeMod). The masks of score_mod become scores of
/// -inf instead of parts of mask_mod, which full blocks do not evaluate. Returns `mod` itself if its score_mod has no
/// masks.
Expected<Mod> maskedByScore(const Mod& mod);

/// Returns the mod for sequences with lengths and offsets, with the outputs kv_length and q_offset (src/ir/outputs.h).
/// Reruns all passes, since most rely on the range of q_idx, and applies `pins`, some of which the mod may have
/// already. Errors (environment): a capture has a name that attnc reserves; those of Mod::pinned().
Expected<Mod> sequencesMod(const Mod& mod, passes::SequenceForm form, const std::map<std::string, int64_t>& pins);

/// Returns the mod of some rows and keys of the whole problem (passes::placeRows). Reruns all passes. Errors
/// (environment): those of placeRows().
Expected<Mod> placedMod(const Mod& mod, passes::RowPlaces places, bool keepsSink);

/// Returns the form of sequences that operands and options ask for.
passes::SequenceForm sequenceForm(const Operands& operands, const PrepareOptions& options);
passes::SequenceForm sequenceForm(const KernelOptions& options);

/// Returns the options of a forward kernel for these operands. Extents too large for an int are refused with the shape.
KernelOptions optionsOf(const Operands& operands, const Outputs& outputs, const PrepareOptions& options);

/// Returns the mod that backward kernels are made from: with the gradients of its score and of the named captures, and
/// without stop_gradient; with tangents of all that (passes/tangents.h), or with gradients of its outputs
/// (passes/output_gradients.h). Error (environment): a name that is not a captured float tensor or scalar.
Expected<Mod> gradientMod(const Mod& mod, const std::set<std::string>& captures = {}, bool withTangents = false,
                          bool withOutputs = false);

/// Returns the tokens of a slice of a mod's grid along its first axis: a frame of a video, a row of an image. 1: q and
/// k have no common grid, or not all tokens lie on it. `captures`: null for none.
Expected<int64_t> sliceOf(const Mod& mod, const Captures* captures, const ProblemShape& problem);

/// Returns the outputs that gradientMod() added for captures.
const ir::CaptureGradients& captureGradients(const Mod& mod);

Expected<ScoreGradient> scoreGradientOf(const Mod& mod);

/// Returns Mod::Impl::key.
const std::string& keyOf(const Mod& mod);
/// Returns what a mod was read from.
const ModSource& sourceOf(const Mod& mod);

/// Returns the module as the text says it, before all passes, to show what a line computes. Captures also bind to it.
const ir::Module& tracedModule(const Mod& mod);

/// Whether kernels of these options are made from maskedByScore().
bool keepsMasks(const KernelOptions& options);

/// Returns the mod that kernels of these options are made from.
Expected<Mod> derive(const Mod& mod, const KernelOptions& options);

/// Checks that a launch gives the pinned values; Blame::Environment names the pin if not. A kernel that was compiled
/// for other values would compute a wrong result. `bindings` are for `module`.
Status checkPins(const ir::Module& module, const ir::Bindings& bindings, const std::map<std::string, int64_t>& pins);

} // namespace attnc
