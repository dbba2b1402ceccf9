// Sums along the diagonals, q_idx - kv_idx, of 64 columns of a tile of dS^T in shared memory: 128 rows of KV, columns of Q,
// in the 128-byte swizzle. One warp does it, with few registers and little code: beside kernels whose other warps have
// their hands full.
//
// With row r = 8 i + l and column c = 8 j + e, the element lies on the diagonal c - r = 8 (j - i) + e - l.
//
//   1. Of one l and e, all elements with the same j - i = k are on one diagonal. An 8x8 matrix of ldmatrix is l by e, and
//      dealt by l and e to the lanes; so a lane adds up what it gets of all matrices with the same k, in registers. Four
//      matrices are read at a time; where one of them would be outside the tile, it is zeros.
//   2. What is left, l rows of 8 (k + 15) + e columns, goes to scratch, and is added up along its diagonals: a lane takes
//      one diagonal of 32, of 8 rows, which lie in different banks.
//
// Instructions of the warp: some 1060 for the 8192 elements of step 1, 190 for step 2.
// NOTE: the loops are as they are so that few registers are in use; bench/NOTES.md has what else was tried.
#pragma once

#include "tile/shared_tile.cuh"

namespace attnc {

/// Access: functions load_matrices(), load(), store() of shared memory; ptx/ has them for kernels.
template <class Tile, class Access> struct DiagonalSums {
  using Element = typename Tile::Element;
  static constexpr int kColumns = 64, kChunks = kColumns / 8; // of 8 columns
  static constexpr int kGroups = Tile::kRows / 8, kGroupBytes = 8 * Tile::kRowBytes; // of 8 rows
  static constexpr int kParts = Tile::kColumns / kColumns;
  static_assert(Tile::kColumns % kColumns == 0, "whole slabs");
  /// Diagonals of a part: number y is that of column - row = y - kFirst.
  static constexpr int kCount = Tile::kRows + kColumns - 1, kFirst = Tile::kRows - 1;
  /// A row of scratch: 8 zeros, k = 1 - kGroups .. kChunks - 1, 8 zeros. An odd multiple of 8 floats, modulo the banks.
  static constexpr int kRowFloats = 8 * (kGroups - 1 + kChunks) + 16;
  static_assert(kRowFloats % 32 == 8, "rows of scratch begin in different banks");
  static constexpr int kScratchBytes = 8 * kRowFloats * 4;

  unsigned scratch; ///< shared address, a multiple of 16
  int lane;

  /// Once, before all else; a __syncwarp() must follow.
  ATTNC_DEVICE void initialise() const {
    const int at = lane % 4 < 2 ? lane % 4 * 4 : kRowFloats - 16 + lane % 4 * 4;
    Access::store(row(lane / 4) + 4 * at, {0.f, 0.f, 0.f, 0.f});
  }

  /// Step 1. What was in scratch must be used up by all lanes, and a __syncwarp() must follow.
  ATTNC_DEVICE void gather(Tile tile, int part) const {
    // Row lane % 8 of group lane / 8 - k, columns of chunk lane / 8; four groups and chunks further in the other half.
    // k rises from 1 - kGroups on.
    unsigned from = tile.slab(part) + (kGroups - 1) * kGroupBytes + lane * Tile::kRowBytes + (lane / 8 ^ lane % 8) * 16;
    unsigned to = row(lane / 4) + 4 * (8 + lane % 4 * 2);
    int group = lane / 8 + kGroups - 1; // chunk - k
#pragma unroll 1
    for (int sums = 0; sums < kGroups - 1 + kChunks; ++sums) {
      float sum[2] = {};
#pragma unroll
      for (int first = 0; first < 2; first += kAtOnce) { // of the halves
        unsigned pairs[kAtOnce][4];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int half = first + i;
          const bool exists = unsigned(group + 4 * half) < unsigned(kGroups);
          Access::load_matrices(pairs[i], exists ? (half ? (from ^ 64) + 4 * kGroupBytes : from) : scratch);
        }
#pragma unroll
        for (auto& four : pairs)
#pragma unroll
          for (unsigned pair : four) {
            float x[2];
            unpack2<Element>(pair, x[0], x[1]);
            sum[0] += x[0];
            sum[1] += x[1];
          }
      }
      Access::store(to, sum);
      to += 32, from -= kGroupBytes, --group;
    }
  }

  /// Step 2, after gather() and a __syncwarp(): calls take(y, sum) for each diagonal, and for one that is none.
  template <class Take> ATTNC_DEVICE void sum(Take take) const {
#pragma unroll 1
    for (int y = lane; y < kCount + lane; y += 32) {
      float sum = 0.f;
#pragma unroll
      for (int l = 0; l < 8; ++l) // 8 k + e = y - kFirst + l
        sum += Access::load(scratch + 4 * (kRowFloats * l + y + l + 8 * kGroups - kFirst));
      take(y, sum);
    }
  }

private:
  static constexpr int kAtOnce = Same<Element, Bf16>::value ? 2 : 1; // loads: fp16 takes more registers to unpack
  ATTNC_DEVICE unsigned row(int l) const { return scratch + 4 * kRowFloats * l; }
};

} // namespace attnc
