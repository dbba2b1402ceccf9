// Evaluates mask_mod over a tile, element by element, if intervals do not decide it.
#pragma once

#include "analysis/tile_verdict.h"
#include "ir/interpreter.h"

#include <llvm/ADT/ArrayRef.h>

#include <cstdint>

namespace attnc {

/// What the elements of a tile tell.
struct ElementsSeen {
  /// Undecided if none was evaluated.
  analysis::Verdict verdict = analysis::Verdict::Undecided;
  int64_t evaluations = 0;
};

/// Evaluates elements until the tile is decided, or at most `most` of them. The verdict is about the evaluated ones.
ElementsSeen judgeElements(const ir::Interpreter& interpreter, const analysis::ScoreRect& tile,
                           int64_t most = INT64_MAX);

/// The same for these queries and keys. Precondition: neither is empty.
ElementsSeen judgeElements(const ir::Interpreter& interpreter, int64_t b, int64_t h, llvm::ArrayRef<int64_t> queries,
                           llvm::ArrayRef<int64_t> keys, int64_t most = INT64_MAX);

} // namespace attnc
