// Optional hooks of a mod, for algebra that only the compiler of the mod can see. Without one of them, its neutral
// value.
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
#pragma once

#include "mod/contract.cuh"

namespace attnc {

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
