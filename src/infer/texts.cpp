#include "infer/texts.h"

#include <fmt/format.h>

namespace attnc::inferred {
namespace {

struct Number {
  bool isOne = true;
  int64_t value = 0;
  std::string text;
  TablePtr table;
};

Number numberOf(const Problem& problem, const Bound& bound, int64_t add) {
  Number number{true, bound.values.front() + add, "", nullptr};
  for (const int64_t value : bound.values) number.isOne &= value + add == number.value;
  if (number.isOne) {
    number.text = fmt::format("{}", number.value);
    return number;
  }
  std::vector<int32_t> values;
  for (const int64_t value : bound.values) values.push_back(int32_t(value + add));
  number.table = tableOf(problem, bound.table, false, {}, {}, std::move(values));
  number.text = mark(number.table) + indexOf(problem, {});
  return number;
}

int roundness(int64_t value) { return value <= 0 ? 0 : std::countr_zero(uint64_t(value)) + (value % 10 == 0 ? 2 : 0); }

/// Sets the texts of x <= value.
void setAtMost(Atom& atom, const Problem& problem, const std::string& x, const Bound& bound) {
  const bool isStrict = roundness(bound.values.front() + 1) >= roundness(bound.values.front());
  const Number number = numberOf(problem, bound, isStrict || bound.values.size() > 1);
  const bool strict = isStrict || !number.isOne;
  const std::string text = number.isOne && !strict ? fmt::format("{}", bound.values.front()) : number.text;
  atom.text = fmt::format("{} {} {}", x, strict ? "<" : "<=", text);
  atom.negated = fmt::format("{} {} {}", x, strict ? ">=" : ">", text);
  if (number.table) atom.tables.push_back(number.table);
  if (x.find('%') != std::string::npos && number.isOne && bound.values.front() == 0) { // the remainder 0
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

bool isConstant(const Bound& bound) {
  return std::all_of(bound.values.begin(), bound.values.end(), [&](int64_t v) { return v == bound.values.front(); });
}

/// Sets the texts of a - b >= low.
void setDistance(Atom& atom, const Problem& problem, const std::string& a, const std::string& b, const Bound& low,
                 bool isCorner) {
  atom.value = low.values.front();
  atom.variable = fmt::format("{}{} - {}", a, isCorner ? " + KV_LEN - Q_LEN" : "", b);
  atom.left = a + (isCorner ? " + KV_LEN - Q_LEN" : ""), atom.right = b;
  if (!isConstant(low)) return setAtLeast(atom, problem, atom.variable, low);
  const int64_t value = low.values.front();
  const std::string shift = isCorner ? " + KV_LEN - Q_LEN" : "";
  if (value == 0) {
    atom.text = fmt::format("{}{} >= {}", a, shift, b);
    atom.negated = fmt::format("{}{} < {}", a, shift, b);
  } else if (value == 1) {
    atom.text = fmt::format("{}{} > {}", a, shift, b);
    atom.negated = fmt::format("{}{} <= {}", a, shift, b);
  } else if (value < 0) {
    atom.text = fmt::format("{}{} + {} >= {}", a, shift, -value, b);
    atom.negated = fmt::format("{}{} + {} < {}", a, shift, -value, b);
  } else {
    setAtLeast(atom, problem, fmt::format("{}{} - {}", a, shift, b), low);
  }
}

void setDistanceMost(Atom& atom, const Problem& problem, const std::string& a, const std::string& b, const Bound& high,
                     bool isCorner) {
  atom.value = high.values.front();
  atom.variable = fmt::format("{}{} - {}", a, isCorner ? " + KV_LEN - Q_LEN" : "", b);
  atom.left = a + (isCorner ? " + KV_LEN - Q_LEN" : ""), atom.right = b;
  if (!isConstant(high)) return setAtMost(atom, problem, atom.variable, high);
  const int64_t value = high.values.front();
  const std::string shift = isCorner ? " + KV_LEN - Q_LEN" : "";
  if (value == 0 || value == -1) {
    atom.text = fmt::format("{}{} {} {}", a, shift, value ? "<" : "<=", b);
    atom.negated = fmt::format("{}{} {} {}", a, shift, value ? ">=" : ">", b);
  } else if (value < -1) {
    Bound low = high;
    for (int64_t& one : low.values) one = -one;
    setAtLeast(atom, problem, fmt::format("{} - {}{}", b, a, isCorner ? " - KV_LEN + Q_LEN" : ""), low);
  } else {
    setAtMost(atom, problem, fmt::format("{}{} - {}", a, shift, b), high);
  }
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

Atom atLeast(const Problem& problem, bool isRow, const Bound& low) {
  const Axis& axis = isRow ? problem.q : problem.kv;
  Atom atom;
  atom.kind = !isConstant(low)     ? Atom::Kind::Other
              : !axis.from.empty() ? Atom::Kind::DistanceLow
              : isRow              ? Atom::Kind::RowLow
                                   : Atom::Kind::ColumnLow;
  if (!axis.from.empty()) {
    setDistance(atom, problem, axis.from, axis.to, low, false);
    return atom;
  }
  atom.value = low.values.front();
  atom.variable = axis.text;
  setAtLeast(atom, problem, axis.text, low);
  return atom;
}

Atom atMost(const Problem& problem, bool isRow, const Bound& high) {
  const Axis& axis = isRow ? problem.q : problem.kv;
  Atom atom;
  atom.kind = !isConstant(high)    ? Atom::Kind::Other
              : !axis.from.empty() ? Atom::Kind::DistanceHigh
              : isRow              ? Atom::Kind::RowHigh
                                   : Atom::Kind::ColumnHigh;
  if (!axis.from.empty()) {
    setDistanceMost(atom, problem, axis.from, axis.to, high, false);
    return atom;
  }
  atom.value = high.values.front();
  atom.variable = axis.text;
  setAtMost(atom, problem, axis.text, high);
  return atom;
}

} // namespace attnc::inferred
