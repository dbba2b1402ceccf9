// Epilogue: writes a warpgroup's accumulators to a tile in shared memory, or to global memory.
#pragma once

#include "ptx/global_memory.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/stmatrix.cuh"
#include "tile/fragment.cuh"
#include "tile/shared_tile.cuh"

namespace attnc::wgmma {

/// Writes the 64 rows times their `factor`, rounded, to `tile` from its row 0 on. All threads of the warpgroup.
template <class Tile, int N>
ATTNC_DEVICE void write_tile(Tile tile, const Fragment<1, N>& from, const float (&factor)[2]) {
  // Lanes 8i..8i+7 address matrix i: rows +0 and +8 of one group of columns, then of the next.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const unsigned at = tile.base + (16 * warp + lane % 16) * Tile::kRowBytes;
#pragma unroll
  for (int n = 0; n < N / 8; n += 2) {
    unsigned x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      x[i] = pack2<typename Tile::Element>(from.at(i % 2, n + i / 2, 0) * factor[i % 2],
                                           from.at(i % 2, n + i / 2, 1) * factor[i % 2]);
    const int chunk = (n % 8 + lane / 16) ^ lane % 8; // of 16 bytes, in the 128-byte swizzle
    ptx::stmatrix_x4(at + n / 8 * Tile::kSlabBytes + chunk * 16, x);
  }
}

/// Writes the 64 rows to `tile` from its row 0 on, and from `column` on, a multiple of 16. All threads of the
/// warpgroup.
template <class Tile, class E, int N>
ATTNC_DEVICE void write_packed(Tile tile, int column, const PackedFragment<E, 1, N>& from) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
  for (int step = 0; step < N / 16; ++step)
    ptx::stmatrix_x4(tile.chunk(row, column / 8 + 2 * step + lane / 16), from.a[0][step]);
}

/// Copies rows [begin, end) of a tile, their first `Columns` columns, to rows `stride` elements apart, of which the
/// tile's row 0 would be at `to`. One warp.
template <int Columns, class Element, class Tile>
ATTNC_DEVICE void copy_rows(Element* to, long long stride, Tile tile, int begin, int end) {
  constexpr int kChunks = Columns / 8; // of 16 bytes
#pragma unroll 1
  for (int i = begin * kChunks + threadIdx.x % 32; i < end * kChunks; i += 32) {
    const int row = i / kChunks, chunk = i % kChunks;
    int x[4];
    ptx::ld_shared(x,
                   tile.slab(chunk / 8) + row * Tile::kRowBytes + (chunk % 8 ^ row % 8) * 16); // the 128-byte swizzle
    *(int4*)(to + row * stride + chunk * 8) = {x[0], x[1], x[2], x[3]};
  }
}

/// Stores the first `rows` of a warp's 16 rows times `factor`, rounded, and their first `Columns` columns, to rows
/// `stride` elements apart from `to` on. By way of `scratch`, 2048 bytes of shared memory for each warp, a multiple of
/// 1024: so eight lanes store 128 bytes of a row, and each needs a third of the instructions of store_row().
template <int Columns, class Element, int N>
ATTNC_DEVICE void store_rows(Element* to, long long stride, int rows, const Fragment<1, N>& from, float factor,
                             unsigned scratch) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int slab = 0; slab * 64 < N; ++slab) {
#pragma unroll
    for (int n = 0; n < 8 && slab * 64 + n * 8 < N; n += 2) {
      unsigned x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int group = 8 * slab + n + i / 2;
        x[i] = pack2<Element>(from.at(i % 2, group, 0) * factor, from.at(i % 2, group, 1) * factor);
      }
      ptx::stmatrix_x4(scratch + lane % 16 * 128 + ((n + lane / 16) ^ lane % 8) * 16, x);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 4 * i + lane / 8, column = slab * 64 + lane % 8 * 8;
      int x[4];
      ptx::ld_shared(x, scratch + row * 128 + (lane ^ row) % 8 * 16);
      if (row < rows && column < Columns) ptx::st_global(to + row * stride + column, x);
    }
    __syncwarp();
  }
}

/// Stores this lane's row r times `factor`, rounded, to `to`: its first `Columns` columns, and only if `inside`. The
/// quad that holds the row calls together: lanes exchange values, so that each stores 16 bytes and the quad 64
/// consecutive ones.
template <int Columns, class Element, int N>
ATTNC_DEVICE void store_row(Element* to, const Fragment<1, N>& from, int r, float factor, bool inside) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < N / 8; n += 4) {
    unsigned x[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (n + i < N / 8) x[i] = pack2<Element>(from.at(r, n + i, 0) * factor, from.at(r, n + i, 1) * factor);
        // A 4x4 transposition: lane t has pair t of groups n .. n + 3, and gets all pairs of group n + t.
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const unsigned got = __shfl_xor_sync(0xffffffffu, lane & 1 ? x[i] : x[i + 1], 1);
      (lane & 1 ? x[i] : x[i + 1]) = got;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned got = __shfl_xor_sync(0xffffffffu, lane & 2 ? x[i] : x[i + 2], 2);
      (lane & 2 ? x[i] : x[i + 2]) = got;
    }
    const int column = (n + lane) * 8;
    if (inside && column < Columns) ptx::st_global(to + column, x);
  }
}

} // namespace attnc::wgmma
