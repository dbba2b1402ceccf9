// How q_idx and kv_idx are taken apart: the values of a module that are quotients and remainders of positions, or of
// distances from a position (q_idx - TEXT).
//
// A quotient of a remainder of a quotient ... of a distance is a slice of its digits: floor((position - before) / lo)
// mod (hi / lo), without the modulo where hi is unset. This holds in front of `before`, too: quotients round down.
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

/// A place among tokens: a number, and counts that are no constants.
struct TokenPlace {
  int64_t constant = 0;
  llvm::SmallVector<TokenCount, 2> counts = {}; ///< in order
  friend bool operator==(const TokenPlace& a, const TokenPlace& b) {
    return a.constant == b.constant && a.counts == b.counts;
  }
};

TokenPlace behind(TokenPlace place, const TokenCount& count);
/// The tokens from one place to another; nothing where that is no count.
std::optional<TokenCount> countBetween(const TokenPlace& from, const TokenPlace& to);
/// Whether a <= b is known, whatever the factors are.
bool isAtMost(const TokenPlace& a, const TokenPlace& b);

struct PositionSlice {
  ir::ParamKind of = ir::ParamKind::QIdx;
  TokenPlace before; ///< that the position is counted from
  TokenCount lo;
  std::optional<TokenCount> hi;
  ir::Value operand;                      ///< the slice that it is taken of; of a whole distance, that
  llvm::SmallVector<TokenCount, 2> asked; ///< what it, and what it is taken of, divide by
  bool isWhole() const { return lo == TokenCount() && !hi; }
};

/// A comparison of a position with a place.
struct PositionBound {
  ir::ParamKind of;
  TokenPlace place;
  bool isBelow; ///< position < place, else position >= place
};

class PositionSlices {
public:
  explicit PositionSlices(const ir::Module& module);

  const std::optional<PositionSlice>& of(ir::Value value) const { return slices[value.id]; }
  /// Null: the value is none.
  const PositionBound* bound(ir::Value value) const;
  /// Slices that something else is computed of, but whole ones.
  llvm::ArrayRef<ir::Value> ends() const { return allEnds; }

private:
  // Of a value whose operands have been looked at.
  std::optional<TokenCount> countOf(ir::Value value) const;
  std::optional<TokenPlace> placeOf(ir::Value value) const;
  std::optional<PositionSlice> distanceOf(const ir::Node& node, ir::Value value) const;
  std::optional<TokenCount> divisorOfRest(const ir::Node& node);
  std::optional<PositionSlice> sliceOf(ir::Value value);
  std::optional<PositionBound> boundOf(ir::Value value) const;
  bool isRestAlone(ir::Value multiple) const;
  void collectEnds();

  const ir::Module& module;
  const std::vector<bool> needed; ///< by Value::id, as all here
  std::vector<std::optional<TokenCount>> counts;
  std::vector<std::optional<TokenPlace>> places;
  std::vector<std::optional<PositionSlice>> slices;
  std::vector<bool> isMultiple; ///< x // w * w of a remainder
  llvm::DenseMap<uint32_t, PositionBound> bounds;
  std::vector<ir::Value> allEnds;
};

} // namespace attnc::analysis
