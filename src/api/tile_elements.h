// mask_mod over a tile, element by element: what intervals leave undecided.
#pragma once

#include "analysis/tile_verdict.h"
#include "ir/interpreter.h"

#include <llvm/ADT/ArrayRef.h>

#include <cstdint>

namespace attnc {

/// What the elements of a tile say.
struct ElementsSeen {
  /// Undecided: some live and some do not, or none was evaluated.
  analysis::Verdict verdict = analysis::Verdict::Undecided;
  int64_t evaluations = 0;
};

/// Evaluates elements until the tile is known, or `most` of them: then the verdict is of those.
ElementsSeen judgeElements(const ir::Interpreter& interpreter, const analysis::ScoreRect& tile, int64_t most = INT64_MAX);

/// The same of these queries and keys, of which there are some.
ElementsSeen judgeElements(const ir::Interpreter& interpreter, int64_t b, int64_t h, llvm::ArrayRef<int64_t> queries,
                           llvm::ArrayRef<int64_t> keys, int64_t most = INT64_MAX);

} // namespace attnc
