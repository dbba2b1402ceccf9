// Tile products of one warp with mma.sync: S = Q K^T and O += P V, for 16-bit elements and for f32 through TF32.
//
// Operand tiles lie row-major in shared memory, rows padded by 16 bytes: row length + 16 is an odd multiple of 16 bytes,
// so the eight rows that ldmatrix reads at once fall into different banks, and every offset within a tile is a constant.
// A warp owns 16 MmaM rows of Q; lane l holds, with g = l / 4 and t = l % 4, for row group m and column group n of 8:
//   s[m][n][0..1] = (row 16 m + g, cols 8 n + 2t, +1), s[m][n][2..3] = (row 16 m + g + 8, the same columns); o likewise.
//
// f32 elements: a product of two f32 values is taken as three TF32 products of their high and low parts (Ootomo and
// Yokota, arXiv:2203.03341), relative error about 2^-21; with kTf32 only the high parts are multiplied, 2^-11.
#pragma once

#include "attnc_config.cuh"

#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "ptx/mma_sm80.cuh"

namespace attnc {

constexpr bool kIsF32 = sizeof(Element) == 4;
ATTNC_DEVICE constexpr int round_up(int x, int multiple) { return (x + multiple - 1) / multiple * multiple; }

/// Head dims as computed with: whole 16-column groups, the surplus zero-filled in shared memory.
constexpr int kDimQk = round_up(kHeadDimQk, 16);
constexpr int kDimV = round_up(kHeadDimV, 16);

/// Bytes from one row of a tile of `dim` columns to the next.
ATTNC_DEVICE constexpr int row_bytes(int dim) { return dim * int(sizeof(Element)) + 16; }

/// A f32 operand split for 3xTF32: x = high + low up to 2^-22 |x|.
struct Split {
  unsigned high, low;
  ATTNC_DEVICE explicit Split(unsigned bits) {
    const float x = __uint_as_float(bits);
    high = ptx::cvt_rna_tf32(x);
    low = kTf32 ? 0 : ptx::cvt_rna_tf32(x - __uint_as_float(high));
  }
};

/// d += a b for f32 fragments of mma.m16n8k8.
ATTNC_DEVICE void mma_f32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const Split a0(a[0]), a1(a[1]), a2(a[2]), a3(a[3]), c0(b0), c1(b1);
  const unsigned high[4] = {a0.high, a1.high, a2.high, a3.high};
  if constexpr (!kTf32) {
    const unsigned low[4] = {a0.low, a1.low, a2.low, a3.low};
    ptx::mma_m16n8k8_tf32(d, low, c0.high, c1.high);
    ptx::mma_m16n8k8_tf32(d, high, c0.low, c1.low);
  }
  ptx::mma_m16n8k8_tf32(d, high, c0.high, c1.high);
}

/// d += a b for 32 bytes of k: one m16n8k16 of 16-bit elements or one m16n8k8 of f32.
template <class E = Element>
ATTNC_DEVICE void mma_step(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (sizeof(E) == 4)
    mma_f32(d, a, b0, b1);
  else
    ptx::mma_m16n8k16<E>(d, a, b0, b1);
}

/// S = Q K^T. `q`: shared address of the warp's first row; `k`: of the tile's first row. One warp, converged.
template <int MmaM, int BlockN>
ATTNC_DEVICE void multiply_qk(float (&s)[MmaM][BlockN / 8][4], unsigned q, unsigned k) {
  const int lane = threadIdx.x % 32;
  const unsigned q_lane = q + lane % 16 * row_bytes(kDimQk) + lane / 16 * 16;
  const unsigned k_lane = k + (lane % 8 + lane / 16 * 8) * row_bytes(kDimQk) + lane / 8 % 2 * 16;
#pragma unroll
  for (int m = 0; m < MmaM; ++m)
#pragma unroll
    for (int n = 0; n < BlockN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[m][n][e] = 0.f;
#pragma unroll
  for (int step = 0; step < kDimQk * int(sizeof(Element)) / 32; ++step) {
    unsigned a[MmaM][4];
#pragma unroll
    for (int m = 0; m < MmaM; ++m) ptx::ldmatrix_x4(a[m], q_lane + m * 16 * row_bytes(kDimQk) + step * 32);
#pragma unroll
    for (int n = 0; n < BlockN / 16; ++n) {
      unsigned b[4];
      ptx::ldmatrix_x4(b, k_lane + n * 16 * row_bytes(kDimQk) + step * 32);
#pragma unroll
      for (int m = 0; m < MmaM; ++m) {
        mma_step(s[m][2 * n], a[m], b[0], b[1]);
        mma_step(s[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// O += P V with P = s, 16-bit elements: the accumulators of two column groups of S are, rounded and packed, the A
/// fragment of one k step.
template <int MmaM, int BlockN, class E = Element>
ATTNC_DEVICE void multiply_pv_16bit(float (&o)[MmaM][kDimV / 8][4], const float (&s)[MmaM][BlockN / 8][4], unsigned v) {
  const int lane = threadIdx.x % 32;
  const unsigned v_lane = v + lane % 16 * row_bytes(kDimV) + lane / 16 * 16;
#pragma unroll
  for (int step = 0; step < BlockN / 16; ++step) {
    unsigned a[MmaM][4];
#pragma unroll
    for (int m = 0; m < MmaM; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &s[m][2 * step + i / 2][i % 2 * 2];
        a[m][i] = pack2<E>(pair[0], pair[1]);
      }
#pragma unroll
    for (int n = 0; n < kDimV / 16; ++n) {
      unsigned b[4];
      ptx::ldmatrix_x4_trans(b, v_lane + step * 16 * row_bytes(kDimV) + n * 32);
#pragma unroll
      for (int m = 0; m < MmaM; ++m) {
        mma_step(o[m][2 * n], a[m], b[0], b[1]);
        mma_step(o[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// O += P V with P = s, f32: one column group of S is one k step, its columns 2t and 2t + 1 taking the k slots t and
/// t + 4; the rows of V are picked to match.
template <int MmaM, int BlockN>
ATTNC_DEVICE void multiply_pv_f32(float (&o)[MmaM][kDimV / 8][4], const float (&s)[MmaM][BlockN / 8][4], unsigned v) {
  const int lane = threadIdx.x % 32;
  const unsigned v_lane = v + lane % 4 * 2 * row_bytes(kDimV) + lane / 4 * 4;
#pragma unroll
  for (int step = 0; step < BlockN / 8; ++step) {
#pragma unroll
    for (int n = 0; n < kDimV / 8; ++n) {
      const unsigned address = v_lane + step * 8 * row_bytes(kDimV) + n * 32;
      const unsigned b0 = ptx::ld_shared_u32(address), b1 = ptx::ld_shared_u32(address + row_bytes(kDimV));
#pragma unroll
      for (int m = 0; m < MmaM; ++m) {
        const float(&c)[4] = s[m][step];
        const unsigned a[4] = {__float_as_uint(c[0]), __float_as_uint(c[2]), __float_as_uint(c[1]),
                               __float_as_uint(c[3])};
        mma_step(o[m][n], a, b0, b1);
      }
    }
  }
}

/// O += P V. `v`: shared address of the tile's first row. One warp, converged.
template <int MmaM, int BlockN>
ATTNC_DEVICE void multiply_pv(float (&o)[MmaM][kDimV / 8][4], const float (&s)[MmaM][BlockN / 8][4], unsigned v) {
  if constexpr (kIsF32)
    multiply_pv_f32<MmaM, BlockN>(o, s, v);
  else
    multiply_pv_16bit<MmaM, BlockN>(o, s, v);
}

} // namespace attnc
