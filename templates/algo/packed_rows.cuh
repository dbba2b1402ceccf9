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
  ATTNC_DEVICE int head(const PackedParams& p, int row) const {
    return kv_head * p.group + p.by_group.remainder(first + row);
  }
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
      origin[r] = Place<1, M>::origin_of(offset + tile.token(p, 0));
      row[r] = M::row(args, head[r], b, h[r], position[r], float(position[r] - origin[r])); // SEAM(row)
      exponents[r] = Form(scale[r], M::factors(args, head[r]));                             // SEAM(factors)
    }
  }

  ATTNC_DEVICE const Form& form(int r) const { return exponents[r]; }
  ATTNC_DEVICE float row_shift(const ModArgs& args, int r) const {
    return M::row_shift(args, head[r], row[r]); // SEAM(row_shift)
  }
};

/// A step of consecutive columns, and packed rows (algo/apply_mod.cuh: Site). No x lacks any term.
template <class M> struct PackedSite {
  const ForwardParams& p;
  const ModArgs& args;
  const PackedPlace<M>& place;
  Step step;

  using Of = M;
  static constexpr bool kMayAsk = M::kHasMaskMod && !M::kRowsAreIntervals, kExpectsDead = true;
  static constexpr bool kKeepsDead = true; // elements are converted one by one
  ATTNC_DEVICE bool has_dead() const { return step.flags & (kStepMasked | kStepTail); }
  ATTNC_DEVICE bool asks() const { return step.flags & kStepMasked; }

  ATTNC_DEVICE const M::Head& head(int r) const { return place.head[r]; }
  ATTNC_DEVICE int h(int r) const { return place.h[r]; }
  ATTNC_DEVICE int position(int r) const { return place.position[r]; }
  ATTNC_DEVICE const M::Exponents& form(int r) const { return place.exponents[r]; }
  ATTNC_DEVICE int kv_first() const { return step.start + Fragment<1, 8>::first_column(); }
  ATTNC_DEVICE float kv_float(int r) const { return float(kv_first() - place.origin[r]); }

  template <int Columns, class Function> ATTNC_DEVICE void at_each(Fragment<1, Columns>& x, Function function) const {
#pragma unroll
    for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int kv_idx = min(kv_first() + 8 * n + e, max(p.kv_len, 1) - 1);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const typename M::Col col =
              M::col(args, place.head[r], place.b, place.h[r], kv_idx, kv_float(r), float(8 * n + e)); // SEAM(col)
          function(x.at(r, n, e), place.row[r], col, Coord{place.b, place.h[r], place.position[r], kv_idx}, r, n, e);
        }
      }
  }
  template <class Scores, class Bias> ATTNC_DEVICE void to_scores(Scores& x, Bias& bias) const {
    if (__any_sync(0xffffffffu, form(0).is_flipped() || form(1).is_flipped())) [[unlikely]]
      x.for_each_rarely([&](float& element, int r) { element = form(r).is_flipped() ? -element : element; });
#pragma unroll
    for (int n = 0; n < Scores::kGroups; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float& s = x.at(r, n, e);
          s = form(r).to_score(s, bias.bias[r], kv_float(r) + float(8 * n + e));
        }
  }
  template <class Scores> ATTNC_DEVICE void keep_live(Scores& x, float dead) const {
    if (kMayAsk && !(step.flags & kStepTail)) return;
    keep_live_columns<M>(x, p, args, *this, kv_first(), step.flags & kStepMasked, dead);
  }
};

} // namespace attnc
