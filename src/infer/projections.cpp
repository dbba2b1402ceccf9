#include "infer/projections.h"

#include "infer/texts.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace attnc::inferred {
namespace {

constexpr size_t kMostWidths = 5;

/// Index i of an axis is coordinate (i + first - move) / width.
struct Cut {
  int64_t width = 1, move = 0; ///< `move`: in values
  auto operator<=>(const Cut&) const = default;
};

int64_t floorDiv(int64_t a, int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

struct Coordinates {
  Axis quotient, remainder;
  std::vector<int32_t> quotients, remainders; ///< by index
  int64_t count = 1;                          ///< of quotients
};

Coordinates coordinatesOf(const Axis& axis, int64_t length, const Cut& cut) {
  Coordinates result;
  const std::string moved = cut.move            ? fmt::format("({} - {})", axis.text, cut.move)
                            : axis.from.empty() ? axis.text
                                                : "(" + axis.text + ")";
  // Positions before the move have no coordinates, unless the move is within a width.
  const int64_t least = cut.move < cut.width ? floorDiv(axis.first - cut.move, cut.width) : 0;
  for (int64_t i = 0; i < length; ++i) {
    const int64_t value = i + axis.first - cut.move, quotient = floorDiv(value, cut.width);
    const bool isInside = quotient >= least;
    result.quotients.push_back(isInside ? int32_t(quotient - least) : -1);
    result.remainders.push_back(isInside ? int32_t(value - quotient * cut.width) : -1);
  }
  result.count = result.quotients.back() + 1;
  result.quotient = {cut.width == 1 ? axis.text : fmt::format("{} // {}", moved, cut.width),
                     least,
                     fmt::format("{}", result.count),
                     {},
                     {}};
  result.remainder = {fmt::format("{} % {}", moved, cut.width), 0, fmt::format("{}", cut.width), {}, {}};
  return result;
}

/// Adds the greatest common divisor of where ones of a line stand.
void addDivisor(const Relation& line, int64_t first, std::set<Cut>& cuts) {
  int64_t start = -1, divisor = 0;
  forEachOne(line.row(0), line.words, [&](int64_t at) {
    if (at == 0) return;
    if (start < 0) start = at;
    divisor = std::gcd(divisor, at - start);
  });
  if (start < 0) return;
  if (divisor == 0) divisor = start; // one edge
  if (divisor > 1) cuts.insert({divisor, ((start + first) % divisor + divisor) % divisor});
}

/// Finds widths along columns and along rows.
void findCuts(const Problem& problem, std::vector<Cut>& kv, std::vector<Cut>& q) {
  const Relation& must = problem.must;
  const int64_t rows = problem.rows(), columns = problem.columns(), words = must.words;
  Relation starts(1, 1, columns), ends(1, 1, columns), tops(1, 1, rows), bottoms(1, 1, rows);
  std::map<int64_t, int64_t> gaps;
  const int64_t step = std::max<int64_t>(1, must.allRows() / 64);
  for (int64_t at = 0; at < must.allRows(); ++at) {
    const Word* row = must.row(at);
    Word carry = 0, top = 0, bottom = 0;
    for (int64_t i = 0; i < words; ++i) {
      const Word moved = row[i] << 1 | carry;
      starts.bits[size_t(i)] |= row[i] & ~moved;
      ends.bits[size_t(i)] |= ~row[i] & moved & ones(0, columns, i);
      carry = row[i] >> 63;
      if (at % rows) top |= row[i] & ~row[i - words], bottom |= ~row[i] & row[i - words];
    }
    if (top) tops.set(0, at % rows);
    if (bottom) bottoms.set(0, at % rows);
    if (at % step) continue;
    int64_t before = -1;
    forEachRun(row, words, [&](int64_t begin, int64_t) {
      if (before >= 0 && begin - before > 1) ++gaps[begin - before];
      before = begin;
    });
  }
  std::set<Cut> kvCuts, qCuts;
  addDivisor(starts, problem.kv.first, kvCuts);
  addDivisor(ends, problem.kv.first, kvCuts);
  addDivisor(tops, problem.q.first, qCuts);
  addDivisor(bottoms, problem.q.first, qCuts);
  std::vector<std::pair<int64_t, int64_t>> often;
  int64_t all = 0;
  for (const auto& [gap, count] : gaps) all += count;
  for (const auto& [gap, count] : gaps)
    if (count * (gap < 4 ? 2 : 4) > all) often.push_back({-count, gap});
  const auto side = int64_t(std::lround(std::sqrt(double(columns))));
  if (side > 3 && side * side == columns && rows == columns && all > 0) often.push_back({-all, side}); // a square image
  std::sort(often.begin(), often.end());
  // The first query and key in question: an image may lie behind a text.
  int64_t firstRow = -1, firstColumn = columns;
  for (int64_t at = 0; at < must.allRows(); ++at)
    for (const Relation* one : {&must, &problem.dead}) {
      const int64_t column = firstOne(one->row(at), words);
      if (column < 0) continue;
      if (firstRow < 0 || at % rows < firstRow) firstRow = at % rows;
      firstColumn = std::min(firstColumn, column);
    }
  const bool isMoved = firstRow > 0 && firstRow == firstColumn && problem.isWhole;
  for (size_t i = 0; i < often.size() && i < 3; ++i) {
    if (isMoved) kvCuts.insert({often[i].second, firstRow});
    kvCuts.insert({often[i].second, 0});
  }
  kv.assign(kvCuts.begin(), kvCuts.end());
  q.assign(qCuts.begin(), qCuts.end());
}

/// Adds the conditions for one pair of cuts.
class Projection {
public:
  Projection(const Problem& problem, Tier tier, int depth, std::vector<AtomPtr>& atoms)
      : problem(problem), tier(tier), depth(depth), atoms(atoms) {}

  void add(const Cut& qCut, const Cut& kvCut) {
    const Coordinates q = coordinatesOf(problem.q, problem.rows(), qCut);
    const Coordinates kv = coordinatesOf(problem.kv, problem.columns(), kvCut);
    if (q.count * kv.count > 1) addPart(q.quotient, q.quotients, q.count, kv.quotient, kv.quotients, kv.count, true);
    // A remainder says something if it comes again.
    const bool isPeriodic = 2 * kvCut.width <= problem.columns() &&
                            (problem.isLine() ? 3 * kvCut.width <= problem.columns()
                                              : qCut.width > 1 && kvCut.width > 1 && 2 * qCut.width <= problem.rows());
    if (isPeriodic) addPart(q.remainder, q.remainders, qCut.width, kv.remainder, kv.remainders, kvCut.width, false);
  }

private:
  void addPart(const Axis& q, const std::vector<int32_t>& ofRow, int64_t rows, const Axis& kv,
               const std::vector<int32_t>& ofColumn, int64_t columns, bool isQuotient) {
    if (problem.budget) *problem.budget -= int64_t(problem.must.bits.size()) * 32;
    Problem part = problem.part(rows, columns, q, kv);
    for (int64_t at = 0; at < problem.must.allRows(); ++at) {
      if (ofRow[size_t(at % problem.rows())] < 0) continue;
      const int64_t to = at / problem.rows() * rows + ofRow[size_t(at % problem.rows())];
      const auto project = [&](const Relation& from, Relation& into) {
        int64_t left = into.words; // that have a zero
        while (left > 0 && into.row(to)[left - 1] == ones(0, columns, left - 1)) --left;
        if (left == 0) return;
        forEachRun(from.row(at), from.words, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end;) {
            if (ofColumn[size_t(i)] < 0) {
              begin = ++i;
              continue;
            }
            into.set(to, ofColumn[size_t(i)]);
            const int32_t own = ofColumn[size_t(i)];
            if (isQuotient)
              while (i < end && ofColumn[size_t(i)] == own) ++i;
            else if (++i - begin >= columns) // all remainders were met
              break;
          }
        });
      };
      project(problem.must, part.must);
      project(problem.dead, part.dead);
    }
    for (size_t i = 0; i < part.must.bits.size(); ++i) part.dead.bits[i] &= ~part.must.bits[i];
    if (part.dead.empty()) return;
    bool isShared = true;
    const int64_t size = rows * part.must.words;
    for (int64_t slice = 1; slice < part.slices(); ++slice)
      isShared &=
          std::equal(part.must.bits.begin(), part.must.bits.begin() + size, part.must.bits.begin() + slice * size);
    if (isShared && part.slices() > 1) {
      for (int64_t i = size; i < int64_t(part.dead.bits.size()); ++i)
        part.dead.bits[size_t(i % size)] |= part.dead.bits[size_t(i)];
      for (Relation* one : {&part.must, &part.dead}) one->slices = 1, one->bits.resize(size_t(size));
      part.batch = part.heads = 1;
    }
    auto inner = solve(part, Tier::Formula, depth + 1);
    if (inner) {
      Atom atom;
      Relation rowsOf(1, part.must.allRows(), columns);
      for (int64_t at = 0; at < part.must.allRows(); ++at) inner->row(at, rowsOf.row(at), columns);
      atom.cost = inner->cost() + (isQuotient ? 0 : 20);
      atom.inner = std::make_shared<const Expr>(*std::move(inner));
      expand(std::move(atom), rowsOf, ofRow, rows, ofColumn, part.slices());
    }
    if (tier < Tier::Blocks || depth > 0 || !isQuotient || problem.isLine()) return;
    if (rows * columns * 256 > problem.rows() * problem.columns()) return;
    Atom atom;
    std::vector<int32_t> values;
    for (int64_t at = 0; at < part.must.allRows(); ++at)
      for (int64_t i = 0; i < columns; ++i) values.push_back(part.must.get(at, i));
    const TablePtr table = tableOf(part, "blocks", true, {q.extent, kv.extent}, {rows, columns}, std::move(values));
    atom.text = mark(table) + indexOf(part, {positionOf(q), positionOf(kv)});
    atom.negated = "~" + atom.text;
    atom.what = fmt::format("a table of {} x {} blocks", rows, columns);
    atom.whatNegated = atom.what;
    atom.tables = {table};
    atom.cost = 130 + double(rows * columns) / 100;
    expand(std::move(atom), part.must, ofRow, rows, ofColumn, part.slices());
  }

