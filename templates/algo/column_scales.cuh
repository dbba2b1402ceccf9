// Factors of rows or pages of fp8 K and V in a decode kernel: a lane holds those of its columns of S and P.
//
//   S columns times k_scales, then the mod; P columns times v_scales / unit, then rounded to f16; O in units of `unit`
//
// The unit is a power of two near the step's largest v_scale, so that products with weights, of up to 2^8, fit f16. The
// sums of a row are of weights without factors.
#pragma once

#include "algo/packed_rows.cuh"
#include "algo/pages.cuh"
#include "algo/scaled_q.cuh"
#include "params.cuh"
#include "tile/fragment.cuh"

namespace attnc {

/// Returns the factor of a head; 1 if factors are of rows or pages.
ATTNC_DEVICE float head_scale(const Scales& scales, int b, int kv_head) {
  return scales.by_row ? 1.f : scales.of(b, kv_head);
}

template <int Columns> struct ColumnScales {
  float x[Columns / 8][2];

  /// Loads the factors of columns from `first` on, if they are of rows or pages. Columns from `length` on get the last
  /// one: what lies behind may be NaN.
  ATTNC_DEVICE void load(const Scales& scales, const int* pages, const PackedTile& tile, int first, int length) {
    if (!scales.by_row) return;
    constexpr int kRows = kPageSize ? kPageSize : 1;
#pragma unroll
    for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int row = min(first + Fragment<1, 8>::first_column() + 8 * n + e, length - 1);
        x[n][e] = kPageSize ? scales.of_row(pages[row / kRows], tile.kv_head, row % kRows)
                            : scales.of_row(tile.b, tile.kv_head, row);
      }
  }

  ATTNC_DEVICE void multiply(Fragment<1, Columns>& s, float by) const {
#pragma unroll
    for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
#pragma unroll
        for (int r = 0; r < 2; ++r) s.at(r, n, e) *= x[n][e] * by;
  }

  /// Returns the unit of O for this step: the one before unless it is far from the largest factor. Called by whole
  /// warps, whose quads have the same columns.
  ATTNC_DEVICE float unit_behind(float unit) const {
    float largest = 0.f;
#pragma unroll
    for (int n = 0; n < Columns / 8; ++n) largest = fmaxf(largest, fmaxf(x[n][0], x[n][1]));
    largest = quad_max(largest);
    if (largest <= 4.f * unit && largest >= unit * 0.0625f) return unit;
    return fminf(fmaxf(power_below(largest), 8.67361738e-19f), 1.15292150e18f);
  }
};

} // namespace attnc
