// Copies of row tiles between global and shared memory, by all threads of a CTA or by one warp.
//
// Elements outside the matrix, rows past its end or columns past the head dim, become zero in shared memory and are
// never accessed in global memory. Rows that are not 16-byte aligned take a slow path.
#pragma once

#include "ptx/cp_async.cuh"
#include "ptx/math.cuh"
#include "tile/shared_tile.cuh"

namespace attnc {

/// Returns zero: tiles are filled with nothing else.
template <> ATTNC_DEVICE E4M3 from_float<E4M3>(float) { return {0}; }

/// Copies rows [row_start, row_start + tile's rows) of a [length, Columns] matrix to shared memory. Called by all
/// `Threads` threads of the CTA, or of a part of it with `thread` numbered within that part. Asynchronous if `vectors`:
/// the caller commits and waits. `base` points to row 0.
template <int Threads, class Element, int Rows, int Columns>
ATTNC_DEVICE void copy_in(PaddedTile<Element, Rows, Columns> tile, const Element* base, long long row_stride,
                          int row_start, int length, bool vectors, unsigned thread = threadIdx.x) {
  using Tile = PaddedTile<Element, Rows, Columns>;
  constexpr int kDim = Tile::kColumns;
  constexpr int kPerChunk = 16 / int(sizeof(Element)), kChunks = kDim / kPerChunk;
  if (vectors) {
    constexpr int kStep = Threads / kChunks;
    if constexpr (Threads % kChunks == 0 && Rows % kStep == 0) { // a thread keeps its column and steps through the rows
      const int row = thread / kChunks, chunk = thread % kChunks;
      const unsigned shared = tile.row(row) + chunk * 16;
      const Element* source = base + (row_start + row) * row_stride + chunk * kPerChunk;
      const int rows_left = kDim == Columns || chunk * kPerChunk < Columns ? length - row_start - row : 0;
#pragma unroll
      for (int i = 0; i < Rows / kStep; ++i, source += kStep * row_stride)
        ptx::cp_async_16(shared + i * kStep * Tile::kRowBytes, source, i * kStep < rows_left ? 16 : 0);
    } else {
#pragma unroll 4
      for (int linear = thread; linear < Rows * kChunks; linear += Threads) {
        const int row = linear / kChunks, chunk = linear % kChunks;
        const bool inside = row_start + row < length && (kDim == Columns || chunk * kPerChunk < Columns);
        const Element* source = base + (row_start + row) * row_stride + chunk * kPerChunk;
        ptx::cp_async_16(tile.row(row) + chunk * 16, source, inside ? 16 : 0);
      }
    }
  } else {
    // NOTE: opaque, so that the address arithmetic of this rare path is not hoisted out of the caller's main loop.
    // There it costs registers that make the fast path spill.
#pragma unroll 1
    for (int linear = ptx::opaque(thread); linear < Rows * kDim; linear += Threads) {
      const int row = linear / kDim, d = linear % kDim;
      const bool inside = row_start + row < length && d < Columns;
      tile.elements(row)[d] = inside ? base[(row_start + row) * row_stride + d] : from_float<Element>(0.f);
    }
  }
}

/// The same for rows that lie anywhere: `row_of(i)` points to row i. It is called by whole warps, also for rows past
/// `length`, which become zero in shared memory.
template <int Threads, class Element, int Rows, int Columns, class RowOf>
ATTNC_DEVICE void copy_rows_in(PaddedTile<Element, Rows, Columns> tile, int length, bool vectors, RowOf row_of,
                               unsigned thread = threadIdx.x) {
  using Tile = PaddedTile<Element, Rows, Columns>;
  constexpr int kDim = Tile::kColumns;
  constexpr int kPerChunk = 16 / int(sizeof(Element)), kChunks = kDim / kPerChunk;
  if (vectors) {
#pragma unroll
    for (int i = 0; i < (Rows * kChunks + Threads - 1) / Threads; ++i) {
      const int linear = i * Threads + thread, row = linear / kChunks, chunk = linear % kChunks;
      const Element* source = row_of(row) + chunk * kPerChunk; // by whole warps: also for lanes behind the last chunk
      if (Rows * kChunks % Threads != 0 && linear >= Rows * kChunks) break;
      const bool inside = row < length && (kDim == Columns || chunk * kPerChunk < Columns);
      ptx::cp_async_16(tile.row(row) + chunk * 16, source, inside ? 16 : 0);
    }
  } else {
#pragma unroll 1 // NOTE: opaque, as above
    for (int linear = ptx::opaque(thread); linear < Rows * kDim; linear += Threads) {
      const int row = linear / kDim, d = linear % kDim;
      const Element* source = row_of(row) + d;
      tile.elements(row)[d] = row < length && d < Columns ? *source : from_float<Element>(0.f);
    }
  }
}

/// Copies the tile's rows to the rows [row_start, ...) of a [length, Columns] matrix. One warp.
template <class Element, int Rows, int Columns>
ATTNC_DEVICE void copy_out(PaddedTile<Element, Rows, Columns> tile, Element* base, long long row_stride, int row_start,
                           int length, bool vectors) {
  constexpr int kPerChunk = 16 / int(sizeof(Element)), kChunks = Columns / kPerChunk;
  const int lane = threadIdx.x % 32;
  if (vectors) {
    for (int linear = lane; linear < Rows * kChunks; linear += 32) {
      const int row = linear / kChunks, chunk = linear % kChunks;
      if (row_start + row < length)
        *(uint4*)(base + (row_start + row) * row_stride + chunk * kPerChunk) =
            *(const uint4*)(tile.elements(row) + chunk * kPerChunk);
    }
  } else {
    for (int linear = lane; linear < Rows * Columns; linear += 32) {
      const int row = linear / Columns, d = linear % Columns;
      if (row_start + row < length) base[(row_start + row) * row_stride + d] = tile.elements(row)[d];
    }
  }
}

} // namespace attnc
