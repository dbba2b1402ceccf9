// How q_idx and kv_idx are taken apart: the values of a module that are quotients and remainders of positions.
//
// A quotient of a remainder of a quotient ... of a position is a slice of its digits: floor(position / lo) mod (hi /
// lo), without the modulo where hi is unset.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/SmallVector.h>

#include <optional>
#include <vector>

namespace attnc::analysis {

/// A constant, scalars and extents of the launch, multiplied. All of them are taken to be at least 1.
struct TokenCount {
  int64_t constant = 1;
  llvm::SmallVector<uint32_t, 2> factors = {}; ///< Value::id, in order
  friend bool operator==(const TokenCount& a, const TokenCount& b) {
    return a.constant == b.constant && a.factors == b.factors;
  }
  bool isConstant() const { return factors.empty(); }
};

/// a * b; nothing where the constant is more than there can be tokens.
std::optional<TokenCount> times(const TokenCount& a, const TokenCount& b);
/// a / b, where that is a product whatever the factors are.
std::optional<TokenCount> over(const TokenCount& a, const TokenCount& b);
inline bool divides(const TokenCount& a, const TokenCount& b) { return over(b, a).has_value(); }

struct PositionSlice {
  ir::ParamKind of = ir::ParamKind::QIdx;
  TokenCount lo;
  std::optional<TokenCount> hi;
  ir::Value operand;                      ///< the slice that it is taken of; of a position itself, that
  llvm::SmallVector<TokenCount, 2> asked; ///< what it, and what it is taken of, divide by
  bool isPosition() const { return lo == TokenCount() && !hi; }
};

/// A comparison of a position with a number of tokens.
struct PositionBound {
  ir::ParamKind of;
  TokenCount tokens;
  bool isBelow; ///< position < tokens, else position >= tokens
};

class PositionSlices {
public:
  explicit PositionSlices(const ir::Module& module);

  const std::optional<PositionSlice>& of(ir::Value value) const { return slices[value.id]; }
  /// Null: the value is none.
  const PositionBound* bound(ir::Value value) const;
  /// Slices that something else is computed of, but positions themselves.
  llvm::ArrayRef<ir::Value> ends() const { return allEnds; }

private:
  std::optional<TokenCount> countOf(ir::Value value) const;
  std::optional<TokenCount> divisorOfRest(const ir::Node& node);
  std::optional<PositionSlice> sliceOf(ir::Value value);
  std::optional<PositionBound> boundOf(ir::Value value) const;
  bool isRestAlone(ir::Value multiple) const;
  void collectEnds();

  const ir::Module& module;
  const std::vector<bool> needed; ///< by Value::id, as all here
  std::vector<std::optional<PositionSlice>> slices;
  std::vector<bool> isMultiple; ///< x // w * w of a remainder
  llvm::DenseMap<uint32_t, PositionBound> bounds;
  std::vector<ir::Value> allEnds;
};

} // namespace attnc::analysis
