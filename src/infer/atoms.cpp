#include "infer/classes.h"
#include "infer/problem.h"
#include "infer/projections.h"
#include "infer/texts.h"

#include <fmt/format.h>

#include <numeric>

namespace attnc::inferred {
namespace {

constexpr int64_t kNone = INT64_MIN;

/// The conditions of one problem, family by family.
class Atoms {
public:
  Atoms(const Problem& problem, Tier tier, int depth)
      : problem(problem), tier(tier), depth(depth), rows(problem.rows()), columns(problem.columns()) {
    first.resize(size_t(problem.must.allRows()), -1);
    last = first;
    for (int64_t at = 0; at < problem.must.allRows(); ++at) {
      first[size_t(at)] = int32_t(firstOne(problem.must.row(at), problem.must.words));
      last[size_t(at)] = int32_t(lastOne(problem.must.row(at), problem.must.words));
    }
  }

  std::vector<AtomPtr> all() {
    if (problem.isGrid) return projections(problem, tier, depth);
    if (!problem.isLine() && columns > 1) distances();
    ranges();
    // What simple conditions leave is asked for as well: a set that need not exclude the rest is a simpler one.
    Problem left = problem;
    for (const AtomPtr& atom : atoms)
      if (atom->tables.empty())
        for (int64_t at = 0; at < left.dead.allRows(); ++at) atom->andInto(at, left.dead.row(at), left.dead.words);
    if (left.dead.empty()) return std::move(atoms);
    clampedWindow();
    if (depth > 1 || (problem.budget && *problem.budget < 0)) return std::move(atoms);
    const bool isSame = left.dead.bits == problem.dead.bits;
    for (const Problem* one : {&problem, static_cast<const Problem*>(&left)}) {
      if (one == &left && isSame) break;
      for (AtomPtr& atom : projections(*one, tier, depth)) add(std::move(atom));
      if (problem.isLine()) continue;
      lines(*one);
      distanceLine(*one);
    }
    if (problem.isLine()) return std::move(atoms);
    if (tier >= Tier::Lines) {
      for (AtomPtr& atom : classes(problem)) add(std::move(atom));
      if (AtomPtr atom = ancestors(problem)) add(std::move(atom));
    }
    if (tier >= Tier::Blocks && depth == 0) intervals();
    return std::move(atoms);
  }

private:
  bool isUsed(int64_t at) const { return first[size_t(at)] >= 0; }

  void add(AtomPtr atom) { atoms.push_back(std::move(atom)); }

  /// Adds an atom whose rows are intervals of columns by (slice, row), if it excludes anything.
  template <class Interval> void addIntervals(Atom atom, double cost, Interval interval) {
    bool isAll = true;
    atom.begin.resize(size_t(problem.must.allRows()));
    atom.end = atom.begin;
    for (int64_t at = 0; at < problem.must.allRows(); ++at) {
      const auto [begin, end] = interval(at / rows, at % rows);
      atom.begin[size_t(at)] = int32_t(std::clamp<int64_t>(begin, 0, columns));
      atom.end[size_t(at)] = int32_t(std::clamp<int64_t>(end, 0, columns));
      isAll &= begin <= 0 && end >= columns;
    }
    if (isAll) return;
    atom.cost = cost + 25 * double(atom.tables.size());
    add(std::make_shared<const Atom>(std::move(atom)));
  }

  /// Calls `make` with the loosest bound for all slices, and with the bounds by slice. Slices without elements that
  /// must live take `none`, which excludes all.
  template <class Make>
  void forBounds(std::vector<int64_t> values, bool isUpper, int64_t none, std::string name, Make make,
                 bool bySlice = true) {
    int64_t loosest = kNone;
    for (const int64_t value : values)
      if (value != kNone)
        loosest = loosest == kNone ? value : isUpper ? std::max(loosest, value) : std::min(loosest, value);
    if (loosest == kNone) return;
    bool isOne = true;
    for (int64_t& value : values) {
      if (value == kNone) value = none;
      isOne &= value == loosest;
    }
    make(Bound{std::vector<int64_t>(values.size(), loosest), name}, 1.0);
    if (!isOne && bySlice) make(Bound{std::move(values), name}, 1.2);
  }

