// A mod as kernels are written from it: derived, analysed and written once, for all who plan, compile or explain.
#pragma once

#include "analysis/mod_facts.h"
#include "attnc/kernel.h"
#include "codegen/mod_source.h"
#include "passes/derive.h"

namespace attnc::plan {

struct KernelMod {
  ir::Module module; ///< with the outputs that passes derive
  analysis::ModFacts facts;
  codegen::ModSource source;
};

/// `module`: after runPipeline(). Errors: those of deriveForKernels().
Expected<KernelMod> makeKernelMod(const ir::Module& module, passes::Algebra algebra);

/// How often this process called makeKernelMod(). Tests hold the compiler to once for each mod and algebra.
int kernelModsMade();

/// The algebra of kernels that go through templates/algo/apply_mod.cuh. The form of soft caps errs by 6e-7 of the cap,
/// more than the products of f32 do.
constexpr passes::Algebra algebraFor(DType dtype) { return {.scale = dtype != DType::F32, .rowShift = true}; }

/// The algebra of the kernels that options ask for. Plans are chosen by the KernelMod of this algebra.
passes::Algebra algebraFor(const KernelOptions& options);

} // namespace attnc::plan
