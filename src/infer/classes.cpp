#include "infer/classes.h"

#include "infer/texts.h"

#include <fmt/format.h>

#include <map>
#include <numeric>

namespace attnc::inferred {
namespace {

/// Sets that are joined.
class Sets {
public:
  explicit Sets(int64_t count) : parent(size_t(count)) { std::iota(parent.begin(), parent.end(), 0); }
  int32_t of(int64_t i) {
    int32_t root = int32_t(i);
    while (parent[size_t(root)] != root) root = parent[size_t(root)] = parent[size_t(parent[size_t(root)])];
    return root;
  }
  void join(int64_t a, int64_t b) {
    const int32_t x = of(a), y = of(b);
    parent[size_t(std::max(x, y))] = std::min(x, y);
  }

private:
  std::vector<int32_t> parent;
};

/// Classes of the queries and keys of one slice, numbered as they appear; -1 if nothing lives.
struct Classes {
  std::vector<int32_t> q, kv;
};

Classes classesOf(const Problem& problem, int64_t slice) {
  const int64_t rows = problem.rows(), columns = problem.columns(), words = problem.must.words;
  Sets sets(columns + rows);
  std::vector<int32_t> joined(size_t(columns) + 1, 0);
  Classes classes{std::vector<int32_t>(size_t(rows), -1), std::vector<int32_t>(size_t(columns), -1)};
  std::vector<char> isKey(size_t(columns), 0);
  Relation any(1, 1, columns);
  for (int64_t q = 0; q < rows; ++q) {
    const Word* row = problem.must.row(slice * rows + q);
    for (int64_t i = 0; i < words; ++i) any.bits[size_t(i)] |= row[i];
    forEachRun(row, words, [&](int64_t begin, int64_t end) {
      ++joined[size_t(begin)], --joined[size_t(end) - 1]; // joins begin .. end - 1 one by one
      sets.join(begin, columns + q);
      classes.q[size_t(q)] = 0;
    });
  }
  for (int64_t i = 0, open = 0; i + 1 < columns; ++i)
    if ((open += joined[size_t(i)]) > 0) sets.join(i, i + 1);
  std::map<int32_t, int32_t> numbers;
  for (int64_t i = 0; i < columns; ++i)
    if (any.get(0, i)) classes.kv[size_t(i)] = numbers.emplace(sets.of(i), int32_t(numbers.size())).first->second;
  for (int64_t q = 0; q < rows; ++q)
    if (classes.q[size_t(q)] == 0) classes.q[size_t(q)] = numbers.at(sets.of(columns + q));
  return classes;
}

std::string withOffset(const Problem& problem, int64_t offset) {
  if (offset == 0) return positionOf(problem.q);
  if (problem.isWhole && offset == problem.columns() - problem.rows()) return "q_idx + KV_LEN - Q_LEN";
  Axis moved = problem.q;
  moved.first -= offset;
  return positionOf(moved);
}

/// Returns the offset by which queries are keys, if classes agree, with the classes of the keys.
std::optional<int64_t> merge(const Problem& problem, std::vector<Classes>& all) {
  const int64_t rows = problem.rows(), columns = problem.columns();
  for (const int64_t offset : {columns - rows, int64_t(0)}) {
    if (offset < 0 || rows + offset > columns) continue;
    bool agrees = true;
    for (const Classes& one : all)
      for (int64_t q = 0; q < rows && agrees; ++q) {
        const int32_t a = one.q[size_t(q)], b = one.kv[size_t(q + offset)];
        agrees = a < 0 || b < 0 || a == b;
      }
    if (!agrees) continue;
    for (Classes& one : all)
      for (int64_t q = 0; q < rows; ++q) {
        int32_t& b = one.kv[size_t(q + offset)];
        if (b < 0) b = one.q[size_t(q)];
        one.q[size_t(q)] = b;
      }
    return offset;
  }
  return {};
}

void fillRows(const Problem& problem, const std::vector<Classes>& all, bool dropsNone, Atom& atom) {
  const int64_t rows = problem.rows(), columns = problem.columns();
  int64_t count = 0;
  std::vector<std::map<int32_t, uint32_t>> places(all.size());
  atom.index.assign(size_t(problem.must.allRows()), 0);
  for (size_t slice = 0; slice < all.size(); ++slice)
    for (int64_t q = 0; q < rows; ++q)
      atom.index[slice * size_t(rows) + size_t(q)] =
          places[slice].emplace(all[slice].q[size_t(q)], uint32_t(count)).second
              ? uint32_t(count++)
              : places[slice][all[slice].q[size_t(q)]];
  atom.rows = Relation(1, count, columns);
  for (size_t slice = 0; slice < all.size(); ++slice)
    for (int64_t i = 0; i < columns; ++i) {
      const int32_t own = all[slice].kv[size_t(i)];
      const auto place = places[slice].find(own);
      if (place != places[slice].end() && !(dropsNone && own < 0)) atom.rows.set(place->second, i);
    }
}

} // namespace

std::vector<AtomPtr> classes(const Problem& problem) {
  std::vector<Classes> all;
  bool isOne = true, hasNone = false;
  for (int64_t slice = 0; slice < problem.slices(); ++slice) all.push_back(classesOf(problem, slice));
  const auto offset = merge(problem, all);
  for (const Classes& one : all)
    for (const std::vector<int32_t>* line : {&one.q, &one.kv})
      for (const int32_t number : *line) isOne &= number <= 0, hasNone |= number < 0;
  if (isOne && !hasNone) return {};
  const std::string kv = positionOf(problem.kv);
  std::vector<AtomPtr> result;
  const auto numbersOf = [&](bool ofQueries) {
    std::vector<int32_t> numbers;
    for (const Classes& one : all)
      numbers.insert(numbers.end(), (ofQueries ? one.q : one.kv).begin(), (ofQueries ? one.q : one.kv).end());
    return numbers;
  };
  const auto make = [&](bool dropsNone) {
    Atom atom;
    const TablePtr ofKeys =
        tableOf(problem, "document", false, {problem.kv.extent}, {problem.columns()}, numbersOf(false));
    atom.tables = {ofKeys};
    std::string q;
    if (offset) {
      q = mark(ofKeys) + indexOf(problem, {withOffset(problem, *offset)});
    } else {
      const TablePtr ofQueries =
          tableOf(problem, "query_document", false, {problem.q.extent}, {problem.rows()}, numbersOf(true));
      atom.tables.push_back(ofQueries);
      q = mark(ofQueries) + indexOf(problem, {positionOf(problem.q)});
    }
    const std::string k = mark(ofKeys) + indexOf(problem, {kv});
    atom.text = fmt::format("{} == {}", q, k);
    atom.negated = fmt::format("{} != {}", q, k);
    if (dropsNone) {
      atom.text = fmt::format("({}) & ({} >= 0)", atom.text, k);
      atom.negated = fmt::format("({}) | ({} < 0)", atom.negated, k);
    }
    atom.what = "documents";
    atom.whatNegated = "different documents";
    atom.cost = 60 + (dropsNone ? 12 : 0) + (offset ? 0 : 25);
    fillRows(problem, all, dropsNone, atom);
    result.push_back(std::make_shared<const Atom>(std::move(atom)));
  };
  if (hasNone) make(true);
  // Positions without anything are classes of their own.
  for (Classes& one : all) {
    int32_t next = 0, ofQueries = -2;
    std::map<int32_t, int32_t> numbers;
    for (size_t i = 0; i < one.kv.size(); ++i) {
      int32_t& number = one.kv[i];
      const int32_t fresh = number < 0 ? next : numbers.emplace(number, next).first->second;
      number = fresh;
      if (fresh == next) ++next;
      if (offset && int64_t(i) >= *offset && int64_t(i) - *offset < problem.rows())
        one.q[size_t(int64_t(i) - *offset)] = fresh;
    }
    if (!offset)
      for (int32_t& number : one.q) number = number < 0 ? ofQueries-- : numbers.at(number);
  }
  make(false);
  return result;
}

AtomPtr ancestors(const Problem& problem) {
  const int64_t rows = problem.rows(), columns = problem.columns(), offset = columns - rows;
  if (offset < 0 || rows < 3) return nullptr;
  const size_t count = size_t(problem.slices() * columns);
  std::vector<int32_t> begin(count, 0), end(count, 0);
  Relation live = problem.must; // with the own key of each query, unless it must not live
  for (int64_t at = 0; at < live.allRows(); ++at) {
    if (problem.dead.get(at, at % rows + offset)) return nullptr;
    live.set(at, at % rows + offset);
  }
  for (int64_t slice = 0; slice < problem.slices(); ++slice) {
    const auto rowOf = [&](int64_t node) { return live.row(slice * rows + node); };
    std::vector<int32_t> depth(size_t(rows), 0), parent(size_t(rows), -1);
    for (int64_t node = 0; node < rows; ++node)
      for (int64_t i = 0; i < live.words; ++i) depth[size_t(node)] += std::popcount(rowOf(node)[i]);
    for (int64_t node = 0; node < rows; ++node) {
      bool isTree = true;
      forEachOne(rowOf(node), problem.must.words, [&](int64_t column) {
        const int64_t other = column - offset;
        if (other < 0) isTree = false;
        if (!isTree || other == node) return;
        int32_t& best = parent[size_t(node)];
        if (best < 0 || depth[size_t(other)] > depth[size_t(best)]) best = int32_t(other);
      });
      if (!isTree) return nullptr;
      if (parent[size_t(node)] < 0) {
        if (depth[size_t(node)] != 1) return nullptr;
        continue;
      }
      if (depth[size_t(parent[size_t(node)])] != depth[size_t(node)] - 1) return nullptr;
      for (int64_t i = 0; i < problem.must.words; ++i) {
        Word expected = rowOf(parent[size_t(node)])[i];
        if ((node + offset) >> 6 == i) expected |= Word(1) << ((node + offset) & 63);
        if (expected != rowOf(node)[i]) return nullptr;
      }
    }
    // Numbers of a walk that visits parents first: a subtree is a range.
    std::vector<std::vector<int32_t>> children(size_t(rows) + 1);
    for (int64_t node = 0; node < rows; ++node)
      children[size_t(parent[size_t(node)] < 0 ? rows : parent[size_t(node)])].push_back(int32_t(node));
    int32_t next = 0;
    std::vector<std::pair<int32_t, size_t>> stack = {{int32_t(rows), 0}};
    while (!stack.empty()) {
      auto& [node, done] = stack.back();
      const size_t place = size_t(slice * columns + node + offset);
      if (node < rows && done == 0) begin[place] = next++;
      if (done < children[size_t(node)].size()) {
        const int32_t child = children[size_t(node)][done++];
        stack.push_back({child, 0});
        continue;
      }
      if (node < rows) end[place] = next;
      stack.pop_back();
    }
  }
  const TablePtr order = tableOf(problem, "order", false, {problem.kv.extent}, {columns}, std::move(begin));
  const TablePtr behind = tableOf(problem, "subtree_end", false, {problem.kv.extent}, {columns}, std::move(end));
  const std::string q = mark(order) + indexOf(problem, {withOffset(problem, offset)});
  const std::string kv = positionOf(problem.kv);
  Atom atom;
  const std::string k = mark(order) + indexOf(problem, {kv}), e = mark(behind) + indexOf(problem, {kv});
  atom.text = fmt::format("({} <= {}) & ({} < {})", k, q, q, e);
  atom.negated = fmt::format("({} > {}) | ({} >= {})", k, q, q, e);
  atom.what = "a tree: a token sees its ancestors and itself";
  atom.whatNegated = "what is no ancestor";
  atom.tables = {order, behind};
  atom.cost = 100;
  atom.rows = std::move(live);
  atom.index.resize(size_t(problem.must.allRows()));
  std::iota(atom.index.begin(), atom.index.end(), 0);
  return std::make_shared<const Atom>(std::move(atom));
}

} // namespace attnc::inferred
