// Products of one warp with mma.sync (sm_80 and later): D += A B, for 16-bit elements and for f32 through TF32.
//
//   gemm(d, a, b)    d   Fragment<RowGroups, N>, added to
//                    a   PaddedTile of 16 RowGroups rows, K columns; transposed(PaddedTile of K rows); or a Fragment,
//                        rounded to the element type of b
//                    b   PaddedTile or SwizzledTile of K rows, N columns, or transposed() of one of N rows, K columns
//
// A warp calls together, converged. Fragments are as in fragment.cuh.
//
// fp32 elements: a product of two fp32 values is three TF32 products of their high and low parts (Ootomo and Yokota,
// arXiv:2203.03341), relative error about 2^-21. With `SingleTf32` only the high parts are multiplied, relative error
// 2^-11. A step along K is 32 bytes: 16 elements of 16 bits or 8 of fp32.
#pragma once

#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "ptx/mma_sm80.cuh"
#include "tile/fragment.cuh"
#include "tile/shared_tile.cuh"

namespace attnc::mma {

/// An fp32 operand split for 3xTF32: x = high + low up to 2^-22 |x|.
template <bool SingleTf32> struct Split {
  unsigned high, low;
  ATTNC_DEVICE explicit Split(unsigned bits) {
    const float x = __uint_as_float(bits);
    high = ptx::cvt_rna_tf32(x);
    low = SingleTf32 ? 0 : ptx::cvt_rna_tf32(x - __uint_as_float(high));
  }
};

/// d += a b for one step along K.
template <class Element, bool SingleTf32>
ATTNC_DEVICE void multiply_step(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (sizeof(Element) == 2) {
    ptx::mma_m16n8k16<Element>(d, a, b0, b1);
  } else {
    using Part = Split<SingleTf32>;
    const Part a0(a[0]), a1(a[1]), a2(a[2]), a3(a[3]), c0(b0), c1(b1);
    const unsigned high[4] = {a0.high, a1.high, a2.high, a3.high};
    if constexpr (!SingleTf32) {
      const unsigned low[4] = {a0.low, a1.low, a2.low, a3.low};
      ptx::mma_m16n8k8_tf32(d, low, c0.high, c1.high);
      ptx::mma_m16n8k8_tf32(d, high, c0.low, c1.low);
    }
    ptx::mma_m16n8k8_tf32(d, high, c0.high, c1.high);
  }
}

/// Which elements along K a lane takes in a step of fp32. With A from shared memory: t and t + 4, as in the
/// instruction. With A from a fragment, whose columns come in pairs: 2 t and 2 t + 1. A permutation of K does not
/// change the product.
template <bool Paired> struct StepOrder {
  static constexpr int kApart = Paired ? 1 : 4;
  ATTNC_DEVICE static int first() { return int(threadIdx.x) % 4 * (Paired ? 2 : 1); }
};

// ------------------------------------------------------------------------------------------- operand A: 16 rows, one
// step

template <class A> struct OperandA;

template <class E, int Rows, int Columns> struct OperandA<PaddedTile<E, Rows, Columns>> {
  using Tile = PaddedTile<E, Rows, Columns>;
  static constexpr bool kPaired = false;
  static constexpr int kK = Tile::kColumns;
  unsigned lane;
  ATTNC_DEVICE explicit OperandA(Tile tile)
      : lane(tile.base + threadIdx.x % 16 * Tile::kRowBytes + threadIdx.x % 32 / 16 * 16) {}
  template <class> ATTNC_DEVICE void load(unsigned (&a)[4], int m, int step) const {
    ptx::ldmatrix_x4(a, lane + m * 16 * Tile::kRowBytes + step * 32);
  }
};

template <class E, int Rows, int Columns> struct OperandA<Transposed<PaddedTile<E, Rows, Columns>>> {
  using Tile = PaddedTile<E, Rows, Columns>;
  static constexpr bool kPaired = false;
  static constexpr int kK = Rows;
  unsigned lane;
  ATTNC_DEVICE explicit OperandA(Transposed<Tile> a) {
    if constexpr (sizeof(E) == 2)
      lane = a.tile.base + (threadIdx.x % 8 + threadIdx.x % 32 / 16 * 8) * Tile::kRowBytes + threadIdx.x / 8 % 2 * 16;
    else
      lane = a.tile.base + threadIdx.x % 4 * Tile::kRowBytes + threadIdx.x % 32 / 4 * 4;
  }
  template <class> ATTNC_DEVICE void load(unsigned (&a)[4], int m, int step) const {
    if constexpr (sizeof(E) == 2) {
      ptx::ldmatrix_x4_trans(a, lane + step * 16 * Tile::kRowBytes + m * 32);
    } else {
      const unsigned at = lane + step * 8 * Tile::kRowBytes + m * 64;
      a[0] = ptx::ld_shared_u32(at), a[1] = ptx::ld_shared_u32(at + 32);
      a[2] = ptx::ld_shared_u32(at + 4 * Tile::kRowBytes), a[3] = ptx::ld_shared_u32(at + 4 * Tile::kRowBytes + 32);
    }
  }
};

template <int RowGroups, int Columns> struct OperandA<Fragment<RowGroups, Columns>> {
  static constexpr bool kPaired = true;
  static constexpr int kK = Columns;
  const Fragment<RowGroups, Columns>& fragment;
  ATTNC_DEVICE explicit OperandA(const Fragment<RowGroups, Columns>& fragment) : fragment(fragment) {}
  template <class E> ATTNC_DEVICE void load(unsigned (&a)[4], int m, int step) const {
    if constexpr (sizeof(E) == 2) {
      pack_step<E>(a, fragment, m, step);
    } else {
      const float(&x)[4] = fragment.x[m][step];
      a[0] = __float_as_uint(x[0]), a[1] = __float_as_uint(x[2]);
      a[2] = __float_as_uint(x[1]), a[3] = __float_as_uint(x[3]);
    }
  }
};

// ---------------------------------------------------- operand B: one step, 16 columns as two pairs of words (b0, b1)

template <class B, bool Paired> struct OperandB;

template <class E, int Rows, int Columns, bool Paired> struct OperandB<PaddedTile<E, Rows, Columns>, Paired> {
  using Tile = PaddedTile<E, Rows, Columns>;
  using Element = E;
  static constexpr int kK = Rows, kN = Tile::kColumns;
  unsigned lane;
  ATTNC_DEVICE explicit OperandB(Tile tile) {
    if constexpr (sizeof(E) == 2)
      lane = tile.base + threadIdx.x % 16 * Tile::kRowBytes + threadIdx.x % 32 / 16 * 16;
    else
      lane = tile.base + StepOrder<Paired>::first() * Tile::kRowBytes + threadIdx.x % 32 / 4 * 4;
  }
  ATTNC_DEVICE void load(unsigned (&b)[4], int n, int step) const {
    if constexpr (sizeof(E) == 2) {
      ptx::ldmatrix_x4_trans(b, lane + step * 16 * Tile::kRowBytes + n * 32);
    } else {
      const unsigned at = lane + step * 8 * Tile::kRowBytes + n * 64;
      constexpr int kOther = StepOrder<Paired>::kApart * Tile::kRowBytes;
      b[0] = ptx::ld_shared_u32(at), b[1] = ptx::ld_shared_u32(at + kOther);
      b[2] = ptx::ld_shared_u32(at + 32), b[3] = ptx::ld_shared_u32(at + 32 + kOther);
    }
  }
};

template <class E, int Rows, int Columns, bool Paired>
struct OperandB<Transposed<PaddedTile<E, Rows, Columns>>, Paired> {
  using Tile = PaddedTile<E, Rows, Columns>;
  using Element = E;
  static constexpr int kK = Tile::kColumns, kN = Rows;
  static constexpr bool kByMatrix = sizeof(E) == 2 || !Paired;
  unsigned lane;
  ATTNC_DEVICE explicit OperandB(Transposed<Tile> b) {
    if constexpr (kByMatrix)
      lane = b.tile.base + (threadIdx.x % 8 + threadIdx.x % 32 / 16 * 8) * Tile::kRowBytes + threadIdx.x / 8 % 2 * 16;
    else
      lane = b.tile.base + threadIdx.x % 32 / 4 * Tile::kRowBytes + StepOrder<Paired>::first() * 4;
  }
  ATTNC_DEVICE void load(unsigned (&b)[4], int n, int step) const {
    const unsigned at = lane + n * 16 * Tile::kRowBytes + step * 32;
    if constexpr (kByMatrix) {
      ptx::ldmatrix_x4(b, at);
    } else {
      b[0] = ptx::ld_shared_u32(at), b[1] = ptx::ld_shared_u32(at + 4);
      b[2] = ptx::ld_shared_u32(at + 8 * Tile::kRowBytes), b[3] = ptx::ld_shared_u32(at + 8 * Tile::kRowBytes + 4);
    }
  }
};

// In a swizzled row, chunk i of 16 bytes lies at i XOR the row, modulo 8. Lane addresses follow this.
template <class E, int Rows, int Columns, bool Paired> struct OperandB<SwizzledTile<E, Rows, Columns>, Paired> {
  using Tile = SwizzledTile<E, Rows, Columns>;
  using Element = E;
  static constexpr int kK = Rows, kN = Tile::kColumns;
  unsigned lane;
  ATTNC_DEVICE explicit OperandB(Tile tile)
      : lane(tile.base + threadIdx.x % 16 * Tile::kRowBytes + (threadIdx.x % 32 / 16 ^ threadIdx.x % 8) * 16) {}
  ATTNC_DEVICE void load(unsigned (&b)[4], int n, int step) const {
    ptx::ldmatrix_x4_trans(b, (lane ^ n % 4 * 32) + n / 4 * Tile::kSlabBytes + step * 16 * Tile::kRowBytes);
  }
};

template <class E, int Rows, int Columns, bool Paired>
struct OperandB<Transposed<SwizzledTile<E, Rows, Columns>>, Paired> {
  using Tile = SwizzledTile<E, Rows, Columns>;
  using Element = E;
  static constexpr int kK = Tile::kColumns, kN = Rows;
  unsigned lane;
  ATTNC_DEVICE explicit OperandB(Transposed<Tile> b)
      : lane(b.tile.base + (threadIdx.x % 8 + threadIdx.x % 32 / 16 * 8) * Tile::kRowBytes +
             (threadIdx.x / 8 % 2 ^ threadIdx.x % 8) * 16) {}
  ATTNC_DEVICE void load(unsigned (&b)[4], int n, int step) const {
    ptx::ldmatrix_x4(b, (lane ^ step % 4 * 32) + step / 4 * Tile::kSlabBytes + n * 16 * Tile::kRowBytes);
  }
};

// ------------------------------------------------------------------------------------------------------------ the
// product

template <bool SingleTf32 = false, int RowGroups, int N, class A, class B>
ATTNC_DEVICE void gemm(Fragment<RowGroups, N>& d, const A& a, const B& b) {
  using Left = OperandA<A>;
  using Right = OperandB<B, Left::kPaired>;
  using Element = typename Right::Element;
  static_assert(Left::kK == Right::kK && N == Right::kN && N % 16 == 0, "the shapes do not fit");
  const Left left(a);
  const Right right(b);
#pragma unroll
  for (int step = 0; step < Left::kK * int(sizeof(Element)) / 32; ++step) {
    unsigned x[RowGroups][4];
#pragma unroll
    for (int m = 0; m < RowGroups; ++m) left.template load<Element>(x[m], m, step);
#pragma unroll
    for (int n = 0; n < N / 16; ++n) {
      unsigned y[4];
      right.load(y, n, step);
#pragma unroll
      for (int m = 0; m < RowGroups; ++m) {
        multiply_step<Element, SingleTf32>(d.x[m][2 * n], x[m], y[0], y[1]);
        multiply_step<Element, SingleTf32>(d.x[m][2 * n + 1], x[m], y[2], y[3]);
      }
    }
  }
}

} // namespace attnc::mma
