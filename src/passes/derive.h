// The module that kernels are written from: a mod's module with the outputs that passes derive for kernels.
#pragma once

#include "attnc/error.h"
#include "ir/ir.h"
#include "passes/pipeline.h"

namespace attnc::passes {

/// Which parts of the score become outputs of their own. Only kernels that use templates/algo/apply_mod.cuh apply them;
/// other kernels would lose them.
struct Algebra {
  bool scale = false; ///< factors of the score that are known per head; soft caps become tanh
  /// The row terms of ALiBi and similar penalties become row_shift. For kernels that count positions from their tile;
  /// other kernels would round the term.
  bool rowShift = false;

  /// Dropout in parts, for kernels with templates/algo/drops.cuh.
  bool drops = false;

  /// A text for each mod of a choice, for kernels that compute one of them for a tile (src/analysis/variants.h).
  bool variants = false;

  /// The interval of live columns of each row. Box kernels use the box instead.
  bool kvBounds = true;

  /// What becomes of a low-rank term (derive-low-rank).
  enum class LowRank : uint8_t {
    Kept,    ///< a part of the score
    Left,    ///< not computed: the score that the mod is given includes it
    Factors, ///< only its factors are outputs; there is neither score nor mask
  };
  LowRank lowRank = LowRank::Kept;

  friend auto operator<=>(const Algebra&, const Algebra&) = default;
};

/// Adds derived outputs to a module after runPipeline(): bounds, and the parts that the algebra takes out of the score.
/// Existing values keep their ids. `options`: for these passes. Errors (Blame::Internal): a pass that broke the module.
Status deriveForKernels(ir::Module& module, Algebra algebra, const PipelineOptions& options = {});

} // namespace attnc::passes
