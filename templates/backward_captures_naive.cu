// Gradients of captured tensors and scalars, short and obviously right: the GPU oracle. Any sm, fp32 arithmetic.
//
//   d_capture[offset] += value(s, g)    for each place where the mod reads a capture, and each round of it
//
// s and g, the gradient of mod(s), are defined in algo/pairs.cuh. A place that outputs of the mod read adds
// value(mod(s), p), p being the weight of the softmax. Runs after attnc_backward_sums of backward_naive.cu. A warp owns
// a row of q; a lane takes one of 32 columns at a time; each element of attention is a separate add to memory. Walks
// the lists of a block mask, or all columns.
//
// Grid: rows / 8 in one dimension, 256 threads. The mod is generated in plain form.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/capture_sums.cuh"
#include "algo/pairs.cuh"

namespace attnc::naive {

using namespace pairs;

constexpr int kRows = 8; // rows of a CTA, one per warp
constexpr bool kOfOutputs = kHasOutputGradients<Mod>;

/// Adds what outputs of the mod give to captures at a live score. `weight`: of the softmax.
template <class M>
ATTNC_DEVICE void add_of_outputs(const CaptureParams& p, const ModArgs& args, const QueryRow& q,
                                 const typename M::Col& col, Coord at, float score, float weight) {
  if constexpr (kHasOutputGradients<M>)
    M::output_gradients([&](auto gradient) { // SEAM(output_gradients)
      using Gradient = decltype(gradient);
      for (int round = 0; round < Gradient::kRounds; ++round)
        add_to(p.sums[Gradient::kCapture], Gradient::offset(args, q.head, q.row, col, at, round),
               Gradient::value(args, q.head, q.row, col, at, score, weight, round));
    });
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_backward_captures(const __grid_constant__ CaptureParams p, const __grid_constant__ ModArgs args) {
  const long long index = (long long)blockIdx.x * kRows + threadIdx.x / 32;
  int b, h, q_idx;
  if constexpr (kIsRagged<Mod>) {
    const RaggedRow row = ragged_q_row<Mod>(p.backward.forward, args, index);
    b = row.b, h = row.h, q_idx = row.row;
    if (!row.exists) return;
  } else {
    const ForwardParams& f = p.backward.forward;
    if (index >= (long long)f.batch * f.q_heads * f.q_len) return;
    q_idx = index % f.q_len, h = index / f.q_len % f.q_heads, b = index / f.q_len / f.q_heads;
  }
  const BackwardParams& backward = params_of<Mod>(p.backward, args, b);
  const ForwardParams& f = backward.forward;
  const QueryRow q(f, args, b, h, q_idx);
  const float row_sum = backward.row_sums[q.index];
  const auto walk = walk_kv(f, b, h, q_idx);
  for (int i = 0; i < walk.count; ++i) {
    const Step step = walk.at(i);
    const int kv_idx = step.start + int(threadIdx.x) % 32;
    const Pair pair(f, args, q, kv_idx, kv_idx < f.kv_len, step.flags & kStepMasked);
    const bool counts = kIsWeight<Mod> ? pair.lives
                        : kOfOutputs   ? pair.score != negative_infinity()
                                       : pair.weight != 0.f;
    if (!counts) continue;
    const float weight = pair.weight / row_sum;
    const float grad = gradient_of_score(backward, args, q, kv_idx, pair, weight);
    if (!kOfOutputs && grad == 0.f) continue;
    const Mod::Col col = Mod::col(args, q.head, b, h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
    const Coord at = {b, h, q.position, kv_idx};
    Mod::gradients([&](auto gradient) { // SEAM(gradients)
      if (grad == 0.f) return;
      using Gradient = decltype(gradient);
      for (int round = 0; round < Gradient::kRounds; ++round)
        add_to(p.sums[Gradient::kCapture], Gradient::offset(args, q.head, q.row, col, at, round),
               Gradient::value(args, q.head, q.row, col, at, pair.product, grad, round));
    });
    add_of_outputs<Mod>(p, args, q, col, at, pair.score, weight);
  }
}

} // namespace attnc::naive
