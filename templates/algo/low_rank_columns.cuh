// Where the pieces of a low-rank term's factors stand in the wider q and k, or in tensors of only these columns
// (low_rank.cu), and tiles of rows.
#pragma once

#include "attnc_config.cuh"

#include "mod/contract.cuh"

namespace attnc::low_rank {

ATTNC_DEVICE constexpr int min_of(int a, int b) { return a < b ? a : b; }
ATTNC_DEVICE constexpr int max_of(int a, int b) { return a > b ? a : b; }

constexpr int kThreads = 32 * kWarps, kChunk = 16 / int(sizeof(Element));
constexpr int kPieces = max_of(kQPieces, kKvPieces);
static_assert(kPieces <= 3);

/// Calls visit(c, i, j) for each product c of piece i of q and piece j of k.
template <class Visit> ATTNC_DEVICE void visit_products(Visit visit) {
  int c = 0;
#pragma unroll
  for (int j = 0; j < kKvPieces; ++j)
#pragma unroll
    for (int i = 0; i < min_of(kQPieces, kPieces - j); ++i) visit(c++, i, j);
}
ATTNC_DEVICE constexpr int columns_of_round() {
  int columns = 0;
  for (int j = 0; j < kKvPieces; ++j) columns += min_of(kQPieces, kPieces - j);
  return columns;
}
constexpr int kColumns = kRank * columns_of_round(); // with factors
static_assert(kHeadDimQk + kColumns <= kWideHeadDim);
/// The first column with factors of a row that is written, and the columns of that row.
constexpr int kFirstColumn = kIsApart ? 0 : kHeadDimQk, kRowColumns = kWideHeadDim - kHeadDimQk + kFirstColumn;

/// Rows [first, end) of a head of a tensor, and the head.
struct Place {
  int b, h, first, end;
};

ATTNC_DEVICE int tiles_of(int rows) { return (rows + kBlockM - 1) / kBlockM; }

ATTNC_DEVICE Place place_of(int tile, int rows, int heads) {
  const int tiles = tiles_of(rows), head = tile / tiles, first = tile % tiles * kBlockM;
  return {head / heads, head % heads, first, min(first + kBlockM, rows)};
}

} // namespace attnc::low_rank