  void distances() {
    // Windows differ by head, and positions in caches by batch entry; else lengths are meant.
    const bool bySlice = problem.heads > 1 || rows != columns;
    std::vector<int64_t> low(size_t(problem.slices()), kNone), high = low;
    for (int64_t at = 0; at < problem.must.allRows(); ++at) {
      if (!isUsed(at)) continue;
      const int64_t q = at % rows + problem.q.first;
      int64_t &least = low[size_t(at / rows)], &most = high[size_t(at / rows)];
      const int64_t down = q - last[size_t(at)] - problem.kv.first, up = q - first[size_t(at)] - problem.kv.first;
      least = least == kNone ? down : std::min(least, down);
      most = most == kNone ? up : std::max(most, up);
    }
    const int64_t shift = problem.q.first - problem.kv.first;
    const int64_t least = *std::min_element(low.begin(), low.end()), offset = problem.isWhole && least < 0 ? -least : 0;
    const bool isCorner =
        problem.isWhole && rows != columns &&
        std::all_of(low.begin(), low.end(), [&](int64_t v) { return v == kNone || v >= rows - columns; }) &&
        std::any_of(low.begin(), low.end(), [&](int64_t v) { return v == rows - columns; });
    forBounds(
        low, false, rows + problem.q.first - problem.kv.first, "window",
        [&](const Bound& bound, double cost) {
          addIntervals(distanceAtLeast(problem, bound, isCorner), cost * 10, [&](int64_t slice, int64_t q) {
            return std::pair(int64_t(0), q + shift - bound.values[size_t(slice)] + 1);
          });
        },
        bySlice);
    forBounds(
        high, true, -columns + problem.q.first - problem.kv.first, "window",
        [&](const Bound& bound, double cost) {
          addIntervals(
              distanceAtMost(problem, bound, isCorner, least == kNone ? 0 : offset), cost * 12,
              [&](int64_t slice, int64_t q) { return std::pair(q + shift - bound.values[size_t(slice)], columns); });
        },
        bySlice);
  }

  void ranges() {
    const size_t slices = size_t(problem.slices());
    std::vector<int64_t> begin(slices, kNone), end(slices, kNone), top(slices, kNone), bottom(slices, kNone);
    const auto lower = [](int64_t& old, int64_t value) { old = old == kNone ? value : std::min(old, value); };
    const auto raise = [](int64_t& old, int64_t value) { old = std::max(old, value); };
    for (int64_t at = 0; at < problem.must.allRows(); ++at) {
      if (!isUsed(at)) continue;
      const size_t slice = size_t(at / rows);
      lower(begin[slice], first[size_t(at)] + problem.kv.first);
      raise(end[slice], last[size_t(at)] + problem.kv.first);
      lower(top[slice], at % rows + problem.q.first);
      raise(bottom[slice], at % rows + problem.q.first);
    }
    const int64_t kv = problem.kv.first, q = problem.q.first;
    const auto whole = [&](bool isInside) { return std::pair(int64_t(0), isInside ? columns : 0); };
    forBounds(begin, false, columns + kv, "starts", [&](const Bound& bound, double cost) {
      addIntervals(atBound(problem, false, bound, true), cost * 10,
                   [&](int64_t slice, int64_t) { return std::pair(bound.values[size_t(slice)] - kv, columns); });
    });
    forBounds(end, true, kv - 1, "lengths", [&](const Bound& bound, double cost) {
      addIntervals(atBound(problem, false, bound, false), cost * 10,
                   [&](int64_t slice, int64_t) { return std::pair(int64_t(0), bound.values[size_t(slice)] - kv + 1); });
    });
    if (problem.isLine()) return;
    forBounds(top, false, rows + q, "starts", [&](const Bound& bound, double cost) {
      addIntervals(atBound(problem, true, bound, true), cost * 10.5,
                   [&](int64_t slice, int64_t row) { return whole(row + q >= bound.values[size_t(slice)]); });
    });
    forBounds(bottom, true, q - 1, "lengths", [&](const Bound& bound, double cost) {
      addIntervals(atBound(problem, true, bound, false), cost * 10.5,
                   [&](int64_t slice, int64_t row) { return whole(row + q <= bound.values[size_t(slice)]); });
    });
  }

