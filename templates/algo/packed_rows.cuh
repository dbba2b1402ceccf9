// Packed tiles: rows are query tokens times the query heads that share a KV head, so K and V are read once for all of
// them. Row i is token i / group, head i % group of the group. The mod sees a row's own query head and its token's
// position.
#pragma once

#include "attnc_mod.cuh"

#include "algo/apply_mod.cuh"
#include "params_decode.cuh"

namespace attnc {

/// The rows of a tile.
struct PackedTile {
  int b, kv_head;
  int first; ///< index of the first row among those of (b, kv_head)
  int rows;  ///< rows of the tile, at least one; 0: an unused slot of a ragged batch
  SequenceStart<Mod> start;

  ATTNC_DEVICE int token(const PackedParams& p, int row) const { return p.by_group.quotient(first + row); }
  ATTNC_DEVICE int head(const PackedParams& p, int row) const { return kv_head * p.group + p.by_group.remainder(first + row); }
  /// Returns a row's index in q and out.
  ATTNC_DEVICE int row_of_q(const PackedParams& p, int row) const { return start.q() + token(p, row); }
  /// Returns a row's index over batch, head and token, in lse and row_max.
  ATTNC_DEVICE long long row_of_all(const PackedParams& p, int row) const {
    return row_of_head<Mod>(p, b, head(p, row)) + row_of_q(p, row);
  }
};

/// What a lane knows of its two rows, which may be of two heads.
template <class M> struct PackedPlace {
  using Form = typename M::Exponents;
  int b, origin[2]; // origin: what q_float and kv_float count from
  int h[2], position[2];
  typename M::Head head[2];
  typename M::Row row[2];
  Form exponents[2];

  PackedPlace() = default;

  /// `first`: the lane's row 0 of the tile. `scale`: of each row's products. Rows past the end repeat the last one.
  ATTNC_DEVICE PackedPlace(const PackedParams& p, const ModArgs& args, const PackedTile& tile, int first,
                           const float (&scale)[2])
      : b(tile.b) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = min(first + Fragment<1, 8>::row_offset(r), tile.rows - 1);
      h[r] = tile.head(p, i);
      head[r] = M::head(args, b, h[r]); // SEAM(head)
      const int offset = q_offset<M>(args, head[r]);
      position[r] = offset + tile.token(p, i);
      origin[r] = Place<1>::origin_of(offset + tile.token(p, 0));
      row[r] = M::row(args, head[r], b, h[r], position[r], float(position[r] - origin[r])); // SEAM(row)
      exponents[r] = Form(scale[r], M::factors(args, head[r]));                              // SEAM(factors)
    }
  }

  ATTNC_DEVICE const Form& form(int r) const { return exponents[r]; }
  ATTNC_DEVICE float row_shift(const ModArgs& args, int r) const {
    return M::row_shift(args, head[r], row[r]); // SEAM(row_shift)
  }
};

/// Turns products q k^T into the softmax's x, as the other apply_mod() does. No x lacks any term.
template <class M, int Columns>
ATTNC_DEVICE void apply_mod(Fragment<1, Columns>& x, const ForwardParams& p, const ModArgs& args,
                            const PackedPlace<M>& place, Step step, const StepBias<typename M::Exponents, 2>& bias) {
  const int kv_first = step.start + Fragment<1, Columns>::first_column();
  constexpr bool kEvaluates = M::kHasMaskMod && !M::kRowsAreIntervals;
  if (__any_sync(0xffffffffu, place.form(0).is_flipped() || place.form(1).is_flipped())) [[unlikely]]
    x.for_each([&](float& element, int r) { element = place.form(r).is_flipped() ? -element : element; });
#pragma unroll
  for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int kv_idx = min(kv_first + 8 * n + e, max(p.kv_len, 1) - 1);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float kv_float = float(kv_first - place.origin[r]);
        const typename M::Col col =
            M::col(args, place.head[r], place.b, place.h[r], kv_idx, kv_float, float(8 * n + e)); // SEAM(col)
        const Coord at = {place.b, place.h[r], place.position[r], kv_idx};
        float& s = x.at(r, n, e);
        if constexpr (M::Exponents::kCallsScore)
          s = M::score(args, place.head[r], place.row[r], col, at, s * place.exponents[r].score_scale); // SEAM(score)
        s = place.exponents[r].to_score(s, bias.bias[r], kv_float + float(8 * n + e));
        if constexpr (kEvaluates)
          if ((step.flags & kStepMasked) && !M::mask(args, place.head[r], place.row[r], col, at)) // SEAM(mask)
            s = negative_infinity();
      }
    }
  const bool is_clipped = step.flags & (kEvaluates ? kStepTail : kStepTail | kStepMasked);
  if (!is_clipped) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int begin = kv_first, end = kv_length<M>(p, args, place.head[r]);
    if constexpr (M::kRowsAreIntervals) {
      if (step.flags & kStepMasked) {
        const int q_idx = place.position[r];
        const auto live = M::bounds(args, place.head[r], place.b, place.h[r], q_idx, q_idx + 1); // SEAM(bounds)
        begin = live.begin, end = min(live.end, end);
      }
    }
    keep_columns(x, r, columns_before(begin - kv_first), columns_before(end - kv_first), negative_infinity());
  }
}

} // namespace attnc
