// Epilogue: stores a warp's accumulators through shared memory.
#pragma once

#include "tile/copy_tile.cuh"
#include "tile/fragment.cuh"

namespace attnc::mma {

/// Stores a warp's rows times `factor` to rows [row_start, ...) of a [length, Columns] matrix, staged in `rows`.
template <class Element, int Columns, int N>
ATTNC_DEVICE void store_rows(PaddedTile<Element, 16, Columns> rows, const Fragment<1, N>& from, float factor,
                             Element* to, long long row_stride, int row_start, int length, bool vectors) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    Element* line = rows.elements(from.row(r)) + from.first_column();
#pragma unroll
    for (int n = 0; n < N / 8; ++n) store2(line + 8 * n, from.at(r, n, 0) * factor, from.at(r, n, 1) * factor);
  }
  __syncwarp();
  copy_out(rows, to, row_stride, row_start, length, vectors);
}

} // namespace attnc::mma
