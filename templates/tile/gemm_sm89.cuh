// Products of one warp with mma.sync of e4m3 (sm_89 and later): Q, K, V and weights of 8 bits.
//
//   gemm(s, q, transposed(k))    s += q k^T          the gemm() of gemm_mma.cuh for tiles of E4M3
//   gemm(o, p, v, factor)        o += factor p v     p: a PackedFragment; columns of o in the order of v_columns()
//
// K lies as the instruction wants it: 32 columns of a row are one step. V does not, as it must be contiguous along its
// rows, and ldmatrix moves 16 bits at a time. From 32 rows and 16 columns of V, transposed, lane l (g = l / 4, t = l %
// 4) gets columns 2 g and 2 g + 1 of rows 2 t and 2 t + 1 of each group of 8 rows. Byte permutes part the two columns,
// and two products take one each:
//
//   rows     4 t + 2 i + e of 16 stands for row 8 i + 2 t + e, the order of PackedFragment<E4M3>    (i, e in {0, 1})
//   columns  g of the first product stands for column 2 g, of the second for 2 g + 1: a lane's sums are of columns
//            4 t .. 4 t + 3 of each 16
//
// A warp calls together, converged. If columns are an odd multiple of 16, the padding behind a row of Q and K is read,
// and dropped.
#pragma once

#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sm80.cuh"
#include "tile/fragment.cuh"
#include "tile/shared_tile.cuh"

namespace attnc::mma {

template <bool, int RowGroups, int N, int QRows, int Columns>
ATTNC_DEVICE void gemm(Fragment<RowGroups, N>& s, const PaddedTile<E4M3, QRows, Columns>& q,
                       const Transposed<PaddedTile<E4M3, N, Columns>>& k) {
  using Q = PaddedTile<E4M3, QRows, Columns>;
  static_assert(QRows == 16 * RowGroups && N % 16 == 0, "the shapes do not fit");
  const unsigned q_lane = q.base + threadIdx.x % 16 * Q::kRowBytes + threadIdx.x % 32 / 16 * 16;
  const unsigned k_lane =
      k.tile.base + (threadIdx.x % 8 + threadIdx.x % 32 / 16 * 8) * Q::kRowBytes + threadIdx.x / 8 % 2 * 16;
#pragma unroll
  for (int column = 0; column < Q::kColumns; column += 32) {
    const bool is_half = column + 16 == Q::kColumns;
    unsigned a[RowGroups][4];
#pragma unroll
    for (int m = 0; m < RowGroups; ++m) {
      ptx::ldmatrix_x4(a[m], q_lane + m * 16 * Q::kRowBytes + column);
      if (is_half) a[m][2] = a[m][3] = 0;
    }
#pragma unroll
    for (int n = 0; n < N / 16; ++n) {
      unsigned b[4];
      ptx::ldmatrix_x4(b, k_lane + n * 16 * Q::kRowBytes + column);
      if (is_half) b[1] = b[3] = 0; // padding may be NaN
#pragma unroll
      for (int m = 0; m < RowGroups; ++m) {
        ptx::mma_m16n8k32_e4m3(s.x[m][2 * n], a[m], b[0], b[1]);
        ptx::mma_m16n8k32_e4m3(s.x[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// The product is summed from 0 and then added in fp32: sums within the instruction keep some 13 bits (SageAttention2,
/// Zhang et al., arXiv:2411.10958), so that a sum over all keys would lose some of them in each step.
template <int RowGroups, int N, int Rows, int Columns>
ATTNC_DEVICE void gemm(Fragment<RowGroups, N>& o, const PackedFragment<E4M3, RowGroups, Rows>& p,
                       PaddedTile<E4M3, Rows, Columns> v, float factor) {
  using V = PaddedTile<E4M3, Rows, Columns>;
  static_assert(N == V::kColumns && Rows % 32 == 0, "the shapes do not fit");
  const unsigned v_lane = v.base + threadIdx.x % 32 * V::kRowBytes;
#pragma unroll
  for (int n = 0; n < N / 16; ++n) {
    float sum[RowGroups][2][4] = {};
#pragma unroll
    for (int step = 0; step < Rows / 32; ++step) {
      unsigned x[4];
      ptx::ldmatrix_x4_trans(x, v_lane + step * 32 * V::kRowBytes + n * 16);
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const unsigned which = odd ? 0x7531 : 0x6420;
        const unsigned b0 = __byte_perm(x[0], x[1], which), b1 = __byte_perm(x[2], x[3], which);
#pragma unroll
        for (int m = 0; m < RowGroups; ++m) ptx::mma_m16n8k32_e4m3(sum[m][odd], p.a[m][step], b0, b1);
      }
    }
#pragma unroll
    for (int m = 0; m < RowGroups; ++m)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd)
#pragma unroll
        for (int e = 0; e < 4; ++e) o.x[m][2 * n + odd][e] += factor * sum[m][odd][e];
  }
}

} // namespace attnc::mma
