// Attention pair by pair, in fp32 without tensor cores. Shared by the oracle's backward kernels and the kernel for rows
// that fp32 cannot normalise by their lse.
//
//   s = scale q k^T,  p = exp(mod(s) - lse) / row_sum,  delta = sum over columns of d_out out - d_lse
//   g = p (f d_out v^T - delta)    the gradient of mod(s); 0 if masked or past the end of KV. f: of prob_mod, or 1
//   d_s = scale mod'(s) g          d_q = d_s k,  d_k = d_s^T q,  d_v = (p f)^T d_out
//
// Of a weight_mod, p is mod(s), and g is d_out v^T.
//
// If outputs of the mod have gradients, these add prob_gradient() to d_out v^T, score_gradient() to g, and the sum of
// p prob_gradient() over the row to delta, which is then stored.
//
// row_sum, the sum over the row, with its sink, of exp(mod(s) - lse), would be 1 if lse were not rounded. At 1e9, where
// fp32 counts in steps of 64, the lse of n equal scores lacks log n.
//
// A lane takes one of 32 columns, or rows, at a time. All lanes of the warp call together. Mods are generated in plain
// form.
#pragma once

#include "attnc_mod.cuh"

#include "algo/output_gradients.cuh"
#include "algo/prob_mod.cuh"
#include "algo/sequence.cuh"
#include "algo/sink.cuh"
#include "algo/softmax.cuh"
#include "algo/step_walk.cuh"
#include "params.cuh"
#include "tile/element.cuh"

