// Copies blocks of paged rows to shared memory.
#pragma once

#include "algo/pages.cuh"
#include "tile/copy_tile.cuh"

namespace attnc {

/// Copies the block's rows to shared memory; positions from `length` on become zeros. `pool` points to the KV head. The
/// rest is as in copy_in() of tile/copy_tile.cuh.
template <int Threads, class Element, int PageSize, int Rows, int Columns>
ATTNC_DEVICE void copy_in(PaddedTile<Element, Rows, Columns> tile, const PageBlock<PageSize, Rows>& block,
                          const Element* pool, const Strides& strides, int length, bool vectors,
                          unsigned thread = threadIdx.x) {
  const int rows = length - int(block.start);
  if constexpr (PageBlock<PageSize, Rows>::kPages == 1)
    copy_in<Threads>(tile, pool + block.offset(strides, 0), strides.row, 0, rows, vectors, thread);
  else
    copy_rows_in<Threads>(
        tile, rows, vectors, [&](unsigned row) { return pool + block.offset(strides, row); }, thread);
}

/// The same, but rows from position `first_new` on come from `fresh`, which points to the first of them.
template <int Threads, class Element, int PageSize, int Rows, int Columns>
ATTNC_DEVICE void copy_in(PaddedTile<Element, Rows, Columns> tile, const PageBlock<PageSize, Rows>& block,
                          const Element* pool, const Strides& strides, const Element* fresh, long long fresh_stride,
                          int first_new, int length, bool vectors, unsigned thread) {
  const auto row_of = [&](unsigned row) {
    const Element* old = pool + block.offset(strides, row);
    const int token = int(block.start + row) - first_new;
    return token < 0 ? old : fresh + token * fresh_stride;
  };
  copy_rows_in<Threads>(tile, length - int(block.start), vectors, row_of, thread);
}

} // namespace attnc
