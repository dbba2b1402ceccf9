// Factors of rows of Q, K and V of e4m3 in forward_sm90.cu (kRowScales): the producer loads those of a step's columns
// one step ahead, and leaves them in shared memory for the consumers. scaled.cuh says what is multiplied.
#pragma once

#include "algo/merge_rows.cuh"
#include "algo/pages.cuh"
#include "algo/scaled.cuh"
#include "algo/sequence.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/fragment.cuh"

namespace attnc {

/// Bytes that a step of `Columns` takes in shared memory: factors of K, then those of V.
template <int Columns> constexpr int kRowScalesBytes = 8 * Columns;

/// The factors of a step in the producer: lane l holds columns l + 32 i. Empty unless IsOn. All functions are called by
/// the whole warp.
template <bool IsOn, int Columns> struct HeldRowScales {
  template <class M, class... Args> ATTNC_DEVICE void load_scales(const Args&...) {}
  ATTNC_DEVICE float store_scales(unsigned, bool) { return 1.f; }
};
template <int Columns> struct HeldRowScales<true, Columns> {
  static constexpr int kHeld = Columns / 32;
  static_assert(Columns % 32 == 0, "lanes hold equally many columns");
  float k[kHeld], v[kHeld], unit = 1.f;

  /// Loads the factors of columns from `first` on. What lies behind `length` may be NaN, or no page: it gets 0. At: has
  /// b and kv_head.
  template <class M, class Params, class Args, class At>
  ATTNC_DEVICE void load_scales(const Params& p, const Args& args, const At& at, int first, int length) {
    const int start = kv_row_of<M>(args, at.b, 0);
    const int* pages = pages_of(p, at.b);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int column = first + 32 * i + int(threadIdx.x) % 32;
      k[i] = v[i] = 0.f;
      if (column >= length) continue;
      const StepScales scales = scales_of_column<kPageSize>(p, pages, at.b, at.kv_head, column, start + column);
      k[i] = scales.k, v[i] = scales.v;
    }
    __syncwarp();
  }

  /// Writes them to shared memory, those of V divided by the unit of O. Returns that unit. The first step of a tile
  /// knows of none before it, so that results do not depend on which tiles a CTA had.
  ATTNC_DEVICE float store_scales(unsigned shared, bool is_first) {
    float largest = 0.f;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) largest = fmaxf(largest, fabsf(v[i]));
    unit = unit_above(warp_max(largest), is_first ? 1.f : unit);
    // NOTE: of a power of two. A division has a call for rare operands, for which ptxas serialises wgmma (C7514).
    const float inverse = __uint_as_float(0x7f000000u - __float_as_uint(unit));
    const unsigned at = shared + threadIdx.x % 32 * 4;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      ptx::st_shared(at + 128 * i, k[i]);
      ptx::st_shared(at + 4 * Columns + 128 * i, v[i] * inverse);
    }
    return unit;
  }
};

/// The factors of a lane's two rows of Q in a consumer. Empty unless IsOn.
template <bool IsOn> struct RowScalesOfQ {
  template <class M, class... Args> ATTNC_DEVICE void load(const Args&...) {}
  template <class Scores> ATTNC_DEVICE void multiply(Scores&, unsigned) const {}
};
template <> struct RowScalesOfQ<true> {
  float x[2];
  /// Loads those of rows from q_start on; the lane's first one is `first` rows behind it.
  template <class M, class Params, class Args>
  ATTNC_DEVICE void load(const Params& p, const ForwardParams& base, const Args& args, int b, int h, int first) {
    int length = base.q_len;
    if constexpr (kIsRagged<M>) length = q_length_of<M>(base, args, b);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(first + Fragment<1, 8>::row_offset(r), length - 1);
      x[r] = scale_of_q(p, b, h, row, q_row_of<M>(args, b, row));
    }
  }
  /// Multiplies rows by their factors, and columns by those in shared memory.
  template <int Columns> ATTNC_DEVICE void multiply(Fragment<1, Columns>& s, unsigned shared) const {
#pragma unroll
    for (int n = 0; n < Columns / 8; ++n) {
      const float2 factor = ptx::ld_shared_float2(shared + 4 * Fragment<1, Columns>::column(n, 0));
#pragma unroll
      for (int r = 0; r < 2; ++r) s.at(r, n, 0) *= factor.x * x[r], s.at(r, n, 1) *= factor.y * x[r];
    }
  }
};

/// Multiplies columns by their factors in shared memory.
template <int Columns> ATTNC_DEVICE void multiply_columns(Fragment<1, Columns>& x, unsigned shared) {
#pragma unroll
  for (int n = 0; n < Columns / 8; ++n) {
    const float2 factor = ptx::ld_shared_float2(shared + 4 * Fragment<1, Columns>::column(n, 0));
#pragma unroll
    for (int r = 0; r < 2; ++r) x.at(r, n, 0) *= factor.x, x.at(r, n, 1) *= factor.y;
  }
}

} // namespace attnc
