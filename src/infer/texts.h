// Texts of conditions: as a user of FlexAttention writes them.
#pragma once

#include "infer/problem.h"

namespace attnc::inferred {

/// A number by slice: one number, or a table of them.
struct Bound {
  std::vector<int64_t> values; ///< By slice, as values of the text, not indices.
  std::string table;           ///< Wanted name of the table.
};

/// Returns atoms without rows, with the texts of `q - kv >= low`, `q - kv <= high` and so on. `isCorner`: whether
/// distances count from the last key of the last query.
Atom distanceAtLeast(const Problem& problem, const Bound& low, bool isCorner);
/// `offset`: the key of query 0, from which distances below 0 are counted.
Atom distanceAtMost(const Problem& problem, const Bound& high, bool isCorner, int64_t offset);
/// `isLow`: whether the position is at least the bound, else at most.
Atom atBound(const Problem& problem, bool isRow, const Bound& bound, bool isLow);

/// Returns the index into a table of an axis: "[b, q_idx]".
std::string indexOf(const Problem& problem, const std::vector<std::string>& axes);
std::string positionOf(const Axis& axis);
/// Returns a table with the extents of the slices, then `extent`.
TablePtr tableOf(const Problem& problem, std::string name, bool isBool, const std::vector<std::string>& extent,
                 const std::vector<int64_t>& shape, std::vector<int32_t> values);
std::string mark(const TablePtr& table);

} // namespace attnc::inferred
