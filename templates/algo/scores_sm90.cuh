// From products q k^T to scores on the accumulators of a warpgroup: where a mod meets the fragments.
//
// A thread holds rows q_first and q_first + 8 of a tile and, of each group of 8 columns, two (ptx/wgmma.cuh).
#pragma once

#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/online_softmax.cuh"
#include "algo/softcap.cuh"
#include "algo/step_walk.cuh"
#include "mod/hooks.cuh"
#include "tile/shared_sm90.cuh"

namespace attnc {

/// A thread's place in a tile: rows q_first and q_first + 8.
struct Place {
  int b, h, q_first;
  int origin;   // what q_float and kv_float count from
  float scale;  // what a product is multiplied by before score()
  float factor; // what a score, or a product that passes no score(), is multiplied by to count in powers of two
  float slope;  // kv_slope in powers of two
  Softcap<kScoreIsTanh<Mod>> softcap; // if the mod is one: from products to powers of two
  Mod::Head head;
  Mod::Row row[2];

  Place() = default;
  ATTNC_DEVICE Place(const ForwardParams& p, const ModArgs& args, Work work, int row_of_tile)
      : b(work.b), h(work.h), q_first(work.q_start + row_of_tile), origin(position_origin<Mod>(work.q_start)),
        head(Mod::head(args, work.b, work.h)) {
    scale = p.scale * scale_in<Mod>(args, head);
    factor = kLog2e * (kCallsScore<Mod> ? scale_out<Mod>(args, head) : p.scale);
    if (factor == 0.f) factor = kSmallestNormal; // so that a dead product stays one
    slope = kLog2e * kv_slope<Mod>(args, head);
    if constexpr (kScoreIsSoftcap<Mod>) softcap = Softcap<kScoreIsTanh<Mod>>(scale, factor);
    const float q_float = float(q_first - origin);
#pragma unroll
    for (int half = 0; half < 2; ++half) row[half] = Mod::row(args, head, b, h, q_idx(p, half), q_float + 8.f * half);
  }

  /// What makes -inf of a score that is multiplied by `factor` after it was masked.
  ATTNC_DEVICE float dead_product() const { return factor > 0.f ? negative_infinity() : -negative_infinity(); }

  /// The lane's first column of a step, and the same as the mod counts it.
  ATTNC_DEVICE int kv_first(Step step) const { return step.kv_start + int(threadIdx.x) % 4 * 2; }
  ATTNC_DEVICE float kv_float(Step step) const { return float(kv_first(step) - origin); }

  ATTNC_DEVICE int q_idx(const ForwardParams& p, int half) const { return min(q_first + 8 * half, p.q_len - 1); }
};

/// How many of this lane's columns, 8 n + e with e < 2, lie before column x.
ATTNC_DEVICE int columns_before(int x) { return x > 0 ? x / 8 * 2 + min(x % 8, 2) : 0; }

/// A word whose bits [begin, end) are set, as far as it has them.
ATTNC_DEVICE unsigned bits_between(int begin, int end) {
  const auto below = [](int i) { return i <= 0 ? 0u : i >= 32 ? ~0u : (1u << i) - 1; };
  return below(end) & ~below(begin);
}

/// Sets the scores of a row, of this thread's two the one of `half`, to `dead` outside the columns [begin, end): a bit per
/// column tells, so that a score costs a select and part of a test.
ATTNC_DEVICE void keep_columns(ScoreTile& x, int half, int begin, int end, float dead) {
#pragma unroll
  for (int n = 0; n < kBlockN / 8; n += 16) {
    const unsigned word = bits_between(begin - 2 * n, end - 2 * n);
#pragma unroll
    for (int i = 0; i < 32 && n + i / 2 < kBlockN / 8; ++i)
      if (!(word >> i & 1)) x[n + i / 2][2 * half + i % 2] = dead;
  }
}

/// Calls function(score, row, col, coord) for each score. `columns`: what the producer computed of the step's columns,
/// if it does.
template <class Function>
ATTNC_DEVICE void at_each_score(ScoreTile& x, const ForwardParams& p, const ModArgs& args, const Place& place, Step step,
                                [[maybe_unused]] const Mod::Col* columns, Function function) {
  const int kv_first = place.kv_first(step);
  const float kv_float = place.kv_float(step);
#pragma unroll
  for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int kv_idx = min(kv_first + 8 * n + e, max(p.kv_len, 1) - 1);
      Mod::Col col;
      if constexpr (kColumnsLoad<Mod>)
        col = columns[threadIdx.x % 4 * 2 + 8 * n + e];
      else
        col = column<Mod>(args, place.head, place.b, place.h, kv_idx, kv_float, float(8 * n + e));
#pragma unroll
      for (int half = 0; half < 2; ++half)
        function(x[n][2 * half + e], place.row[half], col, Coord{place.b, place.h, place.q_idx(p, half), kv_idx});
    }
}

