// Outputs: what a module computes, each under a name and from parameters of its own.
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

/// One result of a module. It depends on no other parameters than `params`; some of them may go unused.
struct Output {
  std::string name; ///< an identifier, unique in its module
  ParamSet params;
  Value value;
  /// Of a condition, which bind() asks of every launch: what is said where it does not hold. Its value is a bool of
  /// extents and run-time scalars alone: it has no parameters and reads no tensor. Empty: no condition.
  std::string words = {};
  uint32_t line = 0; ///< of a condition: 1-based line of the mod's text; 0 if none. Not part of the identity.

  bool isCondition() const { return !words.empty(); }
};

/// What an output of a well-known name is: those who read it rely on it, and the verifier asks for it.
struct OutputRole {
  std::string_view name;
  Type type;
  ParamSet params; ///< those that its readers can give
  operator llvm::StringRef() const { return name; }
};

/// What score_mod returns: the score that softmax sees.
inline constexpr OutputRole kScore = {
    "score", Type::F32, {ParamKind::Score, ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx}};
/// What mask_mod returns: whether the element takes part.
inline constexpr OutputRole kMask = {
    "mask", Type::Bool, {ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx}};

/// grad times the derivative of score_mod by its score: what q and k get of the gradient that score_mod got
/// (src/passes/autodiff.h).
inline constexpr OutputRole kDScore = {
    "d_score",
    Type::F32,
    {ParamKind::Score, ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx, ParamKind::Grad}};

// What passes derive for kernels (src/passes/derive.h). The score of a module with any of the first five is what is
// left of it: score_mod(s) = scale_out * score(scale_in * s) + row_shift, where an output that is missing is 1, or 0.
inline constexpr OutputRole kScaleIn = {"scale_in", Type::F32, {ParamKind::B, ParamKind::H}};
inline constexpr OutputRole kScaleOut = {"scale_out", Type::F32, {ParamKind::B, ParamKind::H}}; ///< positive
/// The only use of f32(q_idx) that is left. It may count from any position, the same as f32(kv_idx) in kv_term.
inline constexpr OutputRole kRowShift = {"row_shift", Type::F32, {ParamKind::B, ParamKind::H, ParamKind::QIdx}};
inline constexpr OutputRole kKvSlope = {"kv_slope", Type::F32, {ParamKind::B, ParamKind::H}};
/// kv_slope * f32(kv_idx), a part of the score: the only use of f32(kv_idx) that is left.
inline constexpr OutputRole kKvTerm = {"kv_term", Type::F32, {ParamKind::B, ParamKind::H, ParamKind::KvIdx}};
/// Column kv of a row lives if and only if kv_begin <= kv < kv_end, for 0 <= kv < KV_LEN. Both may lie outside
/// [0, KV_LEN], at most 2^30 away from 0; kv_begin > kv_end is an empty row, too. As q_idx grows, each moves in one
/// direction only.
inline constexpr OutputRole kKvBegin = {"kv_begin", Type::I32, {ParamKind::B, ParamKind::H, ParamKind::QIdx}};
inline constexpr OutputRole kKvEnd = {"kv_end", Type::I32, {ParamKind::B, ParamKind::H, ParamKind::QIdx}};

// Of sequences of a batch that differ in length and place (the pass `sequences`).
/// Rows of K and V that a batch entry has, 0 to KV_LEN: no column behind them lives.
inline constexpr OutputRole kKvLength = {"kv_length", Type::I32, {ParamKind::B}};
/// The position of the first query of a batch entry, -kMaxExtent to kMaxExtent - Q_LEN. In a module that has it, q_idx
/// is the position of a query, q_offset plus its row of q; it may be negative.
inline constexpr OutputRole kQOffset = {"q_offset", Type::I32, {ParamKind::B}};
/// Of a ragged batch, whose sequences lie one behind the other: the rows of q that a batch entry has, 0 to Q_LEN, and
/// the first of them; likewise its first row of k and v. A module has all three, and kv_length, or none.
inline constexpr OutputRole kQLength = {"q_length", Type::I32, {ParamKind::B}};
inline constexpr OutputRole kQStart = {"q_start", Type::I32, {ParamKind::B}};
inline constexpr OutputRole kKvStart = {"kv_start", Type::I32, {ParamKind::B}};

/// All roles, in the order in which a module keeps their outputs.
inline constexpr OutputRole kRoles[] = {kScore,   kMask,  kDScore,   kScaleIn, kScaleOut, kRowShift, kKvSlope, kKvTerm,
                                        kKvBegin, kKvEnd, kKvLength, kQOffset, kQLength,  kQStart,   kKvStart};
/// Those that are said of sequences.
inline constexpr OutputRole kSequenceRoles[] = {kKvLength, kQOffset, kQLength, kQStart, kKvStart};
/// Those that passes derive for kernels.
inline constexpr const OutputRole* kDerivedRoles = kRoles + 3;
/// The role of this name; null if the name is not well known.
const OutputRole* roleNamed(llvm::StringRef name);

} // namespace attnc::ir
