// The steps along KV of a tile of Q rows: all of them, those between the mod's bounds, or those of lists.
//
// A mod with bounds needs no lists. Lists are still walked if given, because they may leave out more than the mask
// does.
#pragma once

#include "attnc_mod.cuh"

#include "algo/sequence.cuh"
#include "algo/step_walk.cuh"

namespace attnc {

template <class M, bool Lists>
constexpr StepSource kKvSource = Lists           ? StepSource::Lists
                                 : M::kHasBounds ? StepSource::Bounds
                                                 : StepSource::All;

template <class M, int Size, bool Lists> using KvWalk = StepWalk<Size, kKvSource<M, Lists>, M::kHasMaskMod>;

/// Returns the walk of rows [q_start, q_end) of (b, h), which lie in one block of the lists.
template <class M, int Size, bool Lists, class Args>
ATTNC_DEVICE KvWalk<M, Size, Lists> walk_kv(const ForwardParams& p, const Args& args, int b, int h, int q_start,
                                            int q_end) {
  using Walk = KvWalk<M, Size, Lists>;
  if constexpr (kChooses<M>)
    if (variant_of<M>(args, b, h) < 0) return Walk::none(kv_length_of<M>(p, args, b, h));
  if constexpr (Lists) {
    const BlockLists& lists = lists_of<M>(p);
    return Walk(kv_length_of<M>(p, args, b, h), BlockRow(lists, b, h, q_start / lists.q_block, lists.kv_block));
  } else if constexpr (M::kHasBounds) {
    const auto head = M::head(args, b, h); // SEAM(head)
    const int first = q_offset<M>(args, head) + q_start, end = q_offset<M>(args, head) + q_end;
    return Walk(kv_length<M>(p, args, head), M::bounds(args, head, b, h, first, end)); // SEAM(bounds)
  } else {
    return Walk(kv_length_of<M>(p, args, b, h));
  }
}

} // namespace attnc
