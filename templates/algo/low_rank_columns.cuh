// Where the pieces of a low-rank term's factors stand in the wider q and k, or in tensors of only these columns
// (low_rank.cu), and tiles of rows. Rows of a ragged batch are a sequence's own, and its tiles lie in slots.
#pragma once

#include "attnc_config.cuh"

#include "algo/sequence.cuh"
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

/// Returns a tile of a ragged batch's sequence. An unused slot has no rows.
ATTNC_DEVICE Place place_of(RowTile tile, int h, int rows) {
  const int first = has_rows<Mod>(tile.start, rows) ? tile.start : rows;
  return {tile.b, h, first, min(first + kBlockM, rows)};
}
/// Returns tile `index` of q, and of k.
template <class Args> ATTNC_DEVICE Place q_place(const ForwardParams& p, const Args& args, int index, int heads) {
  if constexpr (kIsRagged<Mod>) {
    const int tiles = q_tiles_of<Mod, kBlockM>(p);
    const RowTile tile = q_tile_in_slot<Mod, kBlockM>(args, index % tiles, p.batch);
    return place_of(tile, index / tiles, q_length_of<Mod>(p, args, tile.b));
  } else {
    return place_of(index, p.q_len, heads);
  }
}
template <class Args> ATTNC_DEVICE Place k_place(const ForwardParams& p, const Args& args, int index, int heads) {
  if constexpr (kIsRagged<Mod>) {
    const int tiles = kv_tiles_of<Mod, kBlockM>(p);
    const RowTile tile = kv_tile_in_slot<Mod, kBlockM>(args, index % tiles, p.batch);
    return place_of(tile, index / tiles, params_of<Mod>(p, args, tile.b).kv_len);
  } else {
    return place_of(index, p.kv_len, heads);
  }
}
/// Returns the tiles of q, and of k, of all batch entries, for each head.
ATTNC_DEVICE int q_tiles(const ForwardParams& p, int batch) {
  return q_tiles_of<Mod, kBlockM>(p) * (kIsRagged<Mod> ? 1 : batch);
}
ATTNC_DEVICE int k_tiles(const ForwardParams& p, int batch) {
  return kv_tiles_of<Mod, kBlockM>(p) * (kIsRagged<Mod> ? 1 : batch);
}

/// Returns the index of row 0 of (b, h) among the rows of q's tensors in the workspace, and of k's with `heads` heads.
template <class Args> ATTNC_DEVICE long long first_q_row(const ForwardParams& p, const Args& args, int b, int h) {
  if constexpr (kIsRagged<Mod>)
    return (long long)h * p.rows.q + q_start_of<Mod>(p, args, b);
  else
    return ((long long)b * p.q_heads + h) * p.q_len;
}
template <class Args>
ATTNC_DEVICE long long first_k_row(const ForwardParams& p, const Args& args, int b, int h, int heads) {
  if constexpr (kIsRagged<Mod>)
    return (long long)h * p.rows.kv + kv_start_of<Mod>(p, args, b);
  else
    return ((long long)b * heads + h) * p.kv_len;
}

} // namespace attnc::low_rank
