// Gradients of what sink_mod reads: of captured tensors and scalars. Any sm, fp32 arithmetic.
//
//   p = exp(sink - lse)   g = -p delta   the gradient of a row's sink; delta = rowsum(dO O) - d_lse
//   d_capture[offset] += value(g)        for each place where sink_mod reads a capture, and each round of it
//
// With tangents, sums are those of the tangent of value(g), and g. = -(p (sink. - lse.) delta + p delta.).
//
// Runs after backward_delta.cu and, for rows with a large lse, backward_large.cu; in the oracle after
// attnc_backward_sums, where it computes delta itself; with tangents after attnc_tangent_rows. A thread owns a row of
// q. Rows that share the element of a capture are added up by CTA first, in a fixed order.
//
// Shared memory: a float per warp. Barriers: __syncthreads before and behind its stores. Grid: q tiles * q_heads *
// batch, in one dimension. Threads: 32 kWarps, which is kBlockM. The mod is generated in plain form.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/capture_sums.cuh"
#include "algo/gradients.cuh"
#include "algo/pairs.cuh"

namespace attnc::backward_sinks {

static_assert(kBlockM == 32 * kWarps);
template <class M> constexpr bool kHasTangents = requires { &M::t_score; };
constexpr bool kMoves = kHasTangents<Mod>;
using Params = Choose<kMoves, TangentCaptureParams, CaptureParams>::Type;

ATTNC_DEVICE const BackwardParams& backward_of(const CaptureParams& p) { return p.backward; }
ATTNC_DEVICE const BackwardParams& backward_of(const TangentCaptureParams& p) { return p.tangents.backward; }

/// Returns the tangent of a row's gradient `grad`; 0 without tangents. `weight`: of the sink.
template <class M>
ATTNC_DEVICE float tangent_of(const CaptureParams&, const ModArgs&, const pairs::QueryRow&, float, float) {
  return 0.f;
}
template <class M>
ATTNC_DEVICE float tangent_of(const TangentCaptureParams& p, const ModArgs& args, const pairs::QueryRow& row,
                              float weight, float grad) {
  const float t_sink = t_sink_of<M>(args, row.head, row.row, {row.b, row.h, row.position, 0});
  return grad * (t_sink - p.tangents.t_lse[row.index]) - weight * p.tangents.t_delta[row.index];
}

/// Returns the sum over the CTA in its thread 0. Called by all threads.
ATTNC_DEVICE float sum_of_cta(float x, float* scratch) {
  x = pairs::sum_of_lanes(x);
  __syncthreads(); // scratch is free
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0.f;
  for (int warp = 0; warp < kWarps; ++warp) total += scratch[warp];
  return total;
}

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_backward_sinks(const __grid_constant__ Params p, const __grid_constant__ ModArgs args) {
  __shared__ float scratch[kWarps];
  const BackwardParams& given = backward_of(p);
  const auto [b, h, q_start] = q_tile_at<Mod, kBlockM>(given.forward, args, blockIdx.x);
  const BackwardParams& backward = params_of<Mod>(given, args, b);
  const ForwardParams& f = backward.forward;
  if (!has_rows<Mod>(q_start, f.q_len)) return;
  const bool exists = q_start + int(threadIdx.x) < f.q_len;
  const pairs::QueryRow row(f, args, b, h, min(q_start + int(threadIdx.x), f.q_len - 1));

  float weight = row.lse == negative_infinity() ? 0.f : expf(sink_of<Mod>(args, b, h, row.position) - row.lse);
  float delta;
  if (given.delta && !kMoves) {
    delta = backward.delta[row.index];
  } else {
    delta = pairs::dot<kHeadDimV>(pairs::row_of(backward.d_out, backward.d_out_stride, b, h, row.q_idx),
                                  pairs::row_of(f.out, f.out_stride, b, h, row.q_idx));
    if (backward.d_lse) delta -= backward.d_lse[row.index];
  }
  if (weight != 0.f && (!given.delta || kMoves || is_large(row.lse))) weight /= backward.row_sums[row.index];
  const float grad = exists && weight != 0.f ? -weight * delta : 0.f;
  const float t_grad = exists && weight != 0.f ? tangent_of<Mod>(p, args, row, weight, grad) : 0.f;

  Mod::sink_gradients([&](auto gradient) { // SEAM(sink_gradients)
    using Gradient = decltype(gradient);
    const CaptureSum& sum = p.sums[Gradient::kCapture];
    const auto value = [&](int round) {
      const Coord at = {b, h, row.position, 0};
      if (grad == 0.f && t_grad == 0.f) return 0.f;
      if constexpr (kMoves)
        return Gradient::value(args, row.head, row.row, Mod::Col{}, at, 0.f, grad, 0.f, t_grad, round);
      else
        return Gradient::value(args, row.head, row.row, Mod::Col{}, at, 0.f, grad, round);
    };
    const auto add = [&](float x, int round) {
      if constexpr (Gradient::kReach == GradientReach::Head) x = sum_of_cta(x, scratch);
      if (Gradient::kReach == GradientReach::Head && threadIdx.x != 0) return;
      add_to(sum, Gradient::offset(args, row.head, row.row, Mod::Col{}, {b, h, row.position, 0}, round), x);
    };
    float total = 0.f; // of rounds that share an offset
#pragma unroll 1
    for (int round = 0; round < Gradient::kRounds; ++round) {
      if constexpr (Gradient::kRoundMoves)
        add(value(round), round);
      else
        total += value(round);
    }
    if constexpr (!Gradient::kRoundMoves) add(total, 0);
  });
}

} // namespace attnc::backward_sinks