  /// A window of constant width that is moved inside at the borders, as in NATTEN.
  void clampedWindow() {
    std::vector<int64_t> start(size_t(rows), -1);
    int64_t width = -1;
    for (int64_t at = 0; at < problem.must.allRows(); ++at) {
      if (!isUsed(at)) return;
      const int64_t begin = first[size_t(at)], wide = last[size_t(at)] - begin + 1;
      if ((width >= 0 && wide != width) || (at >= rows && start[size_t(at % rows)] != begin)) return;
      width = wide;
      start[size_t(at % rows)] = begin;
    }
    if (width < 2 || width >= columns || start.front() == start.back()) return;
    const size_t middle = size_t(rows / 2);
    const int64_t back = int64_t(middle) - start[middle], most = columns - width;
    for (int64_t q = 0; q < rows; ++q)
      if (start[size_t(q)] != std::clamp<int64_t>(q - back, 0, most)) return;
    if (problem.isLine() || problem.q.first || problem.kv.first) return;
    const std::string shifted = back == 0  ? problem.q.text
                                : back > 0 ? fmt::format("({} - {})", problem.q.text, back)
                                           : fmt::format("({} + {})", problem.q.text, -back);
    const std::string clamped =
        fmt::format("{}.clamp(0, {})", back == 0 ? fmt::format("({})", shifted) : shifted, most);
    Atom atom;
    atom.text = fmt::format("({0} >= {1}) & ({0} < {1} + {2})", problem.kv.text, clamped, width);
    atom.negated = fmt::format("({0} < {1}) | ({0} >= {1} + {2})", problem.kv.text, clamped, width);
    atom.what = fmt::format("a neighborhood of {}, moved inside at the borders", width);
    atom.whatNegated = "outside " + atom.what;
    addIntervals(std::move(atom), 16,
                 [&](int64_t, int64_t q) { return std::pair(start[size_t(q)], start[size_t(q)] + width); });
  }

  /// Adds the condition that `line` is one of those of elements that must live. Row `at` has the columns of
  /// `rowOf(line, at)`.
  template <class RowOf> void addLine(Problem line, bool byPosition, Atom table, RowOf rowOf) {
    if (line.must.count() == 0) return;
    bool isShared = true; // by all slices
    for (int64_t slice = 1; slice < line.must.slices; ++slice)
      isShared &= std::equal(line.must.row(slice), line.must.row(slice + 1), line.must.row(0));
    if (isShared && line.must.slices > 1) {
      for (int64_t slice = 1; slice < line.must.slices; ++slice)
        for (int64_t i = 0; i < line.dead.words; ++i) line.dead.row(0)[i] |= line.dead.row(slice)[i];
      for (Relation* one : {&line.must, &line.dead}) one->slices = 1, one->bits.resize(size_t(one->words));
      line.batch = line.heads = 1;
    }
    for (size_t i = 0; i < line.must.bits.size(); ++i) line.dead.bits[i] &= ~line.must.bits[i];
    if (line.dead.empty()) return;
    auto inner = solve(line, Tier::Formula, depth + 1);
    if (!inner && !byPosition) return;
    Atom atom;
    if (inner && inner->kind == Expr::Kind::Leaf && (inner->atom->kind != Atom::Kind::Other)) return; // a range: added
    Relation set = line.must;
    if (inner) {
      for (int64_t at = 0; at < set.allRows(); ++at) inner->row(at, set.row(at), set.columns);
      atom.cost = inner->cost();
      atom.inner = std::make_shared<const Expr>(*std::move(inner));
    } else {
      atom = std::move(table);
      atom.cost = 40;
      std::vector<int32_t> values;
      for (int64_t at = 0; at < set.allRows(); ++at)
        for (int64_t i = 0; i < set.columns; ++i) values.push_back(set.get(at, i));
      Problem slices{{}, {}, {}, {}, line.batch, line.heads, false, false, nullptr};
      const TablePtr data = tableOf(slices, atom.variable, true, {line.kv.extent}, {set.columns}, std::move(values));
      atom.text = mark(data) + indexOf(slices, {positionOf(line.kv)});
      atom.negated = "~" + atom.text;
      atom.tables = {data};
    }
    rowOf(set, atom);
    add(std::make_shared<const Atom>(std::move(atom)));
  }

  /// The sets of columns and of rows that live.
  void lines(const Problem& problem) {
    Problem byColumn = problem.part(1, columns, {}, problem.kv), byRow = problem.part(1, rows, {}, problem.q);
    for (int64_t at = 0; at < problem.must.allRows(); ++at) {
      const int64_t slice = at / rows;
      Word any = 0, anyDead = 0;
      for (int64_t i = 0; i < problem.must.words; ++i) {
        any |= problem.must.row(at)[i], anyDead |= problem.dead.row(at)[i];
        byColumn.must.row(slice)[i] |= problem.must.row(at)[i];
        byColumn.dead.row(slice)[i] |= problem.dead.row(at)[i];
      }
      if (any) byRow.must.set(slice, at % rows);
      if (anyDead) byRow.dead.set(slice, at % rows);
    }
    const bool tables = tier >= Tier::Lines && depth == 0;
    // All positions that do not matter count as live: fewer ones are masked.
    Atom table;
    table.variable = "keys", table.what = "a set of keys", table.whatNegated = "a set of keys";
    addLine(std::move(byColumn), tables, table, [&](const Relation& set, Atom& atom) {
      atom.rows = set;
      atom.index.resize(size_t(problem.must.allRows()));
      for (size_t at = 0; at < atom.index.size(); ++at) atom.index[at] = uint32_t(int64_t(at) / rows % set.slices);
    });
    table.variable = "queries", table.what = "a set of queries", table.whatNegated = "a set of queries";
    addLine(std::move(byRow), tables, table, [&](const Relation& set, Atom& atom) {
      atom.begin.resize(size_t(problem.must.allRows()));
      atom.end = atom.begin;
      for (size_t at = 0; at < atom.end.size(); ++at)
        atom.end[at] = set.get(int64_t(at) / rows % set.slices, int64_t(at) % rows) ? int32_t(columns) : 0;
    });
  }

