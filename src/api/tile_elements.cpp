#include "api/tile_elements.h"

#include <utility>

namespace attnc {
namespace {

/// Judges the pairs of query(i), 0 <= i < queries, and key(i), 0 <= i < keys.
template <class Query, class Key>
ElementsSeen judge(const ir::Interpreter& interpreter, int64_t b, int64_t h, int64_t queries, Query query, int64_t keys,
                   Key key, int64_t most) {
  ElementsSeen seen;
  // Returns whether to go on: until `most` are evaluated, or the tile is known to be mixed.
  auto goesOn = [&](int64_t q, int64_t kv) {
    if (seen.evaluations == most) return false;
    auto verdict =
        interpreter.mask(b, h, query(q), key(kv)) ? analysis::Verdict::AlwaysTrue : analysis::Verdict::AlwaysFalse;
    bool isMixed = seen.evaluations++ > 0 && verdict != seen.verdict;
    seen.verdict = isMixed ? analysis::Verdict::Mixed : verdict;
    return !isMixed;
  };
  // If a tile is mixed, its far corners usually show it: the early exit then costs four evaluations.
  for (auto [q, kv] : {std::pair<int64_t, int64_t>(0, 0), {0, keys - 1}, {queries - 1, 0}, {queries - 1, keys - 1}})
    if (!goesOn(q, kv)) return seen;
  for (int64_t q = 0; q < queries; ++q)
    for (int64_t kv = 0; kv < keys; ++kv)
      if (!goesOn(q, kv)) return seen;
  return seen;
}

} // namespace

ElementsSeen judgeElements(const ir::Interpreter& interpreter, const analysis::ScoreRect& tile, int64_t most) {
  return judge(
      interpreter, tile.b, tile.h, tile.qEnd - tile.qBegin, [&](int64_t i) { return tile.qBegin + i; },
      tile.kvEnd - tile.kvBegin, [&](int64_t i) { return tile.kvBegin + i; }, most);
}

ElementsSeen judgeElements(const ir::Interpreter& interpreter, int64_t b, int64_t h, llvm::ArrayRef<int64_t> queries,
                           llvm::ArrayRef<int64_t> keys, int64_t most) {
  return judge(
      interpreter, b, h, int64_t(queries.size()), [&](int64_t i) { return queries[size_t(i)]; }, int64_t(keys.size()),
      [&](int64_t i) { return keys[size_t(i)]; }, most);
}

} // namespace attnc
