// Gradients of captures from sums along diagonals, which another kernel has made (backward_sm90.cu), if these suffice:
//
//   d_capture[offset(b, h, d)] += value(b, h, d, D[b, h, d]),  D = sum of G over q_idx - kv_idx = d
//
// for each place where the mod reads a capture. G is the gradient of score_mod's result. value is G times a factor that
// only depends on q_idx - kv_idx, as offset does (src/analysis/gradient_access.h). Any sm.
//
// A thread owns a diagonal, and evaluates the hooks for its first element. If all lanes of a warp add to one element of
// the capture, as for captures indexed by [h], they are added up first. Grid: (q_len + kv_len) / (32 kWarps) * q_heads
// * batch, in one dimension; no launch if q_len or kv_len is 0. Threads: 32 kWarps.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/capture_reduction.cuh"
#include "params_sm90.cuh"

namespace attnc::backward_diagonals {

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_backward_diagonals(const __grid_constant__ DiagonalParams p, const __grid_constant__ ModArgs args) {
  const ForwardParams& f = p.captures.backward.forward;
  constexpr int kThreads = 32 * kWarps;
  const int stride = f.q_len + f.kv_len, blocks = (stride + kThreads - 1) / kThreads;
  const int of_head = int(blockIdx.x) / blocks, b = of_head / f.q_heads, h = of_head % f.q_heads;
  const int i = int(blockIdx.x) % blocks * kThreads + int(threadIdx.x);
  const bool exists = i < stride - 1;
  const float sum = exists ? p.diagonals[(long long)of_head * stride + i] : 0.f;
  const int diagonal = min(i, stride - 2) - (f.kv_len - 1); // threads past the end repeat the last, add nothing
  const Coord at = {b, h, max(diagonal, 0), max(-diagonal, 0)};
  const Mod::Head head = Mod::head(args, b, h);                                      // SEAM(head)
  const Mod::Row row = Mod::row(args, head, b, h, at.q_idx, float(at.q_idx));        // SEAM(row)
  const Mod::Col col = Mod::col(args, head, b, h, at.kv_idx, float(at.kv_idx), 0.f); // SEAM(col)
  Mod::gradients([&](auto gradient) {                                                // SEAM(gradients)
    using Gradient = decltype(gradient);
#pragma unroll 1
    for (int round = 0; round < Gradient::kRounds; ++round) {
      const float x = sum == 0.f ? 0.f : Gradient::value(args, head, row, col, at, 0.f, sum, round);
      const long long offset = Gradient::offset(args, head, row, col, at, round);
      const CaptureSum& to = p.captures.sums[Gradient::kCapture];
      if (__all_sync(0xffffffffu, offset == __shfl_sync(0xffffffffu, offset, 0))) {
        const float total = sum_of_groups(quad_sum(x));
        if (threadIdx.x % 32 == 0) add_to(to, offset, total);
      } else {
        add_to(to, offset, x);
      }
    }
  });
}

} // namespace attnc::backward_diagonals
