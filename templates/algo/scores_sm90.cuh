// From products q k^T to scores on the accumulators of a warpgroup: where a mod meets the fragments.
//
// A thread holds rows q_first and q_first + 8 of a tile and, of each group of 8 columns, two (ptx/wgmma.cuh).
#pragma once

#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/mod_hooks.cuh"
#include "algo/online_softmax.cuh"
#include "algo/step_walk.cuh"
#include "ptx/registers.cuh"
#include "tile/shared_sm90.cuh"

namespace attnc {

/// Whether positions may count from anywhere: as the mod says. They then count from the tile, which keeps the row terms
/// that row_shift takes out of the scores small, and so exact enough.
template <class M> constexpr bool kAnyOrigin = requires { requires M::kAnyOrigin; };

/// A thread's place in a tile: rows q_first and q_first + 8.
struct Place {
  int b, h, q_first;
  int origin;   // what q_float and kv_float count from
  float scale;  // what a product is multiplied by before score_mod
  float factor; // what a score is multiplied by to count in powers of two
  Mod::Head head;
  Mod::Row row[2];

  Place() = default;
  ATTNC_DEVICE Place(const ForwardParams& p, const ModArgs& args, Work work, int row_of_tile)
      : b(work.b), h(work.h), q_first(work.q_start + row_of_tile), origin(kAnyOrigin<Mod> ? work.q_start : 0),
        head(Mod::head(args, work.b, work.h)) {
    // A score is in natural units if something comes between the product and the softmax, else it is the product
    // itself; a scale that is not positive would turn the maximum into a minimum, so then the product is multiplied
    // first.
    scale = ptx::in_thread_register(p.scale * scale_in<Mod>(args, head));
    if constexpr (Mod::kHasScoreMod)
      factor = kLog2e * scale_out<Mod>(args, head);
    else
      factor = ptx::in_thread_register(p.scale > 0.f ? p.scale * kLog2e : kLog2e);
    const float q_float = float(q_first - origin);
#pragma unroll
    for (int half = 0; half < 2; ++half) row[half] = Mod::row(args, head, b, h, q_idx(p, half), q_float + 8.f * half);
  }

  ATTNC_DEVICE int q_idx(const ForwardParams& p, int half) const { return min(q_first + 8 * half, p.q_len - 1); }
};

/// How many of this lane's columns, 8 n + e with e < 2, lie before column x.
ATTNC_DEVICE int columns_before(int x) { return x > 0 ? x / 8 * 2 + min(x % 8, 2) : 0; }

/// A word whose bits [begin, end) are set, as far as it has them.
ATTNC_DEVICE unsigned bits_between(int begin, int end) {
  const auto below = [](int i) { return i <= 0 ? 0u : i >= 32 ? ~0u : (1u << i) - 1; };
  return below(end) & ~below(begin);
}

/// -inf outside each row's interval: a bit per column tells, so that a score costs a select and part of a test.
template <class M>
ATTNC_DEVICE void mask_intervals(ScoreTile& x, const ModArgs& args, const ForwardParams& p, const Place& place,
                                 int kv_first) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int q_idx = place.q_idx(p, half);
    const auto live = M::bounds(args, place.head, place.b, place.h, q_idx, q_idx + 1);
    const int begin = columns_before(live.kv_begin - kv_first), end = columns_before(live.kv_end - kv_first);
#pragma unroll
    for (int n = 0; n < kBlockN / 8; n += 16) {
      const unsigned word = bits_between(begin - 2 * n, end - 2 * n);
#pragma unroll
      for (int i = 0; i < 32 && n + i / 2 < kBlockN / 8; ++i)
        if (!(word >> i & 1)) x[n + i / 2][2 * half + i % 2] = negative_infinity();
    }
  }
}

/// Turns products q k^T into scores: score_mod, then -inf where mask_mod or the end of KV says so. On exit x is the
/// natural score if the mod has a score_mod or the step says so, else still the product.
ATTNC_DEVICE void apply_mod(ScoreTile& x, const ForwardParams& p, const ModArgs& args, const Place& place, Step step) {
  const int kv_first = step.kv_start + threadIdx.x % 4 * 2;
  const float kv_float = float(kv_first - place.origin);
  const auto at_each_score = [&](auto&& function) {
#pragma unroll
    for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int kv_idx = min(kv_first + 8 * n + e, max(p.kv_len, 1) - 1);
        const Mod::Col col = column<Mod>(args, place.head, place.b, place.h, kv_idx, kv_float, float(8 * n + e));
#pragma unroll
        for (int half = 0; half < 2; ++half)
          function(x[n][2 * half + e], place.row[half], col, Coord{place.b, place.h, place.q_idx(p, half), kv_idx});
      }
  };
  if constexpr (Mod::kHasScoreMod) {
    at_each_score([&](float& s, const Mod::Row& row, const Mod::Col& col, Coord at) {
      s = Mod::score(args, place.head, row, col, at, s * place.scale); // SEAM(score)
    });
  }
  if (!(step.flags & kStepSpecial)) [[likely]]
    return;
  if (!Mod::kHasScoreMod && step.flags & kStepScaled) {
#pragma unroll
    for (auto& group : x)
#pragma unroll
      for (float& s : group) s *= place.scale;
  }
  if constexpr (kRowsAreIntervals<Mod>) {
    if (step.flags & kStepMasked) mask_intervals<Mod>(x, args, p, place, kv_first);
  } else if (Mod::kHasMaskMod && step.flags & kStepMasked) {
    at_each_score([&](float& s, const Mod::Row& row, const Mod::Col& col, Coord at) {
      if (!Mod::mask(args, place.head, row, col, at)) s = negative_infinity(); // SEAM(mask)
    });
  }
  if (step.flags & kStepTail) {
#pragma unroll
    for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (kv_first + 8 * n + e % 2 >= p.kv_len) x[n][e] = negative_infinity();
  }
}

} // namespace attnc