  /// The set of distances.
  void distanceLine(const Problem& problem) {
    const int64_t count = rows + columns - 1, slices = 1;
    Problem line{Relation(slices, 1, count), Relation(slices, 1, count), {}, {}, 1, 1, false, false, problem.budget};
    line.kv = {fmt::format("{} - {}", problem.q.text, problem.kv.text),
               1 - columns + problem.q.first - problem.kv.first, fmt::format("{}", count), problem.q.text,
               problem.kv.text};
    // Index q - kv + columns - 1: a row's bits, mirrored and moved. The mirror image is mirrored back at the end.
    Relation must(1, 1, count), dead(1, 1, count);
    const auto orInto = [&](Relation& to, const Word* from, int64_t move) {
      for (int64_t i = 0; i < problem.must.words; ++i) {
        if (!from[i]) continue;
        const int64_t at = i * 64 + move;
        to.bits[size_t(at >> 6)] |= from[i] << (at & 63);
        if ((at & 63) && (from[i] >> (64 - (at & 63)))) to.bits[size_t(at >> 6) + 1] |= from[i] >> (64 - (at & 63));
      }
    };
    for (int64_t at = 0; at < problem.must.allRows(); ++at) {
      orInto(must, problem.must.row(at), rows - 1 - at % rows); // index kv - q + rows - 1
      orInto(dead, problem.dead.row(at), rows - 1 - at % rows);
    }
    forEachOne(must.row(0), must.words, [&](int64_t i) { line.must.set(0, count - 1 - i); });
    forEachOne(dead.row(0), dead.words, [&](int64_t i) { line.dead.set(0, count - 1 - i); });
    Atom table;
    table.variable = "distances", table.what = "a set of distances", table.whatNegated = "a set of distances";
    addLine(std::move(line), tier >= Tier::Lines && depth == 0 && problem.isWhole, table,
            [&](const Relation& set, Atom& atom) {
              if (!atom.inner) atom.cost += double(count) / 100;
              Relation mirror(1, 1, count);
              forEachOne(set.row(0), set.words, [&](int64_t i) { mirror.set(0, count - 1 - i); });
              atom.rows = Relation(1, rows, columns);
              for (int64_t q = 0; q < rows; ++q)
                for (int64_t i = 0; i < atom.rows.words; ++i) {
                  const int64_t at = i * 64 + rows - 1 - q;
                  Word word = mirror.bits[size_t(at >> 6)] >> (at & 63);
                  if ((at & 63) && size_t(at >> 6) + 1 < mirror.bits.size())
                    word |= mirror.bits[size_t(at >> 6) + 1] << (64 - (at & 63));
                  atom.rows.row(q)[i] = word & ones(0, columns, i);
                }
              atom.index.resize(size_t(problem.must.allRows()));
              for (size_t at = 0; at < atom.index.size(); ++at) atom.index[at] = uint32_t(int64_t(at) % rows);
            });
  }

