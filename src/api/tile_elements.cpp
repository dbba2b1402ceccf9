#include "api/tile_elements.h"

#include <utility>

namespace attnc {

ElementsSeen judgeElements(const ir::Interpreter& interpreter, const analysis::ScoreRect& tile, int64_t most) {
  const auto& [b, h, qBegin, qEnd, kvBegin, kvEnd] = tile;
  ElementsSeen seen;
  // Whether to go on: not after the last that may be evaluated, and not once the tile is known to be mixed.
  auto goesOn = [&, b = b, h = h](int64_t q, int64_t kv) {
    if (seen.evaluations == most) return false;
    auto verdict = interpreter.mask(b, h, q, kv) ? analysis::Verdict::AlwaysTrue : analysis::Verdict::AlwaysFalse;
    bool isMixed = seen.evaluations++ > 0 && verdict != seen.verdict;
    seen.verdict = isMixed ? analysis::Verdict::Undecided : verdict;
    return !isMixed;
  };
  // Where a tile is mixed, its far corners usually tell: the early exit then costs four evaluations.
  for (auto [q, kv] : {std::pair(qBegin, kvBegin), std::pair(qBegin, kvEnd - 1), std::pair(qEnd - 1, kvBegin),
                       std::pair(qEnd - 1, kvEnd - 1)})
    if (!goesOn(q, kv)) return seen;
  for (int64_t q = qBegin; q < qEnd; ++q)
    for (int64_t kv = kvBegin; kv < kvEnd; ++kv)
      if (!goesOn(q, kv)) return seen;
  return seen;
}

} // namespace attnc
