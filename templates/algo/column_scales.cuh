// Factors of rows or pages of fp8 K and V in a decode kernel.
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

/// Factors of a step: lane l holds columns l and l + 32. All functions are called by whole warps.
template <int Columns> struct ColumnScales {
  static constexpr int kHeld = (Columns + 31) / 32;
  static_assert(kHeld <= 2, "steps of a team have at most 64 columns");
  float x[kHeld];

  /// Loads the factors of columns from `first` on, if they are of rows or pages. Columns from `length` on get the last
  /// one: what lies behind may be NaN.
  ATTNC_DEVICE void load(const Scales& scales, const int* pages, const PackedTile& tile, int first, int length) {
    if (!scales.by_row) return;
    constexpr int kRows = kPageSize ? kPageSize : 1;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int row = min(first + min(32 * i + int(threadIdx.x) % 32, Columns - 1), length - 1);
      x[i] = kPageSize ? scales.of_row(pages[row / kRows], tile.kv_head, row % kRows)
                       : scales.of_row(tile.b, tile.kv_head, tile.start.kv() + row);
    }
  }

  ATTNC_DEVICE void multiply(Fragment<1, Columns>& s, float by) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) x[i] *= by;
#pragma unroll
    for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int lane = n % 4 * 8 + Fragment<1, 8>::first_column() + e;
        const float factor = __shfl_sync(0xffffffffu, x[n / 4], lane);
#pragma unroll
        for (int r = 0; r < 2; ++r) s.at(r, n, e) *= factor;
      }
  }

  /// Returns the unit of O for this step: the one before unless it is far from the largest factor.
  ATTNC_DEVICE float unit_behind(float unit) const {
    float largest = kHeld > 1 ? fmaxf(fabsf(x[0]), fabsf(x[kHeld - 1])) : fabsf(x[0]);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    if (largest <= 4.f * unit && largest >= unit * 0.0625f) return unit;
    return fminf(fmaxf(power_below(largest), 8.67361738e-19f), 1.15292150e18f);
  }
};

} // namespace attnc
