// Ranges of the captured data that batch entries, heads, rows and columns read, over blocks of rows and columns.
//
// Interval analysis takes a gather for anything its dtype holds. If the data is at hand, document_id[q_idx] over a
// block of rows has a known range: its least and greatest value there.
#pragma once

#include "analysis/range.h"
#include "attnc/block_mask.h"
#include "ir/bindings.h"
#include "ir/ir.h"

#include <llvm/ADT/ArrayRef.h>

#include <cstdint>
#include <vector>

namespace attnc {

/// Returns the operations of one evaluation of a value (analysis::countOperations): at least 1 and at most
/// kMostOperations. That limit keeps products with lengths and sizes of blocks inside int64.
constexpr int64_t kMostOperations = int64_t(1) << 32;
int64_t operationsOf(const ir::Module& module, ir::Value value);

/// A value of mask_mod that reads captured data and is the same for all elements of a row, column or head.
struct ToldValue {
  ir::Value value;
  ir::Level level = ir::Level::Launch;
  bool knowsHead = false; ///< whether it depends on b or h
  int64_t cost = 0;       ///< operations of one evaluation
};

/// Returns values of which none is part of another. At most 64; the analysis treats further ones as unknown.
std::vector<ToldValue> toldValues(const ir::Module& module);

/// Operations that reading all values takes: for each batch entry and head (`head`), and once (`shared`).
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

  /// Returns the range over the blocks [index << level, (index + 1) << level) of q or kv, whichever the value depends
  /// on.
  const analysis::Range& of(int64_t index, int level) const {
    return isSingle ? levels[0][0] : levels[size_t(level)][size_t(index)];
  }

private:
  /// Fills the lowest level from a captured i32 tensor whose index is the row or the column itself. Returns whether the
  /// value is that.
  bool readDirectly(const ir::Module& module, const ir::Bindings& bindings, ir::Value value, int64_t length,
                    int64_t block);

  bool isSingle = false; // the value depends only on the head: it is the same everywhere
  std::vector<std::vector<analysis::Range>> levels;
};

} // namespace attnc
