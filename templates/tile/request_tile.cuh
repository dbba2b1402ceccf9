// TMA loads of whole tiles from global memory (sm_90).
#pragma once

#include "ptx/tma.cuh"
#include "tile/shared_tile.cuh"

namespace attnc {

/// Issues the loads of a box of whole rows: rows [row, row + Rows) of head h, batch b. One thread.
template <class Tile>
ATTNC_DEVICE void request_tile(Tile tile, const TensorMap& map, unsigned barrier, int row, int h, int b) {
#pragma unroll
  for (int slab = 0; slab < Tile::kSlabs; ++slab)
    ptx::tma_load_4d(tile.slab(slab), map, barrier, slab * Tile::kSlabColumns, row, h, b);
}

/// The same for all of a cluster of `Ctas` CTAs, each of which calls it with its rank: the part of the rows that is
/// this CTA's to load. Boxes have Rows / Ctas rows.
template <int Ctas, class Tile>
ATTNC_DEVICE void request_part(Tile tile, const TensorMap& map, unsigned barrier, int row, int h, int b, int rank) {
  constexpr int kRows = Tile::kRows / Ctas;
  static_assert(kRows % 8 == 0, "boxes are whole, and so is their swizzle");
  const unsigned part = tile.from_row(rank * kRows).base;
#pragma unroll
  for (int slab = 0; slab < Tile::kSlabs; ++slab)
    ptx::tma_multicast_4d(part + slab * Tile::kSlabBytes, map, barrier, slab * Tile::kSlabColumns, row + rank * kRows,
                          h, b, (1 << Ctas) - 1);
}

/// The same for rows in pages of a pool, from `position` on, a multiple of the tile's rows. `table`: pages of a
/// sequence, whose rows from `length` on have none and load zeros. Of several pages up to AtOnce are looked up before
/// the first is loaded. Boxes are those of the tile or of a page, whichever is smaller.
template <int PageSize, int AtOnce, class Tile>
ATTNC_DEVICE void request_pages(Tile tile, const TensorMap& map, unsigned barrier, unsigned position, int h,
                                const int* table, int length) {
  constexpr int kBox = PageSize < Tile::kRows ? PageSize : Tile::kRows;
  constexpr int kBoxes = Tile::kRows / kBox, kAtOnce = kBoxes < AtOnce ? kBoxes : AtOnce;
  static_assert(Tile::kRows % kBox == 0 && PageSize % kBox == 0 && kBox % 8 == 0,
                "boxes are whole, and so is their swizzle");
  static_assert(kBoxes % kAtOnce == 0);
  if constexpr (kAtOnce == 1) {
#pragma unroll 1 // NOTE: unrolled, it takes more registers than a producer has
    for (int first = 0; first < Tile::kRows; first += kBox) {
      const int i = (position + first) / PageSize, page = i * PageSize < length ? table[i] : -1;
#pragma unroll
      for (int slab = 0; slab < Tile::kSlabs; ++slab)
        ptx::tma_load_4d(tile.slab(slab) + first * Tile::kRowBytes, map, barrier, slab * Tile::kSlabColumns,
                         (position + first) % PageSize, h, page);
    }
  } else {
    const int* pages = table + position / PageSize;
    const int live = length - int(position);
#pragma unroll 1
    for (int first = 0; first < kBoxes; first += kAtOnce) {
      int page[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) page[i] = (first + i) * PageSize < live ? pages[first + i] : -1;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int slab = 0; slab < Tile::kSlabs; ++slab)
          ptx::tma_load_4d(tile.slab(slab) + (first + i) * PageSize * Tile::kRowBytes, map, barrier,
                           slab * Tile::kSlabColumns, 0, h, page[i]);
    }
  }
}

} // namespace attnc
