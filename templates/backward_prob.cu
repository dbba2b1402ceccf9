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
#include "algo/pairs.cuh"

namespace attnc::backward_prob {

using namespace pairs;

constexpr int kRows = 8; // rows of a CTA, one per warp

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

/// Calls function(launch, q, kv_idx, exists, masked) for a column in each lane, for all columns of the row of q that
/// the warp owns; then function(launch, q), if it exists.
template <class Each, class Last>
ATTNC_DEVICE void at_query_row(const BackwardParams& given, const ModArgs& args, Each each, Last last) {
  const long long index = (long long)blockIdx.x * kRows + threadIdx.x / 32;
  int b, h, q_idx;
  if constexpr (kIsRagged<Mod>) {
    const RaggedRow row = ragged_q_row<Mod>(given.forward, args, index);
    b = row.b, h = row.h, q_idx = row.row;
    if (!row.exists) return;
  } else {
    const ForwardParams& f = given.forward;
    if (index >= (long long)f.batch * f.q_heads * f.q_len) return;
    q_idx = index % f.q_len, h = index / f.q_len % f.q_heads, b = index / f.q_len / f.q_heads;
  }
  const BackwardParams& launch = params_of<Mod>(given, args, b);
  const QueryRow q(launch.forward, args, b, h, q_idx);
  const auto walk = walk_kv(launch.forward, b, h, q_idx);
  for (int i = 0; i < walk.count; ++i) {
    const Step step = walk.at(i);
    const int kv_idx = step.start + int(threadIdx.x) % 32;
    each(launch, q, kv_idx, kv_idx < launch.forward.kv_len, step.flags & kStepMasked);
  }
  last(launch, q);
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_backward_sums(const __grid_constant__ BackwardParams given, const __grid_constant__ ModArgs args) {
  float sum = 0.f, delta = 0.f;
  const auto add_weight = [&](const BackwardParams& launch, const QueryRow& q, int kv_idx, bool exists, bool masked) {
    sum += Pair(launch.forward, args, q, kv_idx, exists, masked).weight;
  };
  at_query_row(given, args, add_weight, [&](const BackwardParams& launch, const QueryRow& q) {
    sum = sum_of_lanes(sum);
    if constexpr (kHasSink<Mod>)
      if (q.lse != negative_infinity()) sum += expf(sink_of<Mod>(args, q.b, q.h, q.position) - q.lse);
    if (threadIdx.x % 32 == 0) launch.row_sums[q.index] = sum;
  });
  const auto add_delta = [&](const BackwardParams& launch, const QueryRow& q, int kv_idx, bool exists, bool masked) {
    delta += WeightedPair(launch, args, q, kv_idx, exists, masked, sum).p_d_p;
  };
  at_query_row(given, args, add_delta, [&](const BackwardParams& launch, const QueryRow& q) {
    delta = sum_of_lanes(delta);
    if (threadIdx.x % 32 == 0) launch.delta[q.index] = delta - (launch.d_lse ? launch.d_lse[q.index] : 0.f);
  });
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_backward_q(const __grid_constant__ BackwardParams given, const __grid_constant__ ModArgs args) {
  const int lane = threadIdx.x % 32;
  float d_q[kLaneColumns] = {}; // lane l: columns l, l + 32, ...
  const auto add = [&](const BackwardParams& launch, const QueryRow& q, int kv_idx, bool exists, bool masked) {
    const ForwardParams& f = launch.forward;
    const float d_s = contribution_of(launch, args, q, kv_idx, exists, masked).d_s;
    const int start = kv_idx - lane;
    for (int j = 0; j < min(kChunk, f.kv_len - start); ++j) {
      const float weight = __shfl_sync(0xffffffffu, d_s, j);
      const auto* k = row_of(f.k, f.k_stride, q.b, q.h / f.group, start + j);
      for (int c = 0; c < kLaneColumns; ++c)
        if (lane + 32 * c < kHeadDimQk) d_q[c] += weight * to_float(k[lane + 32 * c]);
    }
  };
  at_query_row(given, args, add, [&](const BackwardParams& launch, const QueryRow& q) {
    auto* out = (Element*)row_of(launch.d_q, launch.d_q_stride, q.b, q.h, q.q_idx);
    for (int c = 0; c < kLaneColumns; ++c)
      if (lane + 32 * c < kHeadDimQk) out[lane + 32 * c] = from_float<Element>(d_q[c]);
  });
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_backward_kv(const __grid_constant__ BackwardParams given, const __grid_constant__ ModArgs args) {
  const long long index = (long long)blockIdx.x * kRows + threadIdx.x / 32;
  int kv_b, kv_head, kv_idx;
  if constexpr (kIsRagged<Mod>) {
    const RaggedRow row = ragged_kv_row<Mod>(given.forward, args, index);
    kv_b = row.b, kv_head = row.h, kv_idx = row.row;
    if (!row.exists) return;
  } else {
    const ForwardParams& f = given.forward;
    if (index >= (long long)given.kv_batch * f.kv_heads * f.kv_len) return;
    kv_idx = index % f.kv_len, kv_head = index / f.kv_len % f.kv_heads, kv_b = index / f.kv_len / f.kv_heads;
  }
  const BackwardParams& launch = params_of<Mod>(given, args, kv_b);
  const ForwardParams& f = launch.forward;
  KvSums sums;
  const int batches = batches_of_kv<Mod>(launch, kv_idx);
  for (int i = 0; i < batches * f.group; ++i) {
    const int b = kv_b + i / f.group, h = kv_head * f.group + i % f.group;
    const auto walk = walk_of(f.q_len, launch.columns, b, h, kv_idx, launch.columns.kv_block, launch.columns.q_block);
    for (int n = 0; n < walk.count; ++n) {
      const Step step = walk.at(n);
      const int q_idx = step.start + int(threadIdx.x) % 32;
      const QueryRow q(f, args, b, h, min(q_idx, f.q_len - 1));
      sums.add(launch, b, h, step.start,
               contribution_of(launch, args, q, kv_idx, q_idx < f.q_len, step.flags & kStepMasked));
    }
  }
  sums.store<false>(launch, kv_b, kv_head, kv_idx);
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

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_backward_captures(const __grid_constant__ CaptureParams p, const __grid_constant__ ModArgs args) {
  const auto add = [&](const BackwardParams& launch, const QueryRow& q, int kv_idx, bool exists, bool masked) {
    const WeightedPair x(launch, args, q, kv_idx, exists, masked, launch.row_sums[q.index]);
    if (x.lives) add_to_captures<Mod>(p, args, q, x, x.gradient(launch.delta[q.index]));
  };
  at_query_row(p.backward, args, add, [](const BackwardParams&, const QueryRow&) {});
}

} // namespace attnc::backward_prob
