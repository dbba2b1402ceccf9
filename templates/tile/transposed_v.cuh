// V of E4M3 for O = P V with wgmma, which reads elements of 8 bits only where they are contiguous along K: along rows
// of V. A warp turns V in shared memory; O then leaves with its columns in another order.
//
//   transpose_v(to, from, ...)   to: rows by columns of V, columns by rows of `from`, both in an order of their own
//   write_v_columns(...)         writes O to a tile; store_v_columns(...): to a row in global memory
//
// ldmatrix moves 16 bits at a time. From a 16 x 16 piece of V, transposed, lane l (g = l / 4, t = l % 4) gets columns
// 2 g and 2 g + 1 of rows 2 t, 2 t + 1, 8 + 2 t and 9 + 2 t. These are words of two rows of `to`, each of 4 bytes:
//
//   rows     4 t + 2 i + e of 16 stands for row 8 i + 2 t + e, the order of PackedFragment<E4M3>    (i, e in {0, 1})
//   columns  8 e + g of 16 stands for column 2 g + e, so that stmatrix writes to eight rows in a row, without bank
//            conflicts. A lane's sums of O are of columns 4 t .. 4 t + 3 of each 16
#pragma once

#include "ptx/ldmatrix.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/stmatrix.cuh"
#include "tile/fragment.cuh"
#include "tile/shared_tile.cuh"

namespace attnc::wgmma {

/// Clears the bytes of a word of `to` whose rows are not below `live`. `first`: the row of V of its 16 rows' first.
ATTNC_DEVICE unsigned keep_live_rows(unsigned word, int first, int live) {
  const int row = first + int(threadIdx.x) % 4 * 2, low = live - row, high = low - 8;
  const unsigned low_mask = low >= 2 ? 0xffffu : low == 1 ? 0xffu : 0u;
  const unsigned high_mask = high >= 2 ? 0xffff0000u : high == 1 ? 0xff0000u : 0u;
  return word & (low_mask | high_mask);
}

/// Turns half `part` of the tile, 0 or 1: of 64 rows of V each, every other 32. If MayEnd, rows of V from `live` on
/// become 0. One warp, converged.
// NOTE: each batch of loads is issued before the one before it is stored: a load takes longer while products read
// shared memory, and the compiler keeps the order of these instructions.
template <bool MayEnd, class To, class From> ATTNC_DEVICE void transpose_v(To to, From from, int live, int part) {
  static_assert(sizeof(typename From::Element) == 1 && To::kRows % 16 == 0 && From::kRows == To::kColumns &&
                    From::kRows % 64 == 0,
                "pieces of 64 rows and 16 columns of V");
  constexpr int kOfColumns = From::kRows / 64, kPieces = kOfColumns * To::kRows / 16; // pieces of 16 columns, of all
  constexpr int kBatch = 4, kBatches = (kPieces + kBatch - 1) / kBatch;
  const int lane = threadIdx.x % 32;
  const unsigned in = from.base + (32 * part + lane) * From::kRowBytes + lane % 8 * 16;
  const unsigned out = to.base + lane % 16 * To::kRowBytes + ((2 * part + lane / 16) ^ lane % 8) * 16;
  unsigned x[2][kBatch][4];
  const auto load = [&](int batch) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int piece = batch * kBatch + i, group = piece / kOfColumns, first = piece % kOfColumns * 64;
      if (piece < kPieces)
        ptx::ldmatrix_x4_trans(x[batch % 2][i],
                               (in ^ group % 8 * 16) + group / 8 * From::kSlabBytes + first * From::kRowBytes);
    }
  };
  load(0);
#pragma unroll
  for (int batch = 0; batch < kBatches; ++batch) {
    if (batch + 1 < kBatches) load(batch + 1);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int piece = batch * kBatch + i, group = piece / kOfColumns, first = piece % kOfColumns * 64;
      if (piece >= kPieces) continue;
      unsigned(&of)[4] = x[batch % 2][i];
      unsigned y[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        y[j] = ptx::prmt(of[j / 2 * 2], of[j / 2 * 2 + 1], j % 2 ? 0x7531 : 0x6420);
        if constexpr (MayEnd) y[j] = keep_live_rows(y[j], first + 32 * part + j / 2 * 16, live);
      }
      ptx::stmatrix_x4((out ^ first / 64 % 2 * 64) + first / 128 * To::kSlabBytes + group * 16 * To::kRowBytes, y);
    }
  }
}

/// Writes the 64 rows times their `factor`, rounded, to `tile` from its row 0 on. All threads of the warpgroup.
template <class Tile, int N>
ATTNC_DEVICE void write_v_columns(Tile tile, const Fragment<1, N>& o, const float (&factor)[2]) {
  const int lane = threadIdx.x % 32, t = lane % 4, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
  for (int n = 0; n < N / 8; n += 2)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint2 x = v_columns<typename Tile::Element>(o, r, n, factor[r]);
      ptx::st_shared(tile.chunk(row + 8 * r, n + t / 2) + t % 2 * 8, {int(x.x), int(x.y)});
    }
}

/// Stores this lane's row r times `factor`, rounded, to `to`: its first `Columns` columns, and only if `inside`.
template <int Columns, class Element, int N>
ATTNC_DEVICE void store_v_columns(Element* to, const Fragment<1, N>& o, int r, float factor, bool inside) {
#pragma unroll
  for (int n = 0; n < N / 8; n += 2) {
    const int column = 8 * n + int(threadIdx.x) % 4 * 4;
    if (inside && column < Columns) *(uint2*)(to + column) = v_columns<Element>(o, r, n, factor);
  }
}

} // namespace attnc::wgmma
