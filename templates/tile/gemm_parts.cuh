// More operands of mma::gemm (tile/gemm_mma.cuh), for 16-bit elements: column ranges of a tile, and packed fragments.
#pragma once

#include "tile/gemm_mma.cuh"

namespace attnc::mma {

/// Columns [first, first + Count) of a tile; `first` is a multiple of 8. As operand B they may reach past the tile's
/// last column, into the shared memory behind it: the extra result columns are garbage and must not be used.
template <class Tile, int Count> struct ColumnsOf {
  Tile tile;
  int first;
  ATTNC_DEVICE Tile shifted() const { return {tile.base + first * int(sizeof(typename Tile::Element))}; }
};
template <int Count, class Tile> ATTNC_DEVICE ColumnsOf<Tile, Count> columns(Tile tile, int first) {
  return {tile, first};
}

template <class Tile, int Count> struct OperandA<Transposed<ColumnsOf<Tile, Count>>> : OperandA<Transposed<Tile>> {
  ATTNC_DEVICE explicit OperandA(Transposed<ColumnsOf<Tile, Count>> a)
      : OperandA<Transposed<Tile>>(transposed(a.tile.shifted())) {}
};

template <class Tile, int Count, bool Paired> struct OperandB<ColumnsOf<Tile, Count>, Paired> : OperandB<Tile, Paired> {
  static constexpr int kN = Count;
  ATTNC_DEVICE explicit OperandB(ColumnsOf<Tile, Count> b) : OperandB<Tile, Paired>(b.shifted()) {}
};

template <class E, int RowGroups, int Columns> struct OperandA<PackedFragment<E, RowGroups, Columns>> {
  static constexpr bool kPaired = true;
  static constexpr int kK = Columns;
  const PackedFragment<E, RowGroups, Columns>& fragment;
  ATTNC_DEVICE explicit OperandA(const PackedFragment<E, RowGroups, Columns>& fragment) : fragment(fragment) {}
  template <class> ATTNC_DEVICE void load(unsigned (&a)[4], int m, int step) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = fragment.a[m][step][i];
  }
};

} // namespace attnc::mma
