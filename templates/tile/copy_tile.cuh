// Copies of row tiles between global and shared memory, by all threads of a CTA or by one warp.
//
// Shared tiles have padded rows (row_bytes); what lies outside the matrix, rows past its end or columns past the head
// dim, is zero in shared memory and never touched in global memory. Rows that are not 16-byte aligned take a slow path.
#pragma once

#include "attnc_config.cuh"

#include "ptx/cp_async.cuh"
#include "ptx/math.cuh"
#include "tile/mma_tile.cuh"

namespace attnc {

/// Rows [row_start, row_start + Rows) of a [length, HeadDim] matrix to shared memory. All `Threads` threads of the CTA.
/// Asynchronous if `vectors`: the caller commits and waits. `base` points to row 0.
template <int Rows, int HeadDim, int Threads>
ATTNC_DEVICE void copy_tile_in(unsigned char* tile, const Element* base, long long row_stride, int row_start, int length,
                               bool vectors) {
  constexpr int kDim = round_up(HeadDim, 16);
  constexpr int kPerChunk = 16 / int(sizeof(Element)), kChunks = kDim / kPerChunk;
  if (vectors) {
    constexpr int kStep = Threads / kChunks;
    if constexpr (Threads % kChunks == 0 && Rows % kStep == 0) { // a thread keeps its column and steps through the rows
      const int row = threadIdx.x / kChunks, chunk = threadIdx.x % kChunks;
      const unsigned shared = ptx::shared_address(tile) + row * row_bytes(kDim) + chunk * 16;
      const Element* source = base + (row_start + row) * row_stride + chunk * kPerChunk;
      const int rows_left = kDim == HeadDim || chunk * kPerChunk < HeadDim ? length - row_start - row : 0;
#pragma unroll
      for (int i = 0; i < Rows / kStep; ++i, source += kStep * row_stride)
        ptx::cp_async_16(shared + i * kStep * row_bytes(kDim), source, i * kStep < rows_left ? 16 : 0);
    } else {
      const unsigned shared = ptx::shared_address(tile);
#pragma unroll 4
      for (int linear = threadIdx.x; linear < Rows * kChunks; linear += Threads) {
        const int row = linear / kChunks, chunk = linear % kChunks;
        const bool inside = row_start + row < length && (kDim == HeadDim || chunk * kPerChunk < HeadDim);
        const Element* source = base + (row_start + row) * row_stride + chunk * kPerChunk;
        ptx::cp_async_16(shared + row * row_bytes(kDim) + chunk * 16, source, inside ? 16 : 0);
      }
    }
  } else {
    // NOTE: opaque, so that the address arithmetic of this rare path is not hoisted out of the caller's main loop, where
    // it costs registers that the fast path spills for.
#pragma unroll 1
    for (int linear = ptx::opaque(threadIdx.x); linear < Rows * kDim; linear += Threads) {
      const int row = linear / kDim, d = linear % kDim;
      const bool inside = row_start + row < length && d < HeadDim;
      ((Element*)(tile + row * row_bytes(kDim)))[d] =
          inside ? base[(row_start + row) * row_stride + d] : from_float<Element>(0.f);
    }
  }
}

/// Rows [row_start, row_start + Rows) from shared memory to a [length, HeadDim] matrix. One warp.
template <int Rows, int HeadDim>
ATTNC_DEVICE void copy_tile_out(const unsigned char* tile, Element* base, long long row_stride, int row_start,
                                int length, bool vectors) {
  constexpr int kDim = round_up(HeadDim, 16);
  constexpr int kPerChunk = 16 / int(sizeof(Element)), kChunks = HeadDim / kPerChunk;
  const int lane = threadIdx.x % 32;
  if (vectors) {
    for (int linear = lane; linear < Rows * kChunks; linear += 32) {
      const int row = linear / kChunks, chunk = linear % kChunks;
      if (row_start + row < length)
        *(uint4*)(base + (row_start + row) * row_stride + chunk * kPerChunk) =
            *(const uint4*)(tile + row * row_bytes(kDim) + chunk * 16);
    }
  } else {
    for (int linear = lane; linear < Rows * HeadDim; linear += 32) {
      const int row = linear / HeadDim, d = linear % HeadDim;
      if (row_start + row < length)
        base[(row_start + row) * row_stride + d] = ((const Element*)(tile + row * row_bytes(kDim)))[d];
    }
  }
}

} // namespace attnc
