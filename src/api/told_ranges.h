// What batch entries, heads, rows and columns know of captured data, as ranges over blocks of rows and columns.
//
// Interval analysis takes a gather for anything its dtype holds. Where the data is at hand, document_id[q_idx] over a
// block of rows is what it is: its least and greatest value there.
#pragma once

#include "analysis/range.h"
#include "attnc/block_mask.h"
#include "ir/bindings.h"
#include "ir/ir.h"

#include <llvm/ADT/ArrayRef.h>

#include <cstdint>
#include <vector>

namespace attnc {

/// Operations that an evaluation of a value takes (analysis::countOperations); at least 1 and at most kMostOperations,
/// which keeps products with lengths and sizes of blocks inside int64.
constexpr int64_t kMostOperations = int64_t(1) << 32;
int64_t operationsOf(const ir::Module& module, ir::Value value);

/// A value of mask_mod that reads captured data and that no element changes.
struct ToldValue {
  ir::Value value;
  ir::Level level = ir::Level::Launch;
  bool knowsHead = false; ///< depends on b or h
  int64_t cost = 0;       ///< operations of an evaluation
};

/// None of them is part of another. At most 64; those that are left out are unknown to the analysis.
std::vector<ToldValue> toldValues(const ir::Module& module);

/// Operations that reading them all takes, for each batch entry and head (`head`), and once (`shared`).
struct ReadingCost {
  int64_t head = 0, shared = 0;
};
ReadingCost readingCost(llvm::ArrayRef<ToldValue> values, const BlockMaskShape& shape);

/// The ranges of one value over aligned runs of 1, 2, 4, ... blocks of its rows or columns.
class RangePyramid {
public:
  RangePyramid() = default;
  /// Reads the value for all rows or columns of one batch entry and head.
  RangePyramid(const ir::Module& module, const ir::Bindings& bindings, const ToldValue& told,
               const BlockMaskShape& shape, int64_t b, int64_t h);

  /// Over the blocks [index << level, (index + 1) << level) of q or of kv, whichever the value knows.
  const analysis::Range& of(int64_t index, int level) const {
    return isSingle ? levels[0][0] : levels[size_t(level)][size_t(index)];
  }

private:
  bool isSingle = false; // known by heads: the same everywhere
  std::vector<std::vector<analysis::Range>> levels;
};

} // namespace attnc
