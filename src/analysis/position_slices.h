// How q_idx and kv_idx are split: the values of a module that are quotients and remainders of positions, or of
// distances from a position (q_idx - TEXT).
//
// A chain of quotients and remainders of a distance is a slice of its digits: floor((position - before) / lo) mod (hi /
// lo), without the modulo if hi is unset. This also holds for positions below `before`, since quotients round down.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/SmallVector.h>

#include <optional>
#include <vector>

namespace attnc::analysis {

/// A product of a constant with scalars and extents of the launch. Each factor is assumed to be at least 1.
struct TokenCount {
  int64_t constant = 1;
  llvm::SmallVector<uint32_t, 2> factors = {}; ///< Value::id of scalars and extents, in order
  friend bool operator==(const TokenCount& a, const TokenCount& b) {
    return a.constant == b.constant && a.factors == b.factors;
  }
  bool isConstant() const { return factors.empty(); }
};

/// Returns a * b; nullopt if the constant exceeds the largest number of tokens.
std::optional<TokenCount> times(const TokenCount& a, const TokenCount& b);
/// Returns a / b; nullopt unless it is a product for all values of the factors.
std::optional<TokenCount> over(const TokenCount& a, const TokenCount& b);
inline bool divides(const TokenCount& a, const TokenCount& b) { return over(b, a).has_value(); }

/// A place among tokens: a constant plus counts that are not constant.
struct TokenPlace {
  int64_t constant = 0;
  llvm::SmallVector<TokenCount, 2> counts = {}; ///< in order
  friend bool operator==(const TokenPlace& a, const TokenPlace& b) {
    return a.constant == b.constant && a.counts == b.counts;
  }
};

TokenPlace behind(TokenPlace place, const TokenCount& count);
/// Returns the number of tokens between two places; nullopt if it is not a TokenCount.
std::optional<TokenCount> countBetween(const TokenPlace& from, const TokenPlace& to);
/// Whether a <= b for all values of the factors.
bool isAtMost(const TokenPlace& a, const TokenPlace& b);

struct PositionSlice {
  ir::ParamKind of = ir::ParamKind::QIdx;
  TokenPlace before; ///< the place that the position is counted from
  TokenCount lo;
  std::optional<TokenCount> hi;
  ir::Value operand;                      ///< the slice it is taken from; of a whole distance: itself
  llvm::SmallVector<TokenCount, 2> asked; ///< divisors in the chain up to this slice
  bool isWhole() const { return lo == TokenCount() && !hi; }
};

/// A comparison of a position with a place.
struct PositionBound {
  ir::ParamKind of;
  TokenPlace place;
  bool isBelow; ///< true: position < place; false: position >= place
};

class PositionSlices {
public:
  explicit PositionSlices(const ir::Module& module);

  const std::optional<PositionSlice>& of(ir::Value value) const { return slices[value.id]; }
  /// Returns the comparison that the value is; null if it is not one.
  const PositionBound* bound(ir::Value value) const;
  /// Returns the slices (except whole ones) that are used outside of slices.
  llvm::ArrayRef<ir::Value> ends() const { return allEnds; }

private:
  // Precondition: the value's operands have been processed.
  std::optional<TokenCount> countOf(ir::Value value) const;
  std::optional<TokenPlace> placeOf(ir::Value value) const;
  std::optional<PositionSlice> distanceOf(const ir::Node& node, ir::Value value) const;
  std::optional<TokenCount> divisorOfRest(const ir::Node& node);
  std::optional<PositionSlice> sliceOf(ir::Value value);
  std::optional<PositionBound> boundOf(ir::Value value) const;
  bool isRestAlone(ir::Value multiple) const;
  void collectEnds();

  const ir::Module& module;
  const std::vector<bool> needed; ///< by Value::id, as all tables here
  std::vector<std::optional<TokenCount>> counts;
  std::vector<std::optional<TokenPlace>> places;
  std::vector<std::optional<PositionSlice>> slices;
  std::vector<bool> isMultiple; ///< products x // w * w that are part of a remainder
  llvm::DenseMap<uint32_t, PositionBound> bounds;
  std::vector<ir::Value> allEnds;
};

} // namespace attnc::analysis
