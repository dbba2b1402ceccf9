// A mod as kernels are written from it: derived, analysed and written once, for all who plan, compile or explain.
#pragma once

#include "analysis/gradient_access.h"
#include "analysis/mod_facts.h"
#include "attnc/kernel.h"
#include "codegen/mod_source.h"
#include "passes/derive.h"
#include "passes/grid_kernel.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attnc::plan {

/// What kernels of a mod are written for.
struct ModForm {
  passes::Algebra algebra;
  bool gradients; ///< with the hooks of gradients of captures
  bool onGrid;    ///< for kernels by boxes: passes/grid_kernel.h

  ModForm(passes::Algebra algebra = {}, bool gradients = false, bool onGrid = false)
      : algebra(algebra), gradients(gradients), onGrid(onGrid) {}
  friend auto operator<=>(const ModForm&, const ModForm&) = default;
};

/// A capture whose gradient is computed.
struct CaptureAccess {
  std::string name;
  std::vector<analysis::GradientAccess> places; ///< where it is read
};

struct KernelMod {
  ir::Module module; ///< with the outputs that passes derive
  analysis::ModFacts facts;
  codegen::ModSource source;
  std::vector<CaptureAccess> captures; ///< in the order of the hooks' kCapture
  std::shared_ptr<const passes::GridKernel> grid; ///< what kernels by boxes are written from; null: there are none
  /// Of mods with gradients: what kernels by boxes know of a score, and keep of a query. Unset: they cannot be written.
  struct OnGrid {
    analysis::ScoreForm form;
    int rowBytes;
  };
  std::optional<OnGrid> onGrid;
};

/// `module`: after runPipeline(); `gradients` are outputs of it. Errors: those of deriveForKernels().
Expected<KernelMod> makeKernelMod(const ir::Module& module, ModForm form, const ir::CaptureGradients& gradients = {});

/// How often this process called makeKernelMod(). Tests hold the compiler to once for each mod and form.
int kernelModsMade();

/// The algebra of kernels that go through templates/algo/apply_mod.cuh. The form of soft caps errs by 6e-7 of the cap,
/// more than the products of f32 do.
constexpr passes::Algebra algebraFor(DType dtype) { return {.scale = dtype != DType::F32, .rowShift = true}; }

/// The algebra of kernels by boxes, which take bf16 and fp16.
constexpr passes::Algebra kAlgebraOnGrid = {.scale = true, .kvBounds = false};

/// The algebra of the kernels that options ask for. Plans are chosen by the KernelMod of this algebra.
passes::Algebra algebraFor(const KernelOptions& options);

} // namespace attnc::plan