namespace attnc::pairs {

constexpr int kChunk = 32; // along the walked axis, one per lane
constexpr int kHeadDimMax = kHeadDimQk > kHeadDimV ? kHeadDimQk : kHeadDimV;
constexpr int kLaneColumns = (kHeadDimMax + 31) / 32;

/// Returns where a row of a tensor begins.
ATTNC_DEVICE const Element* row_of(const void* base, const Strides& stride, int b, int h, int row) {
  return (const Element*)base + b * stride.batch + h * stride.head + row * stride.row;
}

template <int Columns> ATTNC_DEVICE float dot(const Element* x, const Element* y) {
  float sum = 0.f;
  for (int d = 0; d < Columns; ++d) sum += to_float(x[d]) * to_float(y[d]);
  return sum;
}

ATTNC_DEVICE float sum_of_lanes(float x) {
#pragma unroll
  for (int distance = 16; distance; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

/// Returns the walk over all positions of the walked axis, or those of lists: the oracle does not trust a mod's bounds.
/// `at`: position along the other axis.
ATTNC_DEVICE auto walk_of(int length, const BlockLists& lists, int b, int h, int at, int own_block, int walked_block) {
  if constexpr (kBlockSparse) {
    using Walk = StepWalk<kChunk, StepSource::Lists, Mod::kHasMaskMod>;
    if (kIsRagged<Mod> && length == 0) return Walk::none(length); // lists may be those of other sequences
    return Walk(length, BlockRow(lists, b, h, at / own_block, walked_block));
  } else {
    return StepWalk<kChunk, StepSource::All, Mod::kHasMaskMod>(length);
  }
}
ATTNC_DEVICE auto walk_kv(const ForwardParams& f, int b, int h, int q_idx) {
  const BlockLists& lists = lists_of<Mod>(f);
  return walk_of(f.kv_len, lists, b, h, q_idx, lists.q_block, lists.kv_block);
}

/// A row of q, and what the mod knows of it.
struct QueryRow {
  int b, h, q_idx;
  Mod::Head head;
  Mod::Row row;
  int position;
  long long index; ///< of lse, delta and similar arrays
  float lse;

  ATTNC_DEVICE QueryRow(const ForwardParams& f, const ModArgs& args, int b, int h, int q_idx)
      : b(b), h(h), q_idx(q_idx), head(Mod::head(args, b, h)), // SEAM(head)
        position(position_of<Mod>(args, head, q_idx)), index(row_of_head<Mod>(f, b, h) + q_idx),
        lse(kIsWeight<Mod> ? 0.f : f.lse[index]) {
    row = Mod::row(args, head, b, h, position, float(position)); // SEAM(row)
  }
};

/// One element of the score matrix.
struct Pair {
  bool lives;
  float product; ///< s
  float weight;  ///< exp(mod(s) - lse), 0 if dead
  float factor;  ///< of prob_mod; the weight times it multiplies v
  float score;   ///< mod(s), -inf if dead

  ATTNC_DEVICE Pair(const ForwardParams& f, const ModArgs& args, const QueryRow& q, int kv_idx, bool exists,
                    bool masked)
      : lives(exists && q.lse != negative_infinity()), product(0.f), weight(0.f), factor(1.f),
        score(negative_infinity()) {
    if (!lives) return;
    const Mod::Col col = Mod::col(args, q.head, q.b, q.h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
    const Coord at = {q.b, q.h, q.position, kv_idx};
    if (masked && !Mod::mask(args, q.head, q.row, col, at)) { // SEAM(mask)
      lives = false;
      return;
    }
    product = f.scale * dot<kHeadDimQk>(row_of(f.q, f.q_stride, q.b, q.h, q.q_idx),
                                        row_of(f.k, f.k_stride, q.b, q.h / f.group, kv_idx));
    score = Mod::score(args, q.head, q.row, col, at, product); // SEAM(score)
    weight = kIsWeight<Mod> ? score : expf(score - q.lse);
    factor = prob_factor<Mod>(weight, args, q.head, q.row, col, at);
  }
};

/// What outputs of the mod give to an element: to mod(s), and to its weight, times this weight.
struct OutputGradient {
  float score, prob;
};

/// Returns it; zeros unless outputs have gradients. `weight`: p.
template <class M>
ATTNC_DEVICE OutputGradient output_gradient(const ModArgs& args, const QueryRow& q, int kv_idx, const Pair& pair,
                                            float weight) {
  if constexpr (kHasOutputGradients<M>) {
    if (pair.score == negative_infinity()) return {0.f, 0.f};
    const typename M::Col col = M::col(args, q.head, q.b, q.h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
    const Coord at = {q.b, q.h, q.position, kv_idx};
    return {M::score_gradient(args, q.head, q.row, col, at, pair.score, weight), // SEAM(score_gradient)
            weight == 0.f
                ? 0.f
                : weight * M::prob_gradient(args, q.head, q.row, col, at, pair.score, weight)}; // SEAM(prob_gradient)
  }
  return {0.f, 0.f};
}

/// Returns the part of delta that out and lse have. `d_out`: the row's.
ATTNC_DEVICE float delta_of_out(const BackwardParams& p, const QueryRow& q, const Element* d_out) {
  const ForwardParams& f = p.forward;
  return dot<kHeadDimV>(d_out, row_of(f.out, f.out_stride, q.b, q.h, q.q_idx)) - (p.d_lse ? p.d_lse[q.index] : 0.f);
}

/// Returns the gradient of mod(s). `weight`: its normalised weight p.
ATTNC_DEVICE float gradient_of_score(const BackwardParams& p, const ModArgs& args, const QueryRow& q, int kv_idx,
                                     const Pair& pair, float weight) {
  const ForwardParams& f = p.forward;
  const Element* d_out = row_of(p.d_out, p.d_out_stride, q.b, q.h, q.q_idx);
  const float d_weight = dot<kHeadDimV>(d_out, row_of(f.v, f.v_stride, q.b, q.h / f.group, kv_idx));
  if constexpr (kIsWeight<Mod>) return d_weight;
  const float delta = kHasOutputGradients<Mod> ? p.delta[q.index] : delta_of_out(p, q, d_out);
  const float g = weight * (pair.factor * d_weight - delta);
  if constexpr (!kHasOutputGradients<Mod>) return g;
  const OutputGradient of_outputs = output_gradient<Mod>(args, q, kv_idx, pair, weight);
  return g + of_outputs.prob + of_outputs.score;
}

/// Calls each(kv_idx, exists, masked) for a column in each lane, for all columns that the row's lists or bounds name.
template <class Each> ATTNC_DEVICE void at_columns(const ForwardParams& f, const QueryRow& q, Each each) {
  const auto walk = walk_kv(f, q.b, q.h, q.q_idx);
  for (int i = 0; i < walk.count; ++i) {
    const Step step = walk.at(i);
    const int kv_idx = step.start + int(threadIdx.x) % 32;
    each(kv_idx, kv_idx < f.kv_len, step.flags & kStepMasked);
  }
}

/// Stores the row's sum in p.row_sums, and returns it. If outputs have gradients, also stores the row's delta.
ATTNC_DEVICE float sum_up_row(const BackwardParams& p, const ModArgs& args, const QueryRow& q) {
  const ForwardParams& f = p.forward;
  float sum = 0.f;
  at_columns(f, q,
             [&](int kv_idx, bool exists, bool masked) { sum += Pair(f, args, q, kv_idx, exists, masked).weight; });
  sum = kIsWeight<Mod> ? 1.f : sum_of_lanes(sum);
  if constexpr (kHasSink<Mod>)
    if (q.lse != negative_infinity()) sum += expf(sink_of<Mod>(args, q.b, q.h, q.position) - q.lse);
  if (threadIdx.x % 32 == 0) p.row_sums[q.index] = sum;
  if constexpr (kHasOutputGradients<Mod>) {
    float of_outputs = 0.f;
    at_columns(f, q, [&](int kv_idx, bool exists, bool masked) {
      const Pair pair(f, args, q, kv_idx, exists, masked);
      of_outputs += output_gradient<Mod>(args, q, kv_idx, pair, pair.weight / sum).prob;
    });
    of_outputs = sum_of_lanes(of_outputs);
    const Element* d_out = row_of(p.d_out, p.d_out_stride, q.b, q.h, q.q_idx);
    if (threadIdx.x % 32 == 0) p.delta[q.index] = delta_of_out(p, q, d_out) + of_outputs;
    __syncwarp(); // backward_large.cu goes on with the row
  }
  return sum;
}

/// What an element contributes to gradients; zeros if it is dead.
struct Contribution {
  float p;   ///< weight of v
  float d_s; ///< gradient of q k^T
  float g;   ///< gradient of mod(s)
};
ATTNC_DEVICE Contribution contribution(const BackwardParams& p, const ModArgs& args, const QueryRow& q, int kv_idx,
                                       bool exists, bool masked, float row_sum) {
  const ForwardParams& f = p.forward;
  const Pair pair(f, args, q, kv_idx, exists, masked);
  if (!pair.lives) return {0.f, 0.f, 0.f};
  const float weight = pair.weight / row_sum, g = gradient_of_score(p, args, q, kv_idx, pair, weight);
  const Mod::Col col = Mod::col(args, q.head, q.b, q.h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
  const Coord at = {q.b, q.h, q.position, kv_idx};
  const float d_s = f.scale * Mod::d_score(args, q.head, q.row, col, at, pair.product, g); // SEAM(d_score)
  return {weight * pair.factor, d_s, g};
}

/// Writes the row's dQ. of(kv_idx, exists, masked) is the Contribution of an element, whose lane calls each(kv_idx,
/// contribution).
template <class ContributionOf, class Each>
ATTNC_DEVICE void write_d_q(const BackwardParams& p, const QueryRow& q, ContributionOf of, Each each) {
  const ForwardParams& f = p.forward;
  const int lane = threadIdx.x % 32;
  float d_q[kLaneColumns] = {}; // lane l: columns l, l + 32, ...
  const auto walk = walk_kv(f, q.b, q.h, q.q_idx);
  for (int i = 0; i < walk.count; ++i) {
    const Step step = walk.at(i);
    const int kv_idx = step.start + lane;
    const Contribution mine = of(kv_idx, kv_idx < f.kv_len, step.flags & kStepMasked);
    each(kv_idx, mine);
    for (int j = 0; j < min(kChunk, f.kv_len - step.start); ++j) {
      const float weight = __shfl_sync(0xffffffffu, mine.d_s, j);
      const Element* k = row_of(f.k, f.k_stride, q.b, q.h / f.group, step.start + j);
      for (int c = 0; c < kLaneColumns; ++c)
        if (lane + 32 * c < kHeadDimQk) d_q[c] += weight * to_float(k[lane + 32 * c]);
    }
  }
  if (!p.d_q) return; // only gradients of captures are wanted
  Element* out = (Element*)row_of(p.d_q, p.d_q_stride, q.b, q.h, q.q_idx);
  for (int c = 0; c < kLaneColumns; ++c)
    if (lane + 32 * c < kHeadDimQk) out[lane + 32 * c] = from_float<Element>(d_q[c]);
}

/// Sums of dK and dV of one row of K and V. Lane l has columns l, l + 32, ...
struct KvSums {
  float d_k[kLaneColumns] = {}, d_v[kLaneColumns] = {};

  /// Adds the contribution of the chunk of q's rows at `start`. `mine`: that of the lane's row.
  ATTNC_DEVICE void add(const BackwardParams& p, int b, int h, int start, Contribution mine) {
    const ForwardParams& f = p.forward;
    for (int j = 0; j < min(kChunk, f.q_len - start); ++j) {
      const float weight = __shfl_sync(0xffffffffu, mine.p, j), d_s = __shfl_sync(0xffffffffu, mine.d_s, j);
      const Element* q = row_of(f.q, f.q_stride, b, h, start + j);
      const Element* d_out = row_of(p.d_out, p.d_out_stride, b, h, start + j);
      for (int c = 0; c < kLaneColumns; ++c) {
        const int d = threadIdx.x % 32 + 32 * c;
        if (d < kHeadDimQk) d_k[c] += d_s * to_float(q[d]);
        if (d < kHeadDimV) d_v[c] += weight * to_float(d_out[d]);
      }
    }
  }

  /// Writes the sums, or adds them to the output's current values.
  template <bool Adds> ATTNC_DEVICE void store(const BackwardParams& p, int b, int kv_head, int kv_idx) const {
    Element* to_k = (Element*)row_of(p.d_k, p.d_k_stride, b, kv_head, kv_idx);
    Element* to_v = (Element*)row_of(p.d_v, p.d_v_stride, b, kv_head, kv_idx);
    for (int c = 0; c < kLaneColumns; ++c) {
      const int d = threadIdx.x % 32 + 32 * c;
      if (d < kHeadDimQk) to_k[d] = from_float<Element>(d_k[c] + (Adds ? to_float(to_k[d]) : 0.f));
      if (d < kHeadDimV) to_v[d] = from_float<Element>(d_v[c] + (Adds ? to_float(to_v[d]) : 0.f));
    }
  }
};

} // namespace attnc::pairs
