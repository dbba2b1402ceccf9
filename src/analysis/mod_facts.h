// Facts about a mod that plans, code generation and the public interface need besides its outputs, computed once.
//
// In: the module that kernels are written from: after the passes, with the outputs derived for kernels. Out: plain
// values, so that their readers need not look at the IR.
#pragma once

#include "ir/ir.h"

#include <array>
#include <optional>

namespace attnc::analysis {

/// How many registers a mod takes in addition to the tile.
enum class Weight {
  None,   ///< no mod
  Light,  ///< scores pass unchanged, and mask_mod is a few comparisons
  Medium, ///< arithmetic on every score
  Gather, ///< captured tensors by column
  Heavy,  ///< a gather or an angle for every score
};

/// The form of the score, after all parts with outputs of their own were taken out.
enum class ScoreForm {
  Identity,   ///< the score that the mod is given
  Linear,     ///< the given score plus kv_term
  Tanh,       ///< tanh of the given score: a soft cap, with factors in scale_in and scale_out
  TanhApprox, ///< the same with the hardware's approximate tanh
  General,
};

/// How the bounds of a row's live columns move as q_idx grows.
struct KvEdges {
  bool beginFalls = false; ///< whether it falls; otherwise it never falls
  bool endFalls = false;
};

struct ModFacts {
  Weight weight = Weight::None;
  ScoreForm form = ScoreForm::Identity;
  bool masks = false;             ///< whether there is a mask_mod that is not constantly true
  bool masksByHead = false;       ///< whether the mask, or the bounds of live columns, read h; lengths do not
  bool hasProbMod = false;        ///< whether a prob_mod multiplies weights
  bool hasProbWeight = false;     ///< whether a prob_mod computes weights in one walk, which knows lse: backward
  bool isWeight = false;          ///< whether the score is the weight, in place of the softmax
  bool readsTensors = false;      ///< whether it has captured tensors, apart from those that only sink_mod reads
  bool drops = false;             ///< whether it is dropout in parts: derive-drops
  std::optional<KvEdges> kvEdges; ///< set if and only if the live columns of a row are exactly [kv_begin, kv_end)
  bool passesGradient = false;    ///< whether there is a d_score that is not constantly 0
  bool keepsGradient = false;     ///< whether d_score is the incoming gradient, e.g. if score_mod only adds
  std::array<bool, 5> loads{};    ///< whether captured tensors are read, by level

  bool loadsAt(ir::Level level) const { return loads[size_t(level)]; }
};

ModFacts modFacts(const ir::Module& module);

} // namespace attnc::analysis
