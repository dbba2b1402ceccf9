#include "api/tile_elements.h"

namespace attnc {

passes::Verdict judgeElements(const ir::Interpreter& interpreter, const passes::Tile& tile, int64_t& evaluations) {
  const auto& [b, h, qBegin, qEnd, kvBegin, kvEnd] = tile;
  auto lives = [&, b = b, h = h](int64_t q, int64_t kv) {
    ++evaluations;
    return interpreter.mask(b, h, q, kv);
  };
  bool first = lives(qBegin, kvBegin);
  // Where a tile is mixed, its far corners usually tell: the early exit then costs four evaluations.
  if (lives(qBegin, kvEnd - 1) != first || lives(qEnd - 1, kvBegin) != first || lives(qEnd - 1, kvEnd - 1) != first)
    return passes::Verdict::Undecided;
  for (int64_t q = qBegin; q < qEnd; ++q)
    for (int64_t kv = kvBegin; kv < kvEnd; ++kv)
      if (lives(q, kv) != first) return passes::Verdict::Undecided;
  return first ? passes::Verdict::AlwaysTrue : passes::Verdict::AlwaysFalse;
}

} // namespace attnc
