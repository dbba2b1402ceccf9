// Tiles in shared memory as TMA writes and wgmma reads them, and the products of one warpgroup with them.
//
// A tile of R rows and D columns of 16-bit elements lies as ceil(D / 64) slabs of R rows by 128 bytes, each slab in the
// 128-byte swizzle and a multiple of 1024 bytes long. Columns past the head dim are zero.
#pragma once

#include "attnc_config.cuh"

#include "ptx/stmatrix.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"

namespace attnc {

ATTNC_DEVICE constexpr int round_up(int x, int multiple) { return (x + multiple - 1) / multiple * multiple; }

/// Head dims as computed with.
constexpr int kDimQk = round_up(kHeadDimQk, 16);
constexpr int kDimV = round_up(kHeadDimV, 16);

constexpr int kRowBytes = 128; // of a slab
ATTNC_DEVICE constexpr int slabs(int dim) { return (dim + 63) / 64; }
ATTNC_DEVICE constexpr int tile_bytes(int rows, int dim) { return slabs(dim) * rows * kRowBytes; }

using ScoreTile = float[kBlockN / 8][4];
using OutTile = float[kDimV / 8][4];
using WeightTile = unsigned[kBlockN / 16][4]; // P as A fragments, one per 16 columns

/// Requests rows [row, row + Rows) of head h, batch b. One thread.
template <int Rows, int Dim>
ATTNC_DEVICE void request_tile(unsigned tile, const TensorMap& map, unsigned barrier, int row, int h, int b) {
#pragma unroll
  for (int slab = 0; slab < slabs(Dim); ++slab)
    ptx::tma_load_4d(tile + slab * Rows * kRowBytes, map, barrier, slab * 64, row, h, b);
}

/// The wgmma descriptor of a matrix in the 128-byte swizzle whose groups of 8 rows follow each other. `slab_bytes`
/// counts for MN-major matrices only: from one piece of 64 columns to the next.
ATTNC_DEVICE unsigned long long descriptor(unsigned shared, int slab_bytes) {
  const unsigned low = (shared & 0x3ffff) >> 4 | unsigned(slab_bytes >> 4) << 16;
  const unsigned high = 8 * kRowBytes >> 4 | 1u << 30;
  return (unsigned long long)high << 32 | low;
}

/// Starts S = Q K^T. `q`: shared address of the warpgroup's first row; `k`: of the tile.
ATTNC_DEVICE void start_qk(ScoreTile& s, unsigned q, unsigned k) {
  const unsigned long long a = descriptor(q, 16), b = descriptor(k, 16);
#pragma unroll
  for (int step = 0; step < kDimQk / 16; ++step) {
    const int within = step % 4 * 32; // bytes of 16 columns
    ptx::wgmma_ss<Element, kBlockN>(s, a + ((step / 4 * kBlockM * kRowBytes + within) >> 4),
                                    b + ((step / 4 * kBlockN * kRowBytes + within) >> 4), step > 0);
  }
}

/// Starts O = P V, or O += P V if `accumulate`.
ATTNC_DEVICE void start_pv(OutTile& o, const WeightTile& p, unsigned v, int accumulate) {
  const unsigned long long b = descriptor(v, kBlockN * kRowBytes);
#pragma unroll
  for (int step = 0; step < kBlockN / 16; ++step)
    ptx::wgmma_rs<Element, kDimV>(o, p[step], b + ((step * 16 * kRowBytes) >> 4), step > 0 ? 1 : accumulate);
}

/// Rounds weights to the element type: the accumulators of 16 columns are, packed, an A fragment.
ATTNC_DEVICE void to_weights(WeightTile& p, const ScoreTile& s) {
#pragma unroll
  for (int step = 0; step < kBlockN / 16; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = &s[2 * step + i / 2][i % 2 * 2];
      p[step][i] = pack2<Element>(pair[0], pair[1]);
    }
}

/// Writes a warpgroup's O times `normalise`, of rows g and g + 8, to a tile of kBlockM rows in shared memory. `row`: its
/// first one's index there.
ATTNC_DEVICE void write_rows(const OutTile& o, unsigned tile, int row, const float (&normalise)[2]) {
  // Lanes 8i..8i+7 address matrix i: rows +0 and +8 of one group of columns, then of the next.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const unsigned at = tile + (row + 16 * warp + lane % 16) * kRowBytes;
#pragma unroll
  for (int n = 0; n < kDimV / 8; n += 2) {
    unsigned x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = &o[n + i / 2][i % 2 * 2];
      x[i] = pack2<Element>(pair[0] * normalise[i % 2], pair[1] * normalise[i % 2]);
    }
    const int chunk = (n % 8 + lane / 16) ^ lane % 8; // of 16 bytes, in the 128-byte swizzle
    ptx::stmatrix_x4(at + n / 8 * kBlockM * kRowBytes + chunk * 16, x);
  }
}

/// Stores one row of a warpgroup's O times `normalise`: the quad that holds it calls together, `half` 0 for row g and 1
/// for row g + 8. Lanes exchange, so that each stores 16 bytes and the quad 64 in a row.
template <int Half> ATTNC_DEVICE void store_row(const OutTile& o, Element* row, float normalise, bool inside) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < kDimV / 8; n += 4) {
    unsigned x[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (n + i < kDimV / 8) x[i] = pack2<Element>(o[n + i][2 * Half] * normalise, o[n + i][2 * Half + 1] * normalise);
        // A 4x4 transposition: lane t has pair t of groups n .. n + 3 and gets all pairs of group n + t.
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const unsigned got = __shfl_xor_sync(0xffffffffu, lane & 1 ? x[i] : x[i + 1], 1);
      (lane & 1 ? x[i] : x[i + 1]) = got;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned got = __shfl_xor_sync(0xffffffffu, lane & 2 ? x[i] : x[i + 2], 2);
      (lane & 2 ? x[i] : x[i + 2]) = got;
    }
    const int column = (n + lane) * 8;
    if (inside && column < kHeadDimV) *(uint4*)(row + column) = {x[0], x[1], x[2], x[3]};
  }
}

} // namespace attnc
