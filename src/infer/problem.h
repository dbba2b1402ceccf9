// What is to be described: elements that must live, elements that must not, and the words for their axes.
#pragma once

#include "infer/expression.h"

#include <map>
#include <optional>

namespace attnc::inferred {

/// An axis of a problem.
struct Axis {
  std::string text;     ///< "q_idx", "q_idx // 64", "q_idx - kv_idx".
  int64_t first = 0;    ///< Value of the text at index 0.
  std::string extent;   ///< Extent in declarations: "Q_LEN", "64".
  std::string from, to; ///< If the text is a difference: of which texts.
};

/// Which tables an expression may read.
enum class Tier {
  Formula, ///< Numbers by slice.
  Lines,   ///< Also numbers by position.
  Blocks,  ///< Also intervals by position, and tables of blocks.
};

using AtomsOfTiers = std::map<Tier, std::vector<AtomPtr>>;

struct Problem {
  Relation must, dead; ///< Disjoint. What is in neither does not matter.
  Axis q, kv;
  int64_t batch = 1, heads = 1; ///< Slices; 1 if nothing depends on them.
  bool isWhole = false;         ///< Whether rows and columns are those of the mask.
  bool isGrid = false;          ///< Whether only conditions on coordinates count.
  int64_t* budget = nullptr;    ///< Words that may still be looked at. Problems within are not begun without it.
  int64_t allowance = 0;        ///< Budget of one search of the whole mask.
  AtomsOfTiers* known =
      nullptr; ///< If set: its conditions, as found, and behind them those with `must` and `dead` swapped.

  /// Returns an empty problem about other axes of the same slices.
  Problem part(int64_t rows, int64_t columns, const Axis& q, const Axis& kv) const {
    return {Relation(slices(), rows, columns),
            Relation(slices(), rows, columns),
            q,
            kv,
            batch,
            heads,
            false,
            false,
            budget};
  }
  int64_t slices() const { return must.slices; }
  int64_t rows() const { return must.rows; }
  int64_t columns() const { return must.columns; }
  /// Whether there is only one row, so that the problem is about columns.
  bool isLine() const { return must.rows == 1; }
};

/// Returns the conditions that hold for all elements that must live, and exclude one that must not.
std::vector<AtomPtr> atomsOf(const Problem& problem, Tier tier, int depth);

/// Returns an expression that is true for all elements that must live, and for none that must not. One whose text costs
/// up to `enough` ends the search.
std::optional<Expr> solve(const Problem& problem, Tier tier, int depth = 0, double enough = 0);

} // namespace attnc::inferred
