// Outputs: what a module computes, each under a name and from parameters of its own.
#pragma once

#include "ir/params.h"

#include <llvm/ADT/StringRef.h>

#include <string>

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
};

/// What an output of a well-known name is: those who read it rely on it, and the verifier asks for it.
struct OutputRole {
  const char* name;
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

/// grad times the derivative of score_mod by its score: what q and k get of the gradient that score_mod got.
inline constexpr OutputRole kDScore = {
    "d_score",
    Type::F32,
    {ParamKind::Score, ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx, ParamKind::Grad}};

/// All roles, in the order in which a module keeps their outputs.
inline constexpr OutputRole kRoles[] = {kScore, kMask, kDScore};
/// The role of this name; null if the name is not well known.
const OutputRole* roleNamed(llvm::StringRef name);

} // namespace attnc::ir