/// Sets scores to `dead` where mask_mod or the end of KV says so.
template <class M>
ATTNC_DEVICE void mask_scores(ScoreTile& x, const ForwardParams& p, const ModArgs& args, const Place& place, Step step,
                              const Mod::Col* columns, float dead) {
  if constexpr (M::kHasMaskMod && !kRowsAreIntervals<M>) {
    if (step.flags & kStepMasked)
      at_each_score(x, p, args, place, step, columns,
                    [&](float& s, const Mod::Row& row, const Mod::Col& col, Coord at) {
                      if (!Mod::mask(args, place.head, row, col, at)) s = dead; // SEAM(mask)
                    });
    if (!(step.flags & kStepTail)) return;
  }
  const int kv_first = place.kv_first(step);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int begin = kv_first, end = p.kv_len;
    if constexpr (kRowsAreIntervals<M>) {
      if (step.flags & kStepMasked) {
        const int q_idx = place.q_idx(p, half);
        const auto live = M::bounds(args, place.head, place.b, place.h, q_idx, q_idx + 1);
        begin = live.kv_begin, end = min(live.kv_end, p.kv_len);
      }
    }
    keep_columns(x, half, columns_before(begin - kv_first), columns_before(end - kv_first), dead);
  }
}

/// The size of the largest product of this thread.
ATTNC_DEVICE float largest(const ScoreTile& x) {
  float top[4] = {};
#pragma unroll
  for (auto& group : x)
#pragma unroll
    for (int e = 0; e < 4; ++e) top[e] = fmaxf(top[e], fabsf(group[e]));
  return fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
}

/// For a soft cap, from products to exponents of two: the score in powers of two, plus the bias of its row. A NaN harms
/// the scores of its row alone.
ATTNC_DEVICE void cap_scores(ScoreTile& x, const Place& place, const float (&bias)[2]) {
  const float size = largest(x), limit = place.softcap.large;
  if (__all_sync(0xffffffffu, size <= place.softcap.small)) {
#pragma unroll
    for (auto& group : x)
#pragma unroll
      for (int e = 0; e < 4; ++e) group[e] = place.softcap.of_small(group[e], bias[e / 2]);
    return;
  }
  if (__any_sync(0xffffffffu, size > limit)) [[unlikely]] {
#pragma unroll
    for (auto& group : x)
#pragma unroll
      for (float& s : group) s = ptx::max_nan(ptx::min_nan(s, limit), -limit);
  }
#pragma unroll
  for (int n = 0; n < kBlockN / 8; n += 2)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      place.softcap.of_any(x[n][2 * half], x[n][2 * half + 1], x[n + 1][2 * half], x[n + 1][2 * half + 1], bias[half]);
}

/// From products q k^T to exponents of two: the score in powers of two, plus the bias of its row; -inf where mask_mod or
/// the end of KV says so. `columns`: what the producer computed of the step's columns, if it does.
ATTNC_DEVICE void to_powers_of_two(ScoreTile& x, const ForwardParams& p, const ModArgs& args, const Place& place,
                                   Step step, const Mod::Col* columns, float bias0, float bias1) {
  const bool some_are_dead = step.flags & (kStepMasked | kStepTail);
  // A mask that is evaluated score by score goes before the step to exponents, which hides some of it.
  constexpr bool kMasksFirst = Mod::kHasMaskMod && !kRowsAreIntervals<Mod> && !kScoreIsSoftcap<Mod>;
  if constexpr (kScoreIsSoftcap<Mod>) {
    // Dead scores, whatever they are, must not touch the live ones beside them.
    if (some_are_dead) [[unlikely]]
      mask_scores<Mod>(x, p, args, place, step, columns, 0.f);
    cap_scores(x, place, {bias0, bias1});
  } else {
    if constexpr (kCallsScore<Mod>) {
      at_each_score(x, p, args, place, step, columns,
                    [&](float& s, const Mod::Row& row, const Mod::Col& col, Coord at) {
                      s = Mod::score(args, place.head, row, col, at, s * place.scale); // SEAM(score)
                    });
    }
    if (kMasksFirst && some_are_dead) mask_scores<Mod>(x, p, args, place, step, columns, place.dead_product());
    const float shift = kScoreIsLinear<Mod> ? place.slope * place.kv_float(step) : 0.f;
    const float base[2] = {bias0 + shift, bias1 + shift};
#pragma unroll
    for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (kScoreIsLinear<Mod>)
          x[n][e] = x[n][e] * place.factor + (place.slope * float(8 * n + e % 2) + base[e / 2]);
        else
          x[n][e] = x[n][e] * place.factor + base[e / 2];
      }
  }
  if (!kMasksFirst && some_are_dead) [[unlikely]]
    mask_scores<Mod>(x, p, args, place, step, columns, negative_infinity());
}

} // namespace attnc
