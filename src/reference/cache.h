// K or V in a cache, in host memory: a tensor [B, HKV, KV_LEN, D], or a pool of pages [pages, HKV, page_size, D] with a
// page table i32 [B, N] (Operands::pageTable). `lengths`, i32 [B], is the number of rows of each sequence. As on a GPU,
// those beyond `longest` are cut off.
#pragma once

#include "attnc/tensor.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <cstdint>
#include <limits>

namespace attnc::reference {

struct Cache {
  const TensorView& rows;  ///< the tensor, or the pool
  const TensorView* table; ///< null: not paged
  const TensorView& lengths;
  int64_t longest = std::numeric_limits<int64_t>::max(); ///< KV_LEN, if it is known

  /// Returns the capacity of a sequence, in rows.
  int64_t kvLength() const { return (table ? table->shape[1] : 1) * rows.shape[2]; }
};

/// Calls visit(offset, b, h, position) for positions [begin(b, length), length) of every sequence and KV head. `offset`
/// is that of the row in Cache::rows, in elements. Table entries behind a length are not read. Precondition, here and
/// below: checkValues() of operand_values.h.
void eachRow(const Cache& cache, llvm::function_ref<int64_t(int64_t b, int64_t length)> begin,
             llvm::function_ref<void(int64_t offset, int64_t b, int64_t h, int64_t position)> visit);

/// Copies the rows of sequences to `to`, [B, HKV, kvLength(), D] of the same dtype. Rows behind a length are not
/// written.
void gatherRows(const Cache& cache, const TensorView& to);

/// Writes `fresh`, [B, HKV, Q_LEN, D], to the end of each sequence, as Operands::newK does. It has the cache's dtype,
/// or is divided by `scales`, f32 [HKV] or [1 or B, HKV], and rounded to e4m3. `cuSeqlensQ`: for a ragged batch, where
/// `fresh` is [1, HKV, rows of q, D], and rows of a sequence from `qLen` on are cut off; else null.
void appendRows(const Cache& cache, const TensorView& fresh, int64_t qLen, const TensorView* cuSeqlensQ,
                const TensorView* scales);

} // namespace attnc::reference
