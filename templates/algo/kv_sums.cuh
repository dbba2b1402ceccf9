// fp32 sums of dK and dV, for kernels that give each query head CTAs of its own: if several share a KV head, all add to
// its sums, and the last to arrive takes the result.
//
// One CTA that walked all these heads would read little more, but the CTAs of a KV head begin and end at different
// times. What they read, and the sums of dQ, would be those of all heads at once, more than L2 holds. With a CTA for
// each head, those that run are at the same head.
//
// BackwardParamsSm90::kv_sums: [kv tile] [dV, dK] [fragment / 4] [128 threads] [4], in the order of the threads'
// fragments; kv_arrivals: [kv tile] [dV, dK] [4 warps]. A thread only reads back what the same thread of other CTAs has
// added, so warps need not wait for one another.
#pragma once

#include "algo/backward_tiles_sm90.cuh"
#include "params_sm90.cuh"
#include "ptx/global_memory.cuh"
#include "ptx/red.cuh"

namespace attnc::sm90 {

struct KvSums {
  static constexpr int kVFloats = kBlockN * VTile::kColumns, kKFloats = kBlockN * KTile::kColumns;

  const BackwardParamsSm90& p;
  int tile; ///< of K and V, counted over all KV heads

  /// Adds a warp's fragment of dV (Part = 0) or dK (Part = 1), unless it `is_zero`. Returns whether it is the last one
  /// to do so; then `x` is the sum.
  template <int Part, class X> ATTNC_DEVICE bool add(X& x, bool is_zero) const {
    float* const sums = p.kv_sums + (long long)tile * (kVFloats + kKFloats) + Part * kVFloats + threadIdx.x % 128 * 4;
    constexpr int kGroups = X::kGroups;
    if (!is_zero)
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        const float(&part)[4] = x.x[0][n];
        ptx::red_add4(sums + 512 * n, part[0], part[1], part[2], part[3]);
      }
    __syncwarp();
    int before = 0;
    if (threadIdx.x % 32 == 0)
      before = ptx::atom_add_acq_rel(p.kv_arrivals + 8 * tile + 4 * Part + threadIdx.x / 32 % 4, 1);
    if (__shfl_sync(0xffffffffu, before, 0) + 1 < p.sharers) return false;
    __syncwarp(); // orders the reads behind lane 0's acquire
#pragma unroll
    for (int n = 0; n < kGroups; ++n) ptx::ld_global_cg(x.x[0][n], sums + 512 * n);
    return true;
  }
};

} // namespace attnc::sm90
