// Optional hooks of a mod beside contract.cuh, for algebra that only the compiler of the mod can see. Without one of
// them, its neutral value.
//
//   static float scale_in(const ModArgs&, const Head&)    score() gets the score times this: 1 / cap of a softcap
//   static float scale_out(const ModArgs&, const Head&)   what score() returns is to be multiplied by this, > 0: cap
//   static float row_shift(const ModArgs&, const Head&, const Row&)
//                       to be added to all scores of the row, after scale_out: it changes lse and row max, nothing else
//   static Col col(const ModArgs&, const Head&, int b, int h, int kv_idx, float kv_base, float kv_offset)
//                       instead of the col of contract.cuh: kv_base + kv_offset == (float)kv_idx, the offset known at
//                       compile time, so that slope * kv_idx is one multiply-add of a product formed once a tile
//   static constexpr bool kAnyOrigin
//                       q_float, kv_float and kv_base may count from any position, the same for both
//   static constexpr bool kColumnsLoad
//                       col() reads memory: worth calling once a column of a tile, for all of the tile's rows
//   static constexpr bool kScoreIsLinear
//   static float kv_slope(const ModArgs&, const Head&)
//                       score() adds kv_slope * kv_float and does nothing else: a kernel may do so by itself
//   static constexpr bool kScoreIsTanh, kScoreIsTanhApprox
//                       score() is the tanh, or the hardware's tanh, of the score and nothing else
#pragma once

#include "mod/contract.cuh"

namespace attnc {

template <class M> constexpr bool kColumnsLoad = requires { requires M::kColumnsLoad; };

template <class M> constexpr bool kScoreIsLinear = requires { requires M::kScoreIsLinear; };

template <class M> constexpr bool kScoreIsTanh = requires { requires M::kScoreIsTanh; };
template <class M> constexpr bool kScoreIsTanhApprox = requires { requires M::kScoreIsTanhApprox; };
/// Whether one of the two.
template <class M> constexpr bool kScoreIsSoftcap = kScoreIsTanh<M> || kScoreIsTanhApprox<M>;

/// Whether scores must pass through score(): where they are linear, the step from scores to exponents, which is linear
/// itself, takes the term along at one multiply-add a score.
template <class M> constexpr bool kCallsScore = M::kHasScoreMod && !kScoreIsLinear<M>;

/// What q_float and kv_float count from, in a tile of rows from q_start on: from the tile if the mod allows, which keeps
/// the row terms that row_shift takes out of the scores small, and so exact enough.
template <class M> ATTNC_DEVICE int position_origin(int q_start) {
  if constexpr (requires { requires M::kAnyOrigin; })
    return q_start;
  else
    return 0;
}

template <class M, class Args> ATTNC_DEVICE float kv_slope(const Args& args, const typename M::Head& head) {
  if constexpr (kScoreIsLinear<M>)
    return M::kv_slope(args, head);
  else
    return 0.f;
}

template <class M, class Args> ATTNC_DEVICE float scale_in(const Args& args, const typename M::Head& head) {
  if constexpr (requires { M::scale_in(args, head); })
    return M::scale_in(args, head);
  else
    return 1.f;
}

template <class M, class Args> ATTNC_DEVICE float scale_out(const Args& args, const typename M::Head& head) {
  if constexpr (requires { M::scale_out(args, head); })
    return M::scale_out(args, head);
  else
    return 1.f;
}

template <class M, class Args>
ATTNC_DEVICE float row_shift(const Args& args, const typename M::Head& head, const typename M::Row& row) {
  if constexpr (requires { M::row_shift(args, head, row); })
    return M::row_shift(args, head, row);
  else
    return 0.f;
}

template <class M, class Args>
ATTNC_DEVICE typename M::Col column(const Args& args, const typename M::Head& head, int b, int h, int kv_idx,
                                    float kv_base, float kv_offset) {
  if constexpr (requires { M::col(args, head, b, h, kv_idx, kv_base, kv_offset); })
    return M::col(args, head, b, h, kv_idx, kv_base, kv_offset);
  else
    return M::col(args, head, b, h, kv_idx, kv_base + kv_offset);
}

} // namespace attnc
