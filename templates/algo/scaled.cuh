// Factors of the elements of q, k and v of e4m3. Kernels of other elements have none, which are 1.
//
// A forward kernel with kRowScales takes a factor for each row of any of the three:
//
//   S rows times q_scale, columns times k_scale, then the mod; P columns times v_scale / unit, then rounded to e4m3;
//   O in units of `unit`
//
// The unit is a power of two from the step's largest v_scale up to four times that. So products with weights stay below
// the largest weight, which e4m3 holds, and the largest weight of a row loses at most two binary digits of the range
// below it. The sums of a row are of weights without factors.
#pragma once

#include "params.cuh"
#include "tile/element.cuh"

namespace attnc {

/// A forward kernel's parameters: with factors if IsScaled.
template <class Params, bool IsScaled> using ScaledIf = typename Choose<IsScaled, Scaled<Params>, Params>::Type;

/// Returns the power of two; 1 for a row of zeros, or with infinities. `largest`: the greatest magnitude of the row.
ATTNC_DEVICE float power_below(float largest) {
  const unsigned exponent = __float_as_uint(largest) & 0x7f800000u;
  return exponent == 0 || exponent == 0x7f800000u ? 1.f : __uint_as_float(exponent);
}

/// Returns the unit of O for a step: the one before unless it is far from the step's largest factor. 0: no column.
ATTNC_DEVICE float unit_above(float largest, float unit) {
  if (largest == 0.f || (largest <= unit && largest >= 0.25f * unit)) return unit;
  return fminf(fmaxf(2.f * power_below(largest), 8.67361738e-19f), 1.15292150e18f); // 2^-60, 2^60
}

/// The factors of a step's columns: those of their block of K and V; 1 if factors are of heads.
struct StepScales {
  float k, v;
};

/// Returns the factor of products of rows from q_start on, all of one block of factors, without StepScales; 1 if
/// columns and rows have their own (OfRows).
template <bool OfRows, class Params>
ATTNC_DEVICE float scale_of_products(const Params& p, int b, int h, int kv_head, int q_start) {
  if constexpr (!OfRows && requires { p.q_scale; })
    return p.q_scale.of(b, h, q_start) * (p.k_scale.block ? 1.f : p.k_scale.of(b, kv_head));
  else
    return 1.f;
}
/// Returns a row of the block of factors of the rows from q_start + first on, in a tile of TileRows from q_start on.
template <int TileRows> ATTNC_DEVICE int row_of_scale(int q_start, int first, int q_len) {
  return TileRows <= Scales::kRowsOfScale ? q_start : min(q_start + first, q_len - 1);
}
/// Returns the factor of V, without StepScales; 1 if columns have their own.
template <bool OfRows, class Params> ATTNC_DEVICE float scale_of_v(const Params& p, int b, int kv_head) {
  if constexpr (!OfRows && requires { p.v_scale; })
    return p.v_scale.block ? 1.f : p.v_scale.of(b, kv_head);
  else
    return 1.f;
}
/// Returns the factors of a step that begins at column kv_start. Steps behind the end have none.
template <class Params>
ATTNC_DEVICE StepScales scales_of_step(const Params& p, int b, int kv_head, int kv_start, int kv_len) {
  if constexpr (requires { p.k_scale; }) {
    const bool has_columns = kv_start < kv_len;
    return {has_columns && p.k_scale.block ? p.k_scale.of(b, kv_head, kv_start) : 1.f,
            has_columns && p.v_scale.block ? p.v_scale.of(b, kv_head, kv_start) : 1.f};
  } else {
    return {1.f, 1.f};
  }
}

/// Returns the factor of a row of Q, K or V, whatever factors are of. row_of_tensor: its index among the tensor's rows.
ATTNC_DEVICE float scale_of_row(const Scales& scales, int b, int head, int row, int row_of_tensor) {
  return scales.first && scales.by_row ? scales.of_row(b, head, row_of_tensor) : scales.of(b, head, row);
}
template <class Params> ATTNC_DEVICE float scale_of_q(const Params& p, int b, int h, int row, int row_of_tensor) {
  if constexpr (requires { p.q_scale; })
    return scale_of_row(p.q_scale, b, h, row, row_of_tensor);
  else
    return 1.f;
}
/// Returns the factors of a position of K and V, whatever factors are of. `pages`: the sequence's; not read without.
template <int PageSize, class Params>
ATTNC_DEVICE StepScales scales_of_column(const Params& p, const int* pages, int b, int kv_head, int position,
                                         int row_of_tensor) {
  int entry = b, row = row_of_tensor;
  if constexpr (PageSize != 0) entry = pages[position / PageSize], row = position % PageSize;
  const auto of = [&](const Scales& scales) {
    const long long index = scales.by_row ? entry * scales.batch + row * scales.row
                                          : b * scales.batch + position / Scales::kRowsOfScale * scales.block;
    return scales.first ? scales.first[index + kv_head * scales.head] : 1.f;
  };
  if constexpr (requires { p.k_scale; })
    return {of(p.k_scale), of(p.v_scale)};
  else
    return {1.f, 1.f};
}

} // namespace attnc
