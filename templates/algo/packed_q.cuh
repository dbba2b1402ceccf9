// Rows of Q of a packed tile, from global to shared memory.
#pragma once

#include "attnc_config.cuh"

#include "algo/packed_rows.cuh"
#include "ptx/cp_async.cuh"

namespace attnc {

/// Loads the tile's rows of Q; rows past their end are zero. Called by `Threads` threads, numbered from 0; asynchronous
/// as copy_in(). Unroll: copies that are unrolled; many need many registers.
template <int Threads, int Unroll, class QTile>
ATTNC_DEVICE void load_q(QTile to, const PackedParams& p, const PackedTile& tile, int thread) {
  constexpr int kPerChunk = 16 / int(sizeof(Element)), kChunks = QTile::kColumns / kPerChunk;
  const auto row_of = [&](int row) {
    const int i = min(row, tile.rows - 1);
    return (const Element*)p.q + tile.b * p.q_stride.batch + tile.head(p, i) * p.q_stride.head +
           tile.row_of_q(p, i) * p.q_stride.row;
  };
  if (p.vectors) {
#pragma unroll Unroll
    for (int first = 0; first < QTile::kRows * kChunks; first += Threads) {
      const int i = first + thread;
      if (QTile::kRows * kChunks % Threads != 0 && i >= QTile::kRows * kChunks) break;
      const int row = i / kChunks, column = i % kChunks * kPerChunk;
      const bool inside = row < tile.rows && column < kHeadDimQk;
      ptx::cp_async_16(to.chunk(row, i % kChunks), row_of(row) + column, inside ? 16 : 0);
    }
  } else {
    for (int i = thread; i < QTile::kRows * QTile::kColumns; i += Threads) {
      const int row = i / QTile::kColumns, column = i % QTile::kColumns;
      const bool inside = row < tile.rows && column < kHeadDimQk;
      *(Element*)__cvta_shared_to_generic(to.chunk(row, column / kPerChunk) +
                                          column % kPerChunk * int(sizeof(Element))) =
          inside ? row_of(row)[column] : from_float<Element>(0.f);
    }
  }
}

} // namespace attnc
