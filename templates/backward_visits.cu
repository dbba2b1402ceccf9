// Which blocks of KV columns visit a block of Q rows, as bits, for the turns of a deterministic backward pass
// (algo/turns.cuh).
//
// A warp owns one column of blocks of the lists: one (batch, head, kv block).
//
// All warps have one role. No shared memory, no barriers.
//
// The host provides: visits zeroed.
// Grid: kv blocks * heads * batch of the lists / kWarps, in one dimension. Threads: 32 kWarps.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/visits.cuh"
#include "params_sm90.cuh"

namespace attnc::sm90 {

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_backward_visits(const __grid_constant__ BackwardParamsSm90 p, const __grid_constant__ ModArgs) {
  const ForwardParams& f = p.base.forward;
  const BlockLists& lists = lists_of<Mod>(f);
  const int kv_blocks = (f.kv_len + lists.kv_block - 1) / lists.kv_block;
  const int heads = p.base.columns.head_stride ? f.q_heads : 1, batch = p.base.columns.batch_stride ? f.batch : 1;
  const long long column = (long long)blockIdx.x * kWarps + threadIdx.x / 32;
  if (column >= (long long)batch * heads * kv_blocks) return;
  mark_visits<Mod>(p.base, p.visits, column / kv_blocks, int(column % kv_blocks));
}

} // namespace attnc::sm90
