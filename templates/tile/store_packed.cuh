// Writes packed fragments to tiles in shared memory, for other warps to read.
#pragma once

#include "ptx/shared_memory.cuh"
#include "ptx/stmatrix.cuh"
#include "tile/fragment.cuh"
#include "tile/shared_tile.cuh"

namespace attnc::mma {

/// Writes a warp's fragment to rows [row, row + 16 RowGroups) and columns [column, column + N) of the tile.
template <class Element, int Rows, int Columns, int RowGroups, int N>
ATTNC_DEVICE void write_packed(PaddedTile<Element, Rows, Columns> tile, int row, int column,
                               const PackedFragment<Element, RowGroups, N>& from) {
  constexpr int kRowBytes = PaddedTile<Element, Rows, Columns>::kRowBytes;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < RowGroups; ++m)
#pragma unroll
    for (int step = 0; step < N / 16; ++step) {
#if __CUDA_ARCH__ >= 900
      ptx::stmatrix_x4(tile.row(row + lane % 16) + 2 * column + lane / 16 * 16 + m * 16 * kRowBytes + step * 32,
                       from.a[m][step]);
#else
      const unsigned at = tile.row(row + lane / 4) + 2 * column + lane % 4 * 4 + m * 16 * kRowBytes + step * 32;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        ptx::st_shared(at + i % 2 * 8 * kRowBytes + i / 2 * 16, __uint_as_float(from.a[m][step][i]));
#endif
    }
}

/// Writes accumulators times `factor`, rounded, to as many columns as the tile has.
template <class Element, int Rows, int Columns, int RowGroups, int N>
ATTNC_DEVICE void write_scaled(PaddedTile<Element, Rows, Columns> tile, int row, int column,
                               const Fragment<RowGroups, N>& from, float factor) {
#pragma unroll
  for (int r = 0; r < 2 * RowGroups; ++r) {
    Element* line = tile.elements(row + from.row(r)) + from.first_column() + column;
#pragma unroll
    for (int n = 0; n < N / 8; ++n)
      if (column + 8 * n < tile.kColumns) store2(line + 8 * n, from.at(r, n, 0) * factor, from.at(r, n, 1) * factor);
  }
}

} // namespace attnc::mma