  /// One interval of keys a query, and one of queries a key.
  void intervals() {
    const auto axis = [](const Axis& one) { return positionOf(one); };
    std::vector<int32_t> begin(first), end(last);
    for (size_t at = 0; at < end.size(); ++at) begin[at] = std::max(begin[at], 0), end[at] += 1;
    const auto make = [&](const char* name, const Axis& of, const std::string& other, const char* less,
                          const char* more, const std::vector<int32_t>& values, int64_t count, const char* what) {
      const TablePtr table = tableOf(problem, name, false, {of.extent}, {count}, values);
      Atom atom;
      const std::string entry = mark(table) + indexOf(problem, {axis(of)});
      atom.text = fmt::format("{} {} {}", other, less, entry);
      atom.negated = fmt::format("{} {} {}", other, more, entry);
      atom.tables = {table};
      atom.what = what, atom.whatNegated = what;
      return atom;
    };
    const std::string kv = positionOf(problem.kv), q = positionOf(problem.q);
    const char* what = "an interval of keys for each query";
    addIntervals(make("first_key", problem.q, kv, ">=", "<", begin, rows, what), 30, [&](int64_t slice, int64_t row) {
      return std::pair(int64_t(begin[size_t(slice * rows + row)]), columns);
    });
    addIntervals(make("end_key", problem.q, kv, "<", ">=", end, rows, what), 30, [&](int64_t slice, int64_t row) {
      return std::pair(int64_t(0), int64_t(end[size_t(slice * rows + row)]));
    });
    const auto joined = [](const Atom& low, const Atom& high) {
      Atom both;
      both.text = fmt::format("({}) & ({})", low.text, high.text);
      both.negated = fmt::format("({}) | ({})", low.negated, high.negated);
      both.tables = {low.tables.front(), high.tables.front()};
      both.what = low.what, both.whatNegated = low.whatNegated;
      return both;
    };
    addIntervals(joined(make("first_key", problem.q, kv, ">=", "<", begin, rows, what),
                        make("end_key", problem.q, kv, "<", ">=", end, rows, what)),
                 40, [&](int64_t slice, int64_t row) {
                   const size_t at = size_t(slice * rows + row);
                   return std::pair(int64_t(begin[at]), int64_t(end[at]));
                 });
    // By column.
    std::vector<int32_t> top(size_t(problem.slices() * columns), 0), bottom = top;
    for (int64_t slice = 0; slice < problem.slices(); ++slice) {
      std::vector<Word> above(size_t(problem.must.words), 0), below = above;
      const auto visit = [&](int64_t row, std::vector<Word>& seen, std::vector<int32_t>& into, int64_t value) {
        const Word* words = problem.must.row(slice * rows + row);
        for (size_t i = 0; i < seen.size(); ++i) {
          for (Word fresh = words[i] & ~seen[i]; fresh; fresh &= fresh - 1)
            into[size_t(slice * columns + int64_t(i) * 64 + std::countr_zero(fresh))] = int32_t(value);
          seen[i] |= words[i];
        }
      };
      for (int64_t row = 0; row < rows; ++row) visit(row, above, top, row);
      for (int64_t row = rows; row-- > 0;) visit(row, below, bottom, row + 1);
    }
    const char* whatColumn = "an interval of queries for each key";
    const auto addColumn = [&](Atom atom, bool begins, bool ends) {
      atom.cost = 30 + 25 * double(atom.tables.size());
      atom.rows = Relation(problem.slices(), rows, columns);
      atom.index.resize(size_t(problem.must.allRows()));
      std::iota(atom.index.begin(), atom.index.end(), 0);
      // A row is the one above, but for the columns that begin or end there.
      std::vector<std::vector<int32_t>> changes(size_t(rows) + 1);
      for (int64_t slice = 0; slice < problem.slices(); ++slice) {
        for (auto& one : changes) one.clear();
        const auto place = [&](int64_t column) { return size_t(slice * columns + column); };
        for (int64_t column = 0; column < columns; ++column) {
          const int32_t from = begins ? top[place(column)] : 0, to = ends ? bottom[place(column)] : int32_t(rows);
          if (from >= to) continue;
          changes[size_t(from)].push_back(int32_t(column));
          changes[size_t(to)].push_back(int32_t(column));
        }
        for (int64_t row = 0; row < rows; ++row) {
          Word* words = atom.rows.row(slice * rows + row);
          if (row > 0) std::copy_n(words - atom.rows.words, atom.rows.words, words);
          for (const int32_t column : changes[size_t(row)]) words[column >> 6] ^= Word(1) << (column & 63);
        }
      }
      add(std::make_shared<const Atom>(std::move(atom)));
    };
    addColumn(make("first_query", problem.kv, q, ">=", "<", top, columns, whatColumn), true, false);
    addColumn(make("end_query", problem.kv, q, "<", ">=", bottom, columns, whatColumn), false, true);
    addColumn(joined(make("first_query", problem.kv, q, ">=", "<", top, columns, whatColumn),
                     make("end_query", problem.kv, q, "<", ">=", bottom, columns, whatColumn)),
              true, true);
  }

  const Problem& problem;
  const Tier tier;
  const int depth;
  const int64_t rows, columns;
  std::vector<int32_t> first, last; // live columns by (slice, row); -1: none
  std::vector<AtomPtr> atoms;
};

} // namespace

std::vector<AtomPtr> atomsOf(const Problem& problem, Tier tier, int depth) { return Atoms(problem, tier, depth).all(); }

} // namespace attnc::inferred
