// What a batch entry has of K and V, and where its queries stand, if the mod says: sequences of a batch may differ. A
// kernel that asks here is, for mods without these hooks, what it would be without asking.
#pragma once

#include "mod/contract.cuh"
#include "params.cuh"

namespace attnc {

template <class M> constexpr bool kHasLengths = requires { M::kHasLengths; };
template <class M> constexpr bool kHasOffsets = requires { M::kHasOffsets; };

/// Rows of K and V that live: 0 to p.kv_len.
template <class M, class Args, class Head> ATTNC_DEVICE int kv_length(const ForwardParams& p, const Args& args, const Head& head) {
  if constexpr (kHasLengths<M>)
    return min(M::kv_length(args, head), p.kv_len); // SEAM(kv_length)
  else
    return p.kv_len;
}

/// The same where no Head is at hand.
template <class M, class Args> ATTNC_DEVICE int kv_length_of(const ForwardParams& p, const Args& args, int b, int h) {
  if constexpr (kHasLengths<M>)
    return kv_length<M>(p, args, M::head(args, b, h)); // SEAM(head)
  else
    return p.kv_len;
}

/// The position of row 0 of Q: what a mod takes as q_idx is that plus the row.
template <class M, class Args, class Head> ATTNC_DEVICE int q_offset(const Args& args, const Head& head) {
  if constexpr (kHasOffsets<M>)
    return M::q_offset(args, head); // SEAM(q_offset)
  else
    return 0;
}

/// The same where no Head is at hand.
template <class M, class Args> ATTNC_DEVICE int q_offset_of(const Args& args, int b, int h) {
  if constexpr (kHasOffsets<M>)
    return q_offset<M>(args, M::head(args, b, h)); // SEAM(head)
  else
    return 0;
}

} // namespace attnc
