#include "infer/texts.h"

#include <fmt/format.h>

namespace attnc::inferred {
namespace {

bool isConstant(const Bound& bound) {
  return std::all_of(bound.values.begin(), bound.values.end(), [&](int64_t v) { return v == bound.values.front(); });
}

struct Number {
  std::string text;
  TablePtr table; ///< null of one number
};

Number numberOf(const Problem& problem, const Bound& bound, int64_t add) {
  if (isConstant(bound)) return {fmt::format("{}", bound.values.front() + add), nullptr};
  std::vector<int32_t> values;
  for (const int64_t value : bound.values) values.push_back(int32_t(value + add));
  const TablePtr table = tableOf(problem, bound.table, false, {}, {}, std::move(values));
  return {mark(table) + indexOf(problem, {}), table};
}

int roundness(int64_t value) { return value <= 0 ? 0 : std::countr_zero(uint64_t(value)) + (value % 10 == 0 ? 2 : 0); }

/// Sets the texts of x <= value.
void setAtMost(Atom& atom, const Problem& problem, const std::string& x, const Bound& bound) {
  const int64_t value = bound.values.front();
  const bool isStrict = !isConstant(bound) || roundness(value + 1) >= roundness(value);
  const Number number = numberOf(problem, bound, isStrict);
  atom.text = fmt::format("{} {} {}", x, isStrict ? "<" : "<=", number.text);
  atom.negated = fmt::format("{} {} {}", x, isStrict ? ">=" : ">", number.text);
  if (number.table) atom.tables.push_back(number.table);
  if (x.find('%') != std::string::npos && !number.table && value == 0) { // the remainder 0
    atom.text = x + " == 0";
    atom.negated = x + " != 0";
  }
}

void setAtLeast(Atom& atom, const Problem& problem, const std::string& x, const Bound& bound) {
  Bound below = bound;
  for (int64_t& value : below.values) --value;
  setAtMost(atom, problem, x, below);
  std::swap(atom.text, atom.negated);
}

/// Sets what the atoms of a distance a - b have in common.
void setPlace(Atom& atom, const std::string& a, const std::string& b, const Bound& bound, bool isCorner) {
  atom.value = bound.values.front();
  atom.left = a + (isCorner ? " + KV_LEN - Q_LEN" : ""), atom.right = b;
  atom.variable = fmt::format("{} - {}", atom.left, b);
}

/// Sets the texts of a - b >= low.
void setDistance(Atom& atom, const Problem& problem, const std::string& a, const std::string& b, const Bound& low,
                 bool isCorner) {
  setPlace(atom, a, b, low, isCorner);
  const int64_t value = low.values.front();
  if (!isConstant(low) || value > 1) return setAtLeast(atom, problem, atom.variable, low);
  const std::string left = value < 0 ? fmt::format("{} + {}", atom.left, -value) : atom.left;
  atom.text = fmt::format("{} {} {}", left, value == 1 ? ">" : ">=", b);
  atom.negated = fmt::format("{} {} {}", left, value == 1 ? "<=" : "<", b);
}

void setDistanceMost(Atom& atom, const Problem& problem, const std::string& a, const std::string& b, const Bound& high,
                     bool isCorner) {
  setPlace(atom, a, b, high, isCorner);
  const int64_t value = high.values.front();
  if (!isConstant(high) || value > 0) return setAtMost(atom, problem, atom.variable, high);
  if (value < -1) {
    Bound low = high;
    for (int64_t& one : low.values) one = -one;
    return setAtLeast(atom, problem, fmt::format("{} - {}{}", b, a, isCorner ? " - KV_LEN + Q_LEN" : ""), low);
  }
  atom.text = fmt::format("{} {} {}", atom.left, value ? "<" : "<=", b);
  atom.negated = fmt::format("{} {} {}", atom.left, value ? ">=" : ">", b);
}

Bound shifted(Bound bound, int64_t by) {
  for (int64_t& value : bound.values) value += by;
  return bound;
}

} // namespace

std::string positionOf(const Axis& axis) {
  return axis.first == 0  ? axis.text
         : axis.first < 0 ? fmt::format("{} + {}", axis.text, -axis.first)
                          : fmt::format("{} - {}", axis.text, axis.first);
}

std::string indexOf(const Problem& problem, const std::vector<std::string>& axes) {
  std::vector<std::string> all;
  if (problem.batch > 1) all.push_back("b");
  if (problem.heads > 1) all.push_back("h");
  all.insert(all.end(), axes.begin(), axes.end());
  return fmt::format("[{}]", fmt::join(all, ", "));
}

std::string mark(const TablePtr& table) { return fmt::format("${}$", static_cast<const void*>(table.get())); }

TablePtr tableOf(const Problem& problem, std::string name, bool isBool, const std::vector<std::string>& extent,
                 const std::vector<int64_t>& shape, std::vector<int32_t> values) {
  Table table{std::move(name), isBool, {}, {}, std::move(values), extent.size() > 1};
  if (problem.batch > 1) table.extent.push_back("B"), table.shape.push_back(problem.batch);
  if (problem.heads > 1) table.extent.push_back("H"), table.shape.push_back(problem.heads);
  table.extent.insert(table.extent.end(), extent.begin(), extent.end());
  table.shape.insert(table.shape.end(), shape.begin(), shape.end());
  return std::make_shared<const Table>(std::move(table));
}

Atom distanceAtLeast(const Problem& problem, const Bound& low, bool isCorner) {
  Atom atom;
  atom.kind = isConstant(low) ? Atom::Kind::DistanceLow : Atom::Kind::Other;
  const int64_t shift = isCorner ? problem.columns() - problem.rows() : 0;
  setDistance(atom, problem, problem.q.text, problem.kv.text, shifted(low, shift), isCorner);
  return atom;
}

Atom distanceAtMost(const Problem& problem, const Bound& high, bool isCorner, int64_t offset) {
  Atom atom;
  atom.kind = isConstant(high) ? Atom::Kind::DistanceHigh : Atom::Kind::Other;
  const int64_t shift = isCorner ? problem.columns() - problem.rows() : 0;
  setDistanceMost(atom, problem, problem.q.text, problem.kv.text, shifted(high, shift), isCorner);
  if (!isCorner && offset && isConstant(high) && high.values.front() < -1)
    setAtMost(atom, problem, fmt::format("{} + {} - {}", problem.q.text, offset, problem.kv.text),
              shifted(high, offset));
  return atom;
}

Atom atBound(const Problem& problem, bool isRow, const Bound& bound, bool isLow) {
  using Kind = Atom::Kind;
  const Axis& axis = isRow ? problem.q : problem.kv;
  const bool isDistance = !axis.from.empty();
  Atom atom;
  atom.kind = !isConstant(bound) ? Kind::Other
              : isDistance       ? (isLow ? Kind::DistanceLow : Kind::DistanceHigh)
              : isRow            ? (isLow ? Kind::RowLow : Kind::RowHigh)
                                 : (isLow ? Kind::ColumnLow : Kind::ColumnHigh);
  if (isDistance) {
    (isLow ? setDistance : setDistanceMost)(atom, problem, axis.from, axis.to, bound, false);
    return atom;
  }
  atom.value = bound.values.front();
  atom.variable = axis.text;
  (isLow ? setAtLeast : setAtMost)(atom, problem, axis.text, bound);
  return atom;
}

} // namespace attnc::inferred
