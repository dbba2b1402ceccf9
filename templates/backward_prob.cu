// Backward attention of mods whose prob_mod is no multiple of the weight. Any sm, fp32 arithmetic, deterministic.
//
//   p: the weight of the softmax (algo/pairs.cuh)     w = prob_mod(p)     d_w = d_out v^T
//   d_p = prob_mod'(p) d_w     delta = sum over columns of p d_p - d_lse     g = p (d_p - delta)
//   d_s = scale mod'(s) g      d_q = d_s k,  d_k = d_s^T q,  d_v = w^T d_out
//   d_capture[offset] += value(s, g) for places in score_mod, value(p, d_w) for places in prob_mod
//
// Scores of -inf have w = 0. Outputs of the mod add to d_p and g as in algo/pairs.cuh.
//
// Four kernels. attnc_backward_sums: a warp owns a row of q, and stores the sum of its weights and delta.
// attnc_backward_q, attnc_backward_kv and attnc_backward_captures then are those of backward_naive.cu and
// backward_captures_naive.cu. No shared memory. Grid: rows / 8 in one dimension, 256 threads.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/capture_sums.cuh"
#include "algo/pair_rows.cuh"

namespace attnc::backward_prob {

using namespace pairs;

/// One element of the score matrix, and its gradients.
struct WeightedPair {
  Pair pair;
  Mod::Col col;
  Coord at;
  bool lives;
  float p = 0.f, w = 0.f, d_w = 0.f;
  float p_d_p = 0.f;    ///< p times d_p
  float by_score = 0.f; ///< what outputs of the mod give to mod(s)

  ATTNC_DEVICE WeightedPair(const BackwardParams& launch, const ModArgs& args, const QueryRow& q, int kv_idx,
                            bool exists, bool masked, float row_sum)
      : pair(launch.forward, args, q, kv_idx, exists, masked), col(), at{q.b, q.h, q.position, kv_idx},
        lives(pair.lives && pair.score != negative_infinity()) {
    if (!lives) return;
    const ForwardParams& f = launch.forward;
    col = Mod::col(args, q.head, q.b, q.h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
    p = pair.weight / row_sum;
    w = Mod::prob_weight(args, q.head, q.row, col, at, p); // SEAM(prob_weight)
    d_w = dot<kHeadDimV>(row_of(launch.d_out, launch.d_out_stride, q.b, q.h, q.q_idx),
                         row_of(f.v, f.v_stride, q.b, q.h / f.group, kv_idx));
    if (p != 0.f) p_d_p = p * Mod::d_prob(args, q.head, q.row, col, at, p, d_w); // SEAM(d_prob)
    const OutputGradient of_outputs = output_gradient<Mod>(args, q, kv_idx, pair, p);
    p_d_p += of_outputs.prob;
    by_score = of_outputs.score;
  }

  /// Returns g. `delta`: the row's.
  ATTNC_DEVICE float gradient(float delta) const { return p_d_p - p * delta + by_score; }
};

/// Returns what an element contributes; zeros if it is dead.
ATTNC_DEVICE Contribution contribution_of(const BackwardParams& launch, const ModArgs& args, const QueryRow& q,
                                          int kv_idx, bool exists, bool masked) {
  const WeightedPair x(launch, args, q, kv_idx, exists, masked, launch.row_sums[q.index]);
  if (!x.lives) return {0.f, 0.f, 0.f};
  const float g = x.gradient(launch.delta[q.index]);
  return {x.w,
          launch.forward.scale * Mod::d_score(args, q.head, q.row, x.col, x.at, x.pair.product, g), // SEAM(d_score)
          g};
}

extern "C" __global__ void __launch_bounds__(32 * kRowsOfCta, 1)
    attnc_backward_sums(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  at_query_row(launch, args, [&](const BackwardParams& p, const QueryRow& q) {
    float sum = 0.f, delta = 0.f;
    at_columns(p.forward, q, [&](int kv_idx, bool exists, bool masked) {
      sum += Pair(p.forward, args, q, kv_idx, exists, masked).weight;
    });
    sum = sum_of_lanes(sum);
    if constexpr (kHasSink<Mod>)
      if (q.lse != negative_infinity()) sum += expf(sink_of<Mod>(args, q.b, q.h, q.position) - q.lse);
    at_columns(p.forward, q, [&](int kv_idx, bool exists, bool masked) {
      delta += WeightedPair(p, args, q, kv_idx, exists, masked, sum).p_d_p;
    });
    delta = sum_of_lanes(delta);
    if (threadIdx.x % 32) return;
    p.row_sums[q.index] = sum;
    p.delta[q.index] = delta - (p.d_lse ? p.d_lse[q.index] : 0.f);
  });
}

extern "C" __global__ void __launch_bounds__(32 * kRowsOfCta, 1)
    attnc_backward_q(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  at_query_row(launch, args, [&](const BackwardParams& p, const QueryRow& q) {
    const auto of = [&](int kv_idx, bool exists, bool masked) {
      return contribution_of(p, args, q, kv_idx, exists, masked);
    };
    write_d_q(p, q, of, [](int, Contribution) {});
  });
}

extern "C" __global__ void __launch_bounds__(32 * kRowsOfCta, 1)
    attnc_backward_kv(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  write_d_kv(launch, args, [&](const BackwardParams& p, const QueryRow& q, int kv_idx, bool exists, bool masked) {
    return contribution_of(p, args, q, kv_idx, exists, masked);
  });
}

/// Adds what an element gives to captures.
template <class M>
ATTNC_DEVICE void add_to_captures(const CaptureParams& p, const ModArgs& args, const QueryRow& q, const WeightedPair& x,
                                  float g) {
  const auto adder = [&](float a, float b) {
    return [&, a, b](auto gradient) {
      using Gradient = decltype(gradient);
      for (int round = 0; round < Gradient::kRounds; ++round)
        add_to(p.sums[Gradient::kCapture], Gradient::offset(args, q.head, q.row, x.col, x.at, round),
               Gradient::value(args, q.head, q.row, x.col, x.at, a, b, round));
    };
  };
  if constexpr (requires { M::kGradients; }) {              // in the kernel that computes them
    if (g != 0.f) M::gradients(adder(x.pair.product, g));   // SEAM(gradients)
    if (x.d_w != 0.f) M::prob_gradients(adder(x.p, x.d_w)); // SEAM(prob_gradients)
    if constexpr (kHasOutputGradients<M>) M::output_gradients(adder(x.pair.score, x.p)); // SEAM(output_gradients)
  }
}

extern "C" __global__ void __launch_bounds__(32 * kRowsOfCta, 1)
    attnc_backward_captures(const __grid_constant__ CaptureParams sums, const __grid_constant__ ModArgs args) {
  at_query_row(sums.backward, args, [&](const BackwardParams& p, const QueryRow& q) {
    at_columns(p.forward, q, [&](int kv_idx, bool exists, bool masked) {
      const WeightedPair x(p, args, q, kv_idx, exists, masked, p.row_sums[q.index]);
      if (x.lives) add_to_captures<Mod>(sums, args, q, x, x.gradient(p.delta[q.index]));
    });
  });
}

} // namespace attnc::backward_prob