  void expand(Atom atom, const Relation& small, const std::vector<int32_t>& ofRow, int64_t rows,
              const std::vector<int32_t>& ofColumn, int64_t slices) {
    atom.rows = Relation(1, slices * rows + 1, problem.columns());
    for (int64_t at = 0; at <= slices * rows; ++at)
      for (int64_t i = 0; i < problem.columns(); ++i) {
        // Without coordinates, an element is one or the other: nothing may rely on it.
        const bool isUnknown = at == slices * rows || ofColumn[size_t(i)] < 0;
        if (isUnknown ? (i * 2654435761u >> 7) % 2 : small.get(at, ofColumn[size_t(i)])) atom.rows.set(at, i);
      }
    atom.index.resize(size_t(problem.must.allRows()));
    for (size_t at = 0; at < atom.index.size(); ++at)
      atom.index[at] =
          ofRow[at % size_t(problem.rows())] < 0
              ? uint32_t(slices * rows)
              : uint32_t(int64_t(at) / problem.rows() % slices * rows + ofRow[at % size_t(problem.rows())]);
    atoms.push_back(std::make_shared<const Atom>(std::move(atom)));
  }

  const Problem& problem;
  const Tier tier;
  const int depth;
  std::vector<AtomPtr>& atoms;
};

} // namespace

