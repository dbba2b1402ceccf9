// fp32 sums of dQ by rows of Q, for steps whose rows lie anywhere. Warps hold parts as in DqSums. A row's columns come
// in groups of 16, each in fragment order, so that four lanes add to neighbouring addresses.
#pragma once

#include "algo/d_q_sums_mma.cuh"

namespace attnc::mma {

struct DqRows : DqSums {
  static constexpr int kFloats = computed_columns(kHeadDimQk), kGroup = 16; // of a row; that a place is in
  static constexpr bool kAligned = false;

  /// Returns the place of column 8 n + 2 t + e within its group of 16.
  ATTNC_DEVICE static constexpr int place(int n, int t, int e) {
    return kApart == 1 ? 4 * t + 2 * n + e : 4 * (2 * n + e) + t;
  }
  ATTNC_DEVICE static constexpr int place(int c) { return place(c / 8, c % 8 / 2, c % 2); }

  /// Adds this warp's part to rows of `sums`. row_of(i) returns the row that row i of the step adds to; rows < 0 are
  /// skipped.
  template <class RowOf> ATTNC_DEVICE void add(float* sums, const Part& x, RowOf row_of) const {
#pragma unroll
    for (int r = 0; r < Part::kRows; ++r) {
      const int row = row_of(first_row() + Part::row(r));
      if (row < 0) continue;
      float* const line = sums + (long long)row * kFloats + first_column() + place(0, threadIdx.x % 4, 0);
#pragma unroll
      for (int n = 0; n < Part::kGroups; n += 2) {
        if (kSplit * kColumns > kFloats && first_column() + 8 * n >= kFloats)
          continue; // the part has more columns than Q
        float* const to = line + 8 * n;
        if constexpr (kApart == 1) {
          ptx::red_add4(to, x.at(r, n, 0), x.at(r, n, 1), x.at(r, n + 1, 0), x.at(r, n + 1, 1));
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) ptx::red_add(to + place(i / 2, 0, i % 2), x.at(r, n + i / 2, i % 2));
        }
      }
    }
  }
};

} // namespace attnc::mma
