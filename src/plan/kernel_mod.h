// A mod in the form that kernels are written from. It is derived, analysed and written once, then planned, compiled and
// explained from here.
#pragma once

#include "analysis/gradient_access.h"
#include "analysis/low_rank.h"
#include "analysis/mod_facts.h"
#include "attnc/kernel.h"
#include "codegen/mod_source.h"
#include "ir/reductions.h"
#include "passes/derive.h"
#include "passes/grids/grid_kernel.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attnc::plan {

/// The kind of kernel that a mod is written for.
struct ModForm {
  passes::Algebra algebra;
  bool gradients;   ///< whether it has the hooks for gradients of captures
  bool onGrid;      ///< whether it is for box kernels: passes/grids/grid_kernel.h
  bool judges;      ///< whether it has the hook for blocks of scores
  bool reduces;     ///< whether it has the hooks for reductions
  bool walksSecond; ///< whether it is for the second walk of two: passes/two_walks.h

  ModForm(passes::Algebra algebra = {}, bool gradients = false, bool onGrid = false, bool judges = false,
          bool reduces = false, bool walksSecond = false)
      : algebra(algebra), gradients(gradients), onGrid(onGrid), judges(judges), reduces(reduces),
        walksSecond(walksSecond) {}
  friend auto operator<=>(const ModForm&, const ModForm&) = default;
};

/// A capture whose gradient is computed.
struct CaptureAccess {
  std::string name;
  std::vector<analysis::GradientAccess> places; ///< the accesses of scores that read it
  bool inSink = false;                          ///< whether sink_mod reads it
  bool inOutputs = false;                       ///< whether outputs of the mod read it
  bool inColumns =
      false; ///< whether columns of dQ and dK have it: passes/factor_gradients.h. Places are of factors then

  /// Whether a kernel must walk the scores for it.
  bool needsScores() const { return !inColumns && !(inSink && places.empty()); }
};

struct KernelMod {
  ir::Module module; ///< includes the outputs that passes derive
  analysis::ModFacts facts;
  codegen::ModSource source;
  std::vector<codegen::Variant> variants;         ///< of a choice; the text has each
  std::vector<CaptureAccess> captures;            ///< in the order of the hooks' kCapture
  std::vector<ir::Reduction> reductions;          ///< of the mod, in the order of the hooks' kIndex
  std::shared_ptr<const passes::GridKernel> grid; ///< what box kernels are written from. Null if there are none
  analysis::LowRank lowRank;                      ///< of the mod as it is written; empty in other forms
  /// What kernels of the second walk are written from, if forward passes take two: passes/two_walks.h. Null if they
  /// take one.
  std::shared_ptr<const KernelMod> secondWalk;
  /// The mod without its low-rank term, for kernels that take the term with the score. Null if it has none.
  std::shared_ptr<const KernelMod> withoutLowRank;
  /// What box kernels know of a score and keep for each query, in mods with gradients. Unset if no backward box kernel
  /// can be written.
  struct OnGrid {
    analysis::ScoreForm form;
    int rowBytes;
  };
  std::optional<OnGrid> onGrid;
};

/// Makes a KernelMod. `module`: after runPipeline(); `gradients` are outputs of it. Errors: those of
/// deriveForKernels().
Expected<KernelMod> makeKernelMod(const ir::Module& module, ModForm form, const ir::CaptureGradients& gradients = {});

/// Returns the algebra of kernels that go through templates/algo/apply_mod.cuh. F32 is excluded, because the form for
/// soft caps errs by 6e-7 of the cap, more than f32 products do.
constexpr passes::Algebra algebraFor(DType dtype) {
  return {.scale = dtype != DType::F32, .rowShift = true, .variants = true};
}

/// Returns the algebra of box kernels.
constexpr passes::Algebra algebraOnGrid(DType dtype) { return {.scale = dtype != DType::F32, .kvBounds = false}; }

/// Returns the algebra of the kernels that options ask for. Plans are chosen with the KernelMod of this algebra.
passes::Algebra algebraFor(const KernelOptions& options);

} // namespace attnc::plan
