// Products of one warpgroup with wgmma (sm_90a): D = A B or D += A B. The caller fences, starts a group of products,
// commits it, and waits.
//
//   start_gemm(d, a, b, accumulate)    d   Fragment<1, N>: a warpgroup's 64 rows, 16 a warp
//       a   SwizzledTile of K columns, from the warpgroup's first row on; transposed(SwizzledTile of K rows), from the
//           slab of its 64 columns on; or a PackedFragment
//       b   SwizzledTile of K rows, N columns, or transposed(SwizzledTile of N rows, K columns)
//
//   wait<Left>(d, ..)                  until all groups but the last `Left` are complete; their results are `d, ..`
//   gemm(d, a, b, accumulate)          all of this, for a product that nothing overlaps
//
// Elements are of 16 bits, or E4M3: K then runs along the columns of all tiles.
//
// All threads of the warpgroup call together. The registers of d and of a packed a are in use until the product's group
// has been waited for: ptx/wgmma.cuh. If K runs along a tile's columns, they are taken 32 bytes at a time, only as many
// as the tile has; further columns of its last slab are not read.
#pragma once

#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/shared_tile.cuh"

namespace attnc::wgmma {

/// Returns the descriptor of a matrix in the 128-byte swizzle with consecutive groups of 8 rows. `slab_bytes` only
/// matters for MN-major matrices: the distance between pieces of 64 columns.
ATTNC_DEVICE unsigned long long descriptor(unsigned shared, int slab_bytes) {
  const unsigned low = (shared & 0x3ffff) >> 4 | unsigned(slab_bytes >> 4) << 16;
  const unsigned high = 8 * 128 >> 4 | 1u << 30;
  return (unsigned long long)high << 32 | low;
}

/// Extent of a product's step along K.
template <class Element> constexpr int kStepOfK = 32 / int(sizeof(Element));

/// A matrix that is contiguous along K: a step is 32 bytes of a slab.
template <class Tile> struct KMajor {
  static constexpr int kIsMnMajor = 0;
  static constexpr int kK = Tile::kColumns;
  unsigned long long at;
  ATTNC_DEVICE explicit KMajor(Tile tile) : at(descriptor(tile.base, 16)) {}
  ATTNC_DEVICE unsigned long long operator()(int step) const {
    return at + ((step / 4 * Tile::kSlabBytes + step % 4 * 32) >> 4);
  }
};

/// A matrix of K rows: 16 of K are 16 rows.
template <class Tile> struct MnMajor {
  static_assert(sizeof(typename Tile::Element) == 2, "elements of 8 bits are contiguous along K");
  static constexpr int kIsMnMajor = 1;
  static constexpr int kK = Tile::kRows;
  unsigned long long at;
  ATTNC_DEVICE explicit MnMajor(Tile tile) : at(descriptor(tile.base, Tile::kSlabBytes)) {}
  ATTNC_DEVICE unsigned long long operator()(int step) const { return at + ((step * 16 * Tile::kRowBytes) >> 4); }
};

template <class A> struct OperandA;
template <class E, int Rows, int Columns>
struct OperandA<SwizzledTile<E, Rows, Columns>> : KMajor<SwizzledTile<E, Rows, Columns>> {
  using KMajor<SwizzledTile<E, Rows, Columns>>::KMajor;
};
template <class E, int Rows, int Columns>
struct OperandA<Transposed<SwizzledTile<E, Rows, Columns>>> : MnMajor<SwizzledTile<E, Rows, Columns>> {
  ATTNC_DEVICE explicit OperandA(Transposed<SwizzledTile<E, Rows, Columns>> a)
      : MnMajor<SwizzledTile<E, Rows, Columns>>(a.tile) {}
};

template <class B> struct OperandB;
template <class E, int Rows, int Columns>
struct OperandB<SwizzledTile<E, Rows, Columns>> : MnMajor<SwizzledTile<E, Rows, Columns>> {
  using Element = E;
  static constexpr int kN = SwizzledTile<E, Rows, Columns>::kColumns;
  using MnMajor<SwizzledTile<E, Rows, Columns>>::MnMajor;
};
template <class E, int Rows, int Columns>
struct OperandB<Transposed<SwizzledTile<E, Rows, Columns>>> : KMajor<SwizzledTile<E, Rows, Columns>> {
  using Element = E;
  static constexpr int kN = Rows;
  ATTNC_DEVICE explicit OperandB(Transposed<SwizzledTile<E, Rows, Columns>> b)
      : KMajor<SwizzledTile<E, Rows, Columns>>(b.tile) {}
};

/// A from shared memory.
template <int N, class A, class B> ATTNC_DEVICE void start_gemm(Fragment<1, N>& d, A a, B b, int accumulate) {
  using Right = OperandB<B>;
  static_assert(OperandA<A>::kK == Right::kK && N == Right::kN, "the shapes do not fit");
  const OperandA<A> left(a);
  const Right right(b);
#pragma unroll
  for (int step = 0; step < Right::kK / kStepOfK<typename Right::Element>; ++step)
    ptx::wgmma_ss<typename Right::Element, N, OperandA<A>::kIsMnMajor, Right::kIsMnMajor>(
        d.x[0], left(step), right(step), step > 0 ? 1 : accumulate);
}

/// A from registers.
template <int N, class E, int K, class B>
ATTNC_DEVICE void start_gemm(Fragment<1, N>& d, const PackedFragment<E, 1, K>& a, B b, int accumulate) {
  using Right = OperandB<B>;
  static_assert(K == Right::kK && N == Right::kN, "the shapes do not fit");
  const Right right(b);
#pragma unroll
  for (int step = 0; step < K / kStepOfK<E>; ++step)
    ptx::wgmma_rs<E, N, Right::kIsMnMajor>(d.x[0], a.a[0][step], right(step), step > 0 ? 1 : accumulate);
}

/// Tells the compiler, which does not know that wgmma is asynchronous, that the fragment changes here. No instruction.
template <int N> ATTNC_DEVICE void touch(Fragment<1, N>& d) { ptx::touch(d.x[0]); }

/// Waits until all groups but the last `Left` are complete; their results are `d`.
template <int Left, class... D> ATTNC_DEVICE void wait(D&... d) {
  ptx::wgmma_wait_group<Left>();
  (touch(d), ...);
}
/// Computes a product while no other is in flight.
// NOTE: no function fences, starts one product and commits it: addresses of its operands would be computed before the
// fence, and ptxas then serialises products of some kernels (C7511).
template <class D, class A, class B> ATTNC_DEVICE void gemm(D& d, const A& a, B b, int accumulate) {
  touch(d);
  ptx::wgmma_fence();
  start_gemm(d, a, b, accumulate);
  ptx::wgmma_commit_group();
  wait<0>(d);
}

} // namespace attnc::wgmma
