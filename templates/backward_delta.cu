// Runs before the backward pass. Computes delta = rowsum(dO O) - d_lse, which is subtracted from the gradients of
// weights, and marks rows with a large lse for backward_large.cu. If outputs of the mod have gradients, delta holds the
// row's sum of what they give, to which it adds. Any sm.
//
// A CTA takes kBlockM rows of a head; some lanes of a warp share a row and take 16 bytes each at a time. Grid: q tiles
// * q_heads * batch, in one dimension. Threads: 32 kWarps. No shared memory.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/gradients.cuh"
#include "params.cuh"
#include "tile/element.cuh"

namespace attnc::backward_delta {

/// 16 bytes of a row.
struct alignas(16) Chunk {
  static constexpr int kElements = 16 / int(sizeof(Element));
  Element x[kElements];
};

constexpr int kChunks = kHeadDimV / Chunk::kElements; // of a row; head dims are multiples of 8
constexpr int lanes_for(int chunks) { return chunks > 16 ? 32 : chunks > 8 ? 16 : chunks > 4 ? 8 : chunks > 2 ? 4 : 2; }
constexpr int kLanes = lanes_for(kChunks); // lanes that share a row

ATTNC_DEVICE Chunk load(const Element* from, bool vectors) {
  Chunk chunk;
  if (vectors) return *(const Chunk*)from;
#pragma unroll
  for (int i = 0; i < Chunk::kElements; ++i) chunk.x[i] = from[i];
  return chunk;
}

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_backward_delta(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  const auto [b, h, q_start] = q_tile_at<Mod, kBlockM>(launch.forward, args, blockIdx.x);
  const BackwardParams& p = params_of<Mod>(launch, args, b);
  const ForwardParams& f = p.forward;
  if (blockIdx.x == 0 && threadIdx.x < 2) launch.large_rows.counters[threadIdx.x] = 0;
  const bool exists = has_rows<Mod>(q_start, f.q_len);
  const int own = q_start + threadIdx.x;
  const float lse = exists && threadIdx.x < kBlockM && own < f.q_len ? f.lse[row_of_all(f, b, h, own)] : 0.f;
  const Element* outs = (const Element*)f.out + b * f.out_stride.batch + h * f.out_stride.head;
  const Element* d_outs = (const Element*)p.d_out + b * p.d_out_stride.batch + h * p.d_out_stride.head;
  const int lane = threadIdx.x % kLanes;
  if (exists)
#pragma unroll
    for (int i = threadIdx.x / kLanes; i < kBlockM; i += 32 * kWarps / kLanes) {
      const int q_idx = q_start + i, inside = min(q_idx, f.q_len - 1);
      float sum = 0.f;
#pragma unroll
      for (int c = lane; c < kChunks; c += kLanes) {
        const int column = c * Chunk::kElements;
        const Chunk out = load(outs + inside * f.out_stride.row + column, f.vectors);
        const Chunk d_out = load(d_outs + inside * p.d_out_stride.row + column, f.vectors);
#pragma unroll
        for (int e = 0; e < Chunk::kElements; ++e) sum += to_float(out.x[e]) * to_float(d_out.x[e]);
      }
#pragma unroll
      for (int lanes = kLanes / 2; lanes; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
      const long long index = row_of_all(f, b, h, inside);
      if constexpr (kHasOutputGradients<Mod>) sum += p.delta[index];
      if (lane == 0 && q_idx < f.q_len) p.delta[index] = sum - (p.d_lse ? p.d_lse[index] : 0.f);
    }
  const bool any = __any_sync(0xffffffffu, is_large(lse));
  if (threadIdx.x < kBlockM && threadIdx.x % 32 == 0)
    launch.large_rows.chunks[(blockIdx.x * kBlockM + threadIdx.x) / 32] = any;
}

} // namespace attnc::backward_delta
