// Expressions over atoms: what a mask is inferred to be.
//
// An atom is a condition on (slice, row, column) with its rows of bits and its text. An expression joins atoms by
// "and", "or" and "not". Texts hold captures as marks, which get names when the mod is written.
#pragma once

#include "infer/relation.h"

#include <memory>
#include <string>
#include <vector>

namespace attnc::inferred {

/// A table that the text reads. Its mark in texts is "$id$".
struct Table {
  std::string name;                ///< Wanted name.
  bool isBool = false;             ///< bool; if false, i32.
  std::vector<std::string> extent; ///< "B", "KV_LEN", "64".
  std::vector<int64_t> shape;
  std::vector<int32_t> values;
  bool isPlane = false; ///< Whether it has an axis of queries and one of keys.

  /// Whether it has a number for each batch entry or head.
  bool isOfSlices() const {
    return std::all_of(extent.begin(), extent.end(), [](const std::string& one) { return one == "B" || one == "H"; });
  }
};
using TablePtr = std::shared_ptr<const Table>;

struct Expr;

struct Atom {
  /// How comparisons of one kind merge: `q - kv >= low` and `q - kv <= high` make `abs` or `==`.
  enum class Kind { Other, DistanceLow, DistanceHigh, ColumnLow, ColumnHigh, RowLow, RowHigh };
  Kind kind = Kind::Other;
  int64_t value = 0;       ///< For these kinds, unless tables are read: the bound, inclusive.
  std::string variable;    ///< For these kinds: what is bounded.
  std::string left, right; ///< If it is a difference: of which texts.
  std::string text, negated;
  std::string what, whatNegated; ///< In words, if the text does not say it.
  std::vector<TablePtr> tables;
  std::shared_ptr<const Expr> inner; ///< If set, the text is that of this expression.
  double cost = 0;
  // Rows: an interval each, or a row of `table` each.
  std::vector<int32_t> begin, end;
  std::vector<uint32_t> index;
  Relation rows;

  void andInto(int64_t row, Word* words, int64_t count) const;
  void andNotInto(int64_t row, Word* words, int64_t count) const;
  /// Returns how many ones of `words` the atom excludes; with `inside`, how many it includes.
  int64_t countOutside(int64_t row, const Word* words, int64_t count) const;
};
using AtomPtr = std::shared_ptr<const Atom>;

struct Expr {
  enum class Kind { True, False, Leaf, And, Or };
  Kind kind = Kind::True;
  bool isNegated = false; ///< Whether a leaf is negated.
  AtomPtr atom;
  std::vector<Expr> parts;

  static Expr leaf(AtomPtr atom, bool isNegated = false) { return {Kind::Leaf, isNegated, std::move(atom), {}}; }
  static Expr join(Kind kind, std::vector<Expr> parts);
  Expr negated() const;
  /// Fills a row of `count` words, of which the last has the bits of `columns`.
  void row(int64_t at, Word* words, int64_t columns) const;
  double cost() const;
  /// Returns the cost without that of tables that have a number for each batch entry or head.
  double costByPosition() const;
  /// Returns the cost without that of tables.
  double costOfText() const;
};

/// Calls `visit` with each leaf, those within atoms included, and whether it stands negated.
template <class Visit> void forEachLeaf(const Expr& expr, Visit visit, bool flips = false) {
  if (expr.kind == Expr::Kind::Leaf) {
    if (expr.atom->inner)
      forEachLeaf(*expr.atom->inner, visit, flips != expr.isNegated);
    else
      visit(*expr.atom, flips != expr.isNegated);
  }
  for (const Expr& part : expr.parts) forEachLeaf(part, visit, flips);
}

} // namespace attnc::inferred
