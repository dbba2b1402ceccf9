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

/// The same for rows in pages of a pool. `page_of(i)` returns the page of positions from i PageSize on, or -1, which
/// loads zeros. `position`: of the first row, a multiple of Rows. Boxes are those of the tile or of a page, whichever
/// is smaller.
template <int PageSize, class Tile, class PageOf>
ATTNC_DEVICE void request_pages(Tile tile, const TensorMap& map, unsigned barrier, unsigned position, int h,
                                PageOf page_of) {
  constexpr int kBox = PageSize < Tile::kRows ? PageSize : Tile::kRows;
  static_assert(Tile::kRows % kBox == 0 && PageSize % kBox == 0 && kBox % 8 == 0,
                "boxes are whole, and so is their swizzle");
#pragma unroll 1 // NOTE: unrolled, it takes more registers than a producer has
  for (int first = 0; first < Tile::kRows; first += kBox) {
    const int page = page_of((position + first) / PageSize);
#pragma unroll
    for (int slab = 0; slab < Tile::kSlabs; ++slab)
      ptx::tma_load_4d(tile.slab(slab) + first * Tile::kRowBytes, map, barrier, slab * Tile::kSlabColumns,
                       (position + first) % PageSize, h, page);
  }
}

/// The same for a tile of several pages, quicker: up to eight are looked up before the first is loaded. `pages`: those
/// of the tile; rows from `live` on have none, and load zeros.
template <int PageSize, class Tile>
ATTNC_DEVICE void request_pages(Tile tile, const TensorMap& map, unsigned barrier, const int* pages, int live, int h) {
  constexpr int kPages = Tile::kRows / PageSize, kAtOnce = kPages < 8 ? kPages : 8;
  static_assert(Tile::kRows % PageSize == 0 && PageSize % 8 == 0 && kPages % kAtOnce == 0,
                "pages are whole, and so is their swizzle");
#pragma unroll 1
  for (int first = 0; first < kPages; first += kAtOnce) {
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

} // namespace attnc
