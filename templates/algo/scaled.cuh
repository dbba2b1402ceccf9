// Factors of the elements of q, k and v of e4m3. Kernels of other elements have none, which are 1.
#pragma once

#include "params.cuh"
#include "tile/element.cuh"

namespace attnc {

/// A forward kernel's parameters: with factors if IsScaled.
template <class Params, bool IsScaled> using ScaledIf = typename Choose<IsScaled, Scaled<Params>, Params>::Type;

/// The factors of a step's columns: those of their block of K and V; 1 if factors are of heads.
struct StepScales {
  float k, v;
};

/// Returns the factor of products of rows from q_start on, without StepScales.
template <class Params> ATTNC_DEVICE float scale_of_products(const Params& p, int b, int h, int kv_head, int q_start) {
  if constexpr (requires { p.q_scale; })
    return p.q_scale.of(b, h, q_start) * (p.k_scale.block ? 1.f : p.k_scale.of(b, kv_head));
  else
    return 1.f;
}
/// Returns the factor of V, without StepScales.
template <class Params> ATTNC_DEVICE float scale_of_v(const Params& p, int b, int kv_head) {
  if constexpr (requires { p.v_scale; })
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

} // namespace attnc
