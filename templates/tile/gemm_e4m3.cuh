// Products of one warp with e4m3 K and V (mma.sync): bytes in shared memory are converted to f16 in registers, which
// holds all of their values, and multiplied as f16.
//
//   multiply_scores(s, q, k)    s += q k^T    q: 16 rows of f16, columns in the order of q_offset()
//   multiply_values(o, p, v)    o += p v      columns of o in the order of store_row()
//
// k and v are PaddedTiles or SwizzledTiles of E4M3.
//
// ldmatrix moves 16 bits at a time, so a lane gets two neighbours where the product wants one. No shuffles are needed:
//
//   K  a lane gets columns 4 t .. 4 t + 3 of a row, the product wants 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 (t: lane % 4).
//      The order of a sum's terms does not matter, so Q has its columns in the same order.
//   V  a transposed load gives columns 2 g and 2 g + 1 (g: lane / 4) of two rows, the product wants column g of both.
//      One product takes all 2 g, another all 2 g + 1: a lane's sums are of columns 4 t .. 4 t + 3.
//
// A warp calls together, converged. If columns are an odd multiple of 16, the bytes behind a row are read, and dropped.
#pragma once

#include "ptx/cvt_e4m3.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sm80.cuh"
#include "tile/fragment.cuh"
#include "tile/shared_tile.cuh"

namespace attnc::e4m3 {

ATTNC_DEVICE unsigned low_pair(unsigned bytes) { return ptx::cvt_f16x2_e4m3x2<0>(bytes); }
ATTNC_DEVICE unsigned high_pair(unsigned bytes) { return ptx::cvt_f16x2_e4m3x2<1>(bytes); }

/// Where columns 4 i .. 4 i + 3 of a row of Q go: byte offsets in the row of the first two and of the last two.
ATTNC_DEVICE int2 q_offset(int i) {
  const int first = i / 4 * 32 + i % 4 * 4;
  return {first, first + 16};
}

/// Where a lane's row of a 16 x 32 part of a tile of E4M3 lies, for ldmatrix_x4. `row`: a multiple of 16. `chunk`: 16
/// columns, even.
template <class Tile> struct Lane;
template <int Rows, int Columns> struct Lane<PaddedTile<E4M3, Rows, Columns>> {
  using Tile = PaddedTile<E4M3, Rows, Columns>;
  unsigned first;
  ATTNC_DEVICE explicit Lane(Tile tile)
      : first(tile.base + threadIdx.x % 16 * Tile::kRowBytes + threadIdx.x % 32 / 16 * 16) {}
  ATTNC_DEVICE unsigned at(int row, int chunk) const { return first + row * Tile::kRowBytes + chunk * 16; }
};
template <int Rows, int Columns> struct Lane<SwizzledTile<E4M3, Rows, Columns>> {
  using Tile = SwizzledTile<E4M3, Rows, Columns>;
  unsigned first;
  ATTNC_DEVICE explicit Lane(Tile tile)
      : first(tile.base + threadIdx.x % 16 * Tile::kRowBytes + (threadIdx.x % 32 / 16 ^ threadIdx.x % 8) * 16) {}
  ATTNC_DEVICE unsigned at(int row, int chunk) const {
    return (first ^ chunk % 8 * 16) + chunk / 8 * Tile::kSlabBytes + row * Tile::kRowBytes;
  }
};

template <int N, class QRows, class K> ATTNC_DEVICE void multiply_scores(Fragment<1, N>& s, QRows q, K k) {
  constexpr int kSteps = QRows::kColumns / 16, Rows = K::kRows;
  static_assert(N == Rows && QRows::kColumns <= K::kColumns && Rows % 16 == 0, "the shapes do not fit");
  const unsigned q_lane = q.base + threadIdx.x % 16 * QRows::kRowBytes + threadIdx.x % 32 / 16 * 16;
  const Lane<K> k_lane(k);
#pragma unroll
  for (int step = 0; step < kSteps; step += 2) {
    unsigned a[2][4];
    ptx::ldmatrix_x4(a[0], q_lane + step * 32);
    if (step + 1 < kSteps) ptx::ldmatrix_x4(a[1], q_lane + step * 32 + 32);
#pragma unroll
    for (int n = 0; n < Rows / 16; ++n) {
      unsigned b[4]; // rows 0 .. 7 and 8 .. 15 of a step, and of the next one
      ptx::ldmatrix_x4(b, k_lane.at(n * 16, step));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (step + i / 2 < kSteps)
          ptx::mma_m16n8k16<F16>(s.x[0][2 * n + i % 2], a[i / 2], low_pair(b[i]), high_pair(b[i]));
    }
  }
}

/// Returns two rows of columns 2 g and 2 g + 1 as both rows of 2 g, then both of 2 g + 1.
ATTNC_DEVICE unsigned columns_together(unsigned rows) { return __byte_perm(rows, 0, 0x3120); }

template <int N, int Rows, class V>
ATTNC_DEVICE void multiply_values(Fragment<1, N>& o, const Fragment<1, Rows>& p, V v) {
  static_assert(V::kRows == Rows && N <= V::kColumns && Rows % 16 == 0, "the shapes do not fit");
  const Lane<V> v_lane(v);
#pragma unroll
  for (int step = 0; step < Rows / 16; ++step) {
    unsigned a[4];
    pack_step<F16>(a, p, 0, step);
#pragma unroll
    for (int n = 0; n < N / 16; n += 2) {
      unsigned b[4]; // rows 0 .. 7 and 8 .. 15 of 16 columns, and of the next 16
      ptx::ldmatrix_x4_trans(b, v_lane.at(step * 16, n));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (n + i >= N / 16) continue;
        const unsigned first = columns_together(b[2 * i]), second = columns_together(b[2 * i + 1]);
        ptx::mma_m16n8k16<F16>(o.x[0][2 * (n + i)], a, low_pair(first), low_pair(second));
        ptx::mma_m16n8k16<F16>(o.x[0][2 * (n + i) + 1], a, high_pair(first), high_pair(second));
      }
    }
  }
}

/// Stores a lane's row `r` of o, times `factor`. `line`: the first column of that row.
template <int N> ATTNC_DEVICE void store_row(float* line, const Fragment<1, N>& o, int r, float factor) {
#pragma unroll
  for (int n = 0; n < N / 16; ++n)
    *(float4*)(line + 16 * n + threadIdx.x % 4 * 4) = {o.at(r, 2 * n, 0) * factor, o.at(r, 2 * n + 1, 0) * factor,
                                                       o.at(r, 2 * n, 1) * factor, o.at(r, 2 * n + 1, 1) * factor};
}

} // namespace attnc::e4m3
