// Appends the new rows of K and V to K and V, ahead of a kernel that attends to them. Decode kernels append by
// themselves.
//
// Grid: tiles of kBlockM new rows * kv_heads * batch, in one dimension. Threads: 32 kWarps.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/append.cuh"
#include "algo/sequence.cuh"

namespace attnc::append {

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_append(const __grid_constant__ Cached<ForwardParams> p, const __grid_constant__ ModArgs args) {
  const int tiles = (p.q_len + kBlockM - 1) / kBlockM, first = int(blockIdx.x % tiles) * kBlockM;
  const int kv_head = blockIdx.x / tiles % p.kv_heads, b = blockIdx.x / tiles / p.kv_heads;
  const int length = kv_length_of<Mod>(p, args, b, kv_head * p.group);
  append_rows<32 * kWarps>(p, p.cache, pages_of(p, b), length, b, kv_head, first, min(first + kBlockM, p.q_len),
                           threadIdx.x);
}

} // namespace attnc::append