std::vector<AtomPtr> projections(const Problem& problem, Tier tier, int depth) {
  std::vector<Cut> kv, q;
  findCuts(problem, kv, q);
  std::vector<AtomPtr> atoms;
  Projection projection(problem, tier, depth, atoms);
  if (problem.isLine()) {
    for (size_t i = 0; i < kv.size() && i < kMostWidths; ++i)
      if (kv[i].width < problem.columns()) projection.add({}, kv[i]);
    return atoms;
  }
  std::set<std::pair<Cut, Cut>> pairs;
  std::set<Cut> same(kv.begin(), kv.end());
  same.insert(q.begin(), q.end());
  for (const Cut& cut : same) pairs.insert({cut, cut});
  if (depth == 0) {
    for (const Cut& a : q)
      for (const Cut& b : kv)
        if (a.width != b.width) pairs.insert({a, b});
    for (const Cut& a : q) pairs.insert({a, {}});
    for (const Cut& b : kv) pairs.insert({{}, b});
  }
  size_t count = 0;
  for (const auto& [a, b] : pairs) {
    if (a.width >= problem.rows() && b.width >= problem.columns()) continue;
    if (a.width * b.width < 4 || (a.width == 1 || b.width == 1 ? std::max(a.width, b.width) < 4 : false)) continue;
    if (++count > (depth == 0 ? 2 * kMostWidths : kMostWidths)) break;
    projection.add(a, b);
  }
  return atoms;
}

} // namespace attnc::inferred
