// What plans, code generation and the public interface ask of a mod beside its outputs, found out once.
//
// In: a module as kernels are written from it: after the passes, with what they derive for kernels. Out: plain values.
// Nobody who reads them looks at the IR for a decision.
#pragma once

#include "ir/ir.h"

#include <array>
#include <optional>

namespace attnc::analysis {

/// How many registers a mod takes beside the tile.
enum class Weight {
  None,   ///< no mod
  Light,  ///< scores pass unchanged, and mask_mod is a few comparisons
  Medium, ///< arithmetic on every score
  Gather, ///< captured tensors by column
  Heavy,  ///< a gather or an angle for every score
};

/// What the score is, with all that stands in outputs of its own taken out of it.
enum class ScoreForm {
  Identity,   ///< the score that the mod is given
  Linear,     ///< that plus kv_term
  Tanh,       ///< its tanh: a soft cap, whose factors are scale_in and scale_out
  TanhApprox, ///< likewise, by the hardware's approximate tanh
  General,
};

/// How the bounds of a row's live columns move as q_idx grows.
struct KvEdges {
  bool beginFalls = false; ///< else it never does
  bool endFalls = false;
};

struct ModFacts {
  Weight weight = Weight::None;
  ScoreForm form = ScoreForm::Identity;
  bool masks = false;             ///< there is a mask_mod, and it is not constantly true
  std::optional<KvEdges> kvEdges; ///< iff the live columns of a row are exactly those from kv_begin to before kv_end
  bool passesGradient = false;    ///< there is a d_score, and it is not constantly 0
  bool keepsGradient = false;     ///< it is the gradient that comes in, as where score_mod adds to the score
  std::array<bool, 5> loads{};    ///< whether captured tensors are read, by level

  bool loadsAt(ir::Level level) const { return loads[size_t(level)]; }
};

ModFacts modFacts(const ir::Module& module);

} // namespace attnc::analysis
