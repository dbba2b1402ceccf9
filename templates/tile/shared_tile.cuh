// Matrices in shared memory, typed by element, rows, columns and layout, and their roles in a product.
//
//   PaddedTile     consecutive rows, each padded by 16 bytes: the eight rows that ldmatrix reads at once fall into
//                  different banks, because a row is an odd multiple of 16 bytes, and every offset is a constant
//   SwizzledTile   slabs of 128 bytes, 64 columns of 16 bits or 128 of 8, each in the 128-byte swizzle that TMA writes
//                  and wgmma reads
//
// A tile is an address and a type; copies are free. In a product, `tile` stands for the matrix as stored, rows by
// columns, and transposed(tile) for columns by rows: S = Q K^T is gemm(s, q, transposed(k)), O += P V is gemm(o, p, v).
#pragma once

#include "tile/element.cuh"

namespace attnc {

/// Returns the columns that are computed for `dim`: whole groups of 16. The surplus is zero in shared memory.
ATTNC_DEVICE constexpr int computed_columns(int dim) { return round_up(dim, 16); }

template <class Element_, int Rows, int Columns> struct PaddedTile {
  using Element = Element_;
  static constexpr int kRows = Rows;
  static constexpr int kColumns = computed_columns(Columns);
  static constexpr int kRowBytes = kColumns * int(sizeof(Element)) + 16;
  static constexpr int kBytes = Rows * kRowBytes;

  unsigned base; ///< shared address of row 0

  ATTNC_DEVICE unsigned row(int i) const { return base + i * kRowBytes; }
  /// Returns the address of chunk i, 16 bytes of a row.
  ATTNC_DEVICE unsigned chunk(int row, int i) const { return base + row * kRowBytes + i * 16; }
  /// Returns the elements of a row, for plain loads and stores.
  ATTNC_DEVICE Element* elements(int i) const { return (Element*)__cvta_shared_to_generic(row(i)); }
  /// Returns the tile of `Count` rows from `first` on.
  template <int Count> ATTNC_DEVICE PaddedTile<Element, Count, Columns> rows(int first) const { return {row(first)}; }
};

template <class Element_, int Rows, int Columns> struct SwizzledTile {
  using Element = Element_;
  static_assert(sizeof(Element) <= 2, "elements of 16 or 8 bits");
  static_assert(Rows % 8 == 0, "the swizzle repeats every 8 rows");
  static constexpr int kRows = Rows;
  static constexpr int kColumns = round_up(Columns, 32 / int(sizeof(Element)));
  static constexpr int kRowBytes = 128; // of a slab
  static constexpr int kSlabColumns = kRowBytes / int(sizeof(Element));
  static constexpr int kSlabs = (Columns + kSlabColumns - 1) / kSlabColumns;
  static constexpr int kSlabBytes = Rows * kRowBytes;
  static constexpr int kBytes = kSlabs * kSlabBytes;

  unsigned base; ///< shared address, a multiple of 1024 for the tile as a whole

  /// Returns the same slabs from row `first` on, a multiple of 8: for a warpgroup that owns 64 of the rows.
  ATTNC_DEVICE SwizzledTile from_row(int first) const { return {base + first * kRowBytes}; }
  ATTNC_DEVICE unsigned slab(int i) const { return base + i * kSlabBytes; }
  /// Returns the address of chunk i, 16 bytes of a row.
  ATTNC_DEVICE unsigned chunk(int row, int i) const { return slab(i / 8) + row * kRowBytes + (i ^ row) % 8 * 16; }
};

template <class Tile> struct Transposed { Tile tile; };
template <class Tile> ATTNC_DEVICE Transposed<Tile> transposed(Tile tile) { return {tile}; }

} // namespace attnc
