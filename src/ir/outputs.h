// Outputs: results of a module, each with a name and its own parameters.
#pragma once

#include "ir/params.h"

#include <llvm/ADT/StringRef.h>

#include <string>
#include <string_view>

namespace attnc::ir {

/// Index of a node in its module.
struct Value {
  uint32_t id = 0;
  friend bool operator==(Value a, Value b) { return a.id == b.id; }
  friend bool operator!=(Value a, Value b) { return a.id != b.id; }
};

/// One result of a module. It depends only on `params`, some of which may go unused.
struct Output {
  std::string name; ///< an identifier, unique in its module
  ParamSet params;
  Value value;
  /// Words of the error if a condition does not hold; empty if the output is not a condition. bind() checks conditions
  /// at every launch. A condition is a bool of only extents and run-time scalars: it has no parameters and reads no
  /// tensor.
  std::string words = {};
  uint32_t line = 0; ///< for a condition: 1-based line of the mod's text; 0 if unknown. Not part of the identity.

  bool isCondition() const { return !words.empty(); }
};

/// The contract of an output with a well-known name. Readers rely on it; the verifier enforces it.
struct OutputRole {
  std::string_view name;
  Type type;
  ParamSet params; ///< those that its readers can give
  operator llvm::StringRef() const { return name; }
};

/// What score_mod returns: the input of softmax.
inline constexpr OutputRole kScore = {
    "score", Type::F32, {ParamKind::Score, ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx}};
/// What mask_mod returns: whether the element takes part.
inline constexpr OutputRole kMask = {
    "mask", Type::Bool, {ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx}};

/// The gradient that q and k receive: grad, the gradient of score_mod's result, times the derivative of score_mod by
/// its score (src/passes/autodiff.h).
inline constexpr OutputRole kDScore = {
    "d_score",
    Type::F32,
    {ParamKind::Score, ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx, ParamKind::Grad}};

/// What prob_mod multiplies a weight of the softmax by, before the weight multiplies v. Missing: 1.
inline constexpr OutputRole kProbFactor = {
    "prob_factor", Type::F32, {ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx}};

/// What sink_mod returns: the logit, in units of scores, of one more term of a row's denominator, whose value is 0.
/// Missing, or -inf: no term.
inline constexpr OutputRole kSink = {"sink", Type::F32, {ParamKind::B, ParamKind::H, ParamKind::QIdx}};

/// True in a module whose output score is the weight that multiplies v, in place of the softmax (weight_mod). Weights
/// of elements that are not live are 0. Such a module has neither prob_factor nor sink. Missing: there is a softmax.
inline constexpr OutputRole kIsWeight = {"is_weight", Type::Bool, {}};

/// What prob_mod makes of a weight of the softmax, `prob`, and multiplies v by, if that is not proved to be `prob`
/// times a factor. In place of prob_factor: a launch finds lse first, and computes weights in a second walk
/// (src/passes/two_walks.h).
inline constexpr OutputRole kProbWeight = {
    "prob_weight", Type::F32, {ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx, ParamKind::Prob}};

// Outputs that passes derive for kernels (src/passes/derive.h). In a module with any of the first five, the output
// score is what remains: score_mod(s) = scale_out * score(scale_in * s) + row_shift. A missing factor is 1, a missing
// term 0.
inline constexpr OutputRole kScaleIn = {"scale_in", Type::F32, {ParamKind::B, ParamKind::H}};
inline constexpr OutputRole kScaleOut = {"scale_out", Type::F32, {ParamKind::B, ParamKind::H}}; ///< positive
/// The only remaining use of f32(q_idx). Positions may count from any origin that kv_term shares.
inline constexpr OutputRole kRowShift = {"row_shift", Type::F32, {ParamKind::B, ParamKind::H, ParamKind::QIdx}};
inline constexpr OutputRole kKvSlope = {"kv_slope", Type::F32, {ParamKind::B, ParamKind::H}};
/// kv_slope * f32(kv_idx), a part of the score: the only remaining use of f32(kv_idx).
inline constexpr OutputRole kKvTerm = {"kv_term", Type::F32, {ParamKind::B, ParamKind::H, ParamKind::KvIdx}};
/// Column kv of a row is live if and only if kv_begin <= kv < kv_end, for 0 <= kv < KV_LEN. Both may lie outside [0,
/// KV_LEN], at most 2^30 away from 0. The row is empty if kv_begin >= kv_end. Each moves in only one direction as q_idx
/// grows.
inline constexpr OutputRole kKvBegin = {"kv_begin", Type::I32, {ParamKind::B, ParamKind::H, ParamKind::QIdx}};
inline constexpr OutputRole kKvEnd = {"kv_end", Type::I32, {ParamKind::B, ParamKind::H, ParamKind::QIdx}};

// Outputs about sequences of a batch that differ in length or place (the pass `sequences`).
/// Rows of K and V of a batch entry, 0 to KV_LEN. Columns behind them are not live.
inline constexpr OutputRole kKvLength = {"kv_length", Type::I32, {ParamKind::B}};
/// Position of the first query of a batch entry, -kMaxExtent to kMaxExtent - Q_LEN. In a module with this output q_idx
/// is the position of a query: q_offset plus its row of q. It may be negative.
inline constexpr OutputRole kQOffset = {"q_offset", Type::I32, {ParamKind::B}};
/// For a ragged batch, whose sequences are concatenated: the number of q rows of a batch entry, 0 to Q_LEN; its first
/// row of q; its first row of k and v. A module has these three and kv_length, or none of them.
inline constexpr OutputRole kQLength = {"q_length", Type::I32, {ParamKind::B}};
inline constexpr OutputRole kQStart = {"q_start", Type::I32, {ParamKind::B}};
inline constexpr OutputRole kKvStart = {"kv_start", Type::I32, {ParamKind::B}};

/// For kernels that compute a low-rank term of the score as columns of q and k: the score that score_mod is given
/// includes the sum of q_factor * kv_factor over all rounds.
inline constexpr OutputRole kQFactor = {
    "q_factor", Type::F32, {ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::Round}};
inline constexpr OutputRole kKvFactor = {
    "kv_factor", Type::F32, {ParamKind::B, ParamKind::H, ParamKind::KvIdx, ParamKind::Round}};

/// Dropout in parts (derive-drops), in place of prob_factor. A number r of random() by the seed, at the position, is a
/// multiple of 2^-24; n = 2^24 r. Dropped are weights with n < 2^16 drop_below + drop_rest; with drop_above in place of
/// drop_below, those with 2^24 - 1 - n below that. kept_factor, positive, multiplies the others. 0 <= drop_below <=
/// 2^8, 0 <= drop_rest < 2^16; a missing drop_rest is 0.
inline constexpr OutputRole kDropSeed = {"drop_seed", Type::I64, {ParamKind::B, ParamKind::H}};
inline constexpr OutputRole kDropBelow = {"drop_below", Type::I32, {ParamKind::B, ParamKind::H}};
inline constexpr OutputRole kDropAbove = {"drop_above", Type::I32, {ParamKind::B, ParamKind::H}};
inline constexpr OutputRole kDropRest = {"drop_rest", Type::I32, {ParamKind::B, ParamKind::H}};
inline constexpr OutputRole kKeptFactor = {"kept_factor", Type::F32, {ParamKind::B, ParamKind::H}};

/// The tangent of score_mod's result along those of the score and of captures; and that of d_score
/// (src/passes/tangents.h).
inline constexpr OutputRole kTScore = {
    "t_score",
    Type::F32,
    {ParamKind::Score, ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx, ParamKind::ScoreTangent}};
inline constexpr OutputRole kTDScore = {"t_d_score",
                                        Type::F32,
                                        {ParamKind::Score, ParamKind::B, ParamKind::H, ParamKind::QIdx,
                                         ParamKind::KvIdx, ParamKind::Grad, ParamKind::ScoreTangent,
                                         ParamKind::GradTangent}};

/// The tangent of what sink_mod returns.
inline constexpr OutputRole kTSink = {"t_sink", Type::F32, {ParamKind::B, ParamKind::H, ParamKind::QIdx}};

/// In modules with gradients of outputs: what the loss that reads the outputs gives to an element's weight, and to what
/// score_mod returned. `score` is what score_mod returned, `prob` its weight (src/passes/output_gradients.h).
inline constexpr OutputRole kProbGradient = {
    "prob_gradient",
    Type::F32,
    {ParamKind::Score, ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx, ParamKind::Prob}};
inline constexpr OutputRole kScoreGradient = {"score_gradient", Type::F32, kProbGradient.params};

/// The gradient that a weight of the softmax receives from prob_weight: grad, the gradient of prob_weight, times its
/// derivative by `prob` (src/passes/autodiff.h).
inline constexpr OutputRole kDProb = {
    "d_prob",
    Type::F32,
    {ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx, ParamKind::Prob, ParamKind::Grad}};

/// For a mod that chooses between mods by the sequence: which of them a head has, from 0 on; -1 if no score of it
/// lives.
inline constexpr OutputRole kVariant = {"variant", Type::I32, {ParamKind::B, ParamKind::H}};

/// All roles, in the order in which a module keeps their outputs.
inline constexpr OutputRole kRoles[] = {
    kScore,    kMask,    kDScore,   kProbFactor,   kSink,          kIsWeight,  kProbWeight, kScaleIn,    kScaleOut,
    kRowShift, kKvSlope, kKvTerm,   kKvBegin,      kKvEnd,         kKvLength,  kQOffset,    kQLength,    kQStart,
    kKvStart,  kQFactor, kKvFactor, kDropSeed,     kDropBelow,     kDropAbove, kDropRest,   kKeptFactor, kTScore,
    kTDScore,  kTSink,   kVariant,  kProbGradient, kScoreGradient, kDProb};
/// The roles about sequences.
inline constexpr OutputRole kSequenceRoles[] = {kKvLength, kQOffset, kQLength, kQStart, kKvStart};
/// The roles that passes derive for kernels.
inline constexpr const OutputRole* kDerivedRoles = kRoles + 7;
/// Returns the role of this name; null if the name is not well known.
const OutputRole* roleNamed(llvm::StringRef name);

} // namespace attnc::ir
