// Blocks of rows that lie in pages, to shared memory.
#pragma once

#include "algo/pages.cuh"
#include "tile/copy_tile.cuh"

namespace attnc {

/// The block's rows to shared memory, zeros from position `length` on. `pool`: at the KV head. All else as copy_in().
template <int Threads, class Element, int PageSize, int Rows, int Columns>
ATTNC_DEVICE void copy_in(PaddedTile<Element, Rows, Columns> tile, const PageBlock<PageSize, Rows>& block,
                          const Element* pool, const Strides& strides, int length, bool vectors,
                          unsigned thread = threadIdx.x) {
  if constexpr (PageSize != 0) {
    const int rows = length - int(block.start);
    if constexpr (PageBlock<PageSize, Rows>::kPages == 1)
      copy_in<Threads>(tile, pool + block.offset(strides, 0), strides.row, 0, rows, vectors, thread);
    else
      copy_rows_in<Threads>(tile, rows, vectors, [&](unsigned row) { return pool + block.offset(strides, row); }, thread);
  }
}

} // namespace attnc
