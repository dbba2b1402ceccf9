// What kernels are written from: a mod's module with the outputs that passes derive for them.
#pragma once

#include "attnc/error.h"
#include "ir/ir.h"

namespace attnc::passes {

/// What leaves the score for outputs of its own: for kernels that go through templates/algo/apply_mod.cuh. Others would
/// miss it.
struct Algebra {
  bool scale = false; ///< factors of the score that heads know; soft caps take the form of tanh
  /// ALiBi and its like leave their row terms to row_shift. For kernels that count positions from their tile; others
  /// would round the term.
  bool rowShift = false;

  /// Live columns of a row from one to another. Kernels by boxes of a grid have the box.
  bool kvBounds = true;

  friend auto operator<=>(const Algebra&, const Algebra&) = default;
};

/// Adds derived outputs to a module after runPipeline(): its bounds, and what the algebra takes out of the score. The
/// values of the module stay where they are. Errors (Blame::Internal): a pass that broke the module.
Status deriveForKernels(ir::Module& module, Algebra algebra);

} // namespace attnc::passes
