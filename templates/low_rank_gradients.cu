// Divides the gradients of the wider q and k (low_rank.cu) among q, k and the captures in the factors of the low-rank
// term, behind a backward kernel of the wider head dim:
//
//   S = W [q, factor_times q_factor] [k, kv_factor]^T,  where W own_times is the scale and W factor_times 1
//   dQ = own_times dQ'           for the first columns of dQ' = W dS [k, kv_factor]
//   dK = own_times dK'           for those of dK' = W dS^T [q, factor_times q_factor]
//   d_q_factor = factor_times sum of dQ' over the columns of the pieces of kv_factor
//   d_kv_factor = sum of dK' over those of the pieces of q_factor
//   d_capture[offset] += value(d_factor)   for each place where a factor reads a capture
//
// The pieces of a factor add up to it, so the columns where the other side has its first piece have its gradient. Heads
// and batch entries that have copies of one head of k and v are added up in fp32.
//
// All threads have one role. No shared memory, no barriers. A thread owns 8 columns of a row, or a round of a row; for
// factors that do not depend on the head or the batch entry, it takes all of these in turn, and so is the only one to
// add to an element that no other row or round reads.
//
// Grid: tiles of kBlockM rows of q * q_heads * batch, then of k * kv_heads * kv_batch, then of the factors of q, then
// of those of k, in one dimension; for a ragged batch slots in place of tiles * batch. If neither d_q nor d_k is given,
// the first two have no tiles; without kSumsFactors, the others. Threads: 32 kWarps.
//
// Config: that of low_rank.cu; kSumsFactors; kDeterministic.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/capture_sums.cuh"
#include "algo/low_rank_columns.cuh"
#include "algo/sequence.cuh"
#include "tile/element.cuh"

namespace attnc::low_rank {

/// Copies of one head, of which the gradients add up.
struct Copies {
  const Element* first; // row 0
  int batches, heads;
  long long batch_stride, head_stride;
};

/// Writes columns of the rows: the sum of all copies, times a factor.
template <int From, int To>
ATTNC_DEVICE void add_up_rows(Element* to, long long stride, const Copies& copies, const Place& at, bool vectors,
                              float times = 1.f) {
  static_assert(kChunk == 8 && From % kChunk == 0 && To % kChunk == 0);
  constexpr int kPerRow = To / kChunk;
  for (int i = threadIdx.x; i < (at.end - at.first) * kPerRow; i += kThreads) {
    const int row = at.first + i / kPerRow, column = i % kPerRow * kChunk;
    float sum[kChunk] = {};
    for (int b = 0; b < copies.batches; ++b)
      for (int h = 0; h < copies.heads; ++h) {
        __align__(16) Element part[kChunk];
        *(uint4*)part = *(const uint4*)(copies.first + b * copies.batch_stride + h * copies.head_stride +
                                        (long long)row * From + column);
#pragma unroll
        for (int e = 0; e < kChunk; ++e) sum[e] += to_float(part[e]);
      }
    __align__(16) Element all[kChunk];
#pragma unroll
    for (int e = 0; e < kChunk; ++e) all[e] = from_float<Element>(times == 1.f ? sum[e] : sum[e] * times);
    Element* const out = to + row * stride + column;
    if (vectors) {
      *(uint4*)out = *(const uint4*)all;
    } else {
#pragma unroll
      for (int e = 0; e < kChunk; ++e) out[e] = all[e];
    }
  }
}

/// Returns the parameters of batch entry b only. K and V of a padded batch do not end with the sequence.
template <class Args> ATTNC_DEVICE decltype(auto) own_rows(const BackwardParams& p, const Args& args, int b) {
  if constexpr (kIsRagged<Mod>)
    return params_of<Mod>(p, args, b);
  else
    return (p);
}

ATTNC_DEVICE void narrow_q(const LowRankGradientParams& p, const ModArgs& args, const Place& at) {
  const BackwardParams& b = own_rows(p.backward, args, at.b);
  const Copies copies = {(const Element*)p.d_q + first_q_row(p.backward.forward, args, at.b, at.h) * kWideHeadDim, 1,
                         1};
  add_up_rows<kWideHeadDim, kHeadDimQk>((Element*)b.d_q + at.b * b.d_q_stride.batch + at.h * b.d_q_stride.head,
                                        b.d_q_stride.row, copies, at, b.forward.vectors, p.own_times);
}

/// `at`: of k and v as they are given.
ATTNC_DEVICE void narrow_k(const LowRankGradientParams& p, const ModArgs& args, const Place& at) {
  const BackwardParams& b = own_rows(p.backward, args, at.b);
  const int heads = p.k_heads / b.forward.kv_heads, batches = kIsRagged<Mod> ? 1 : p.k_batch / b.kv_batch;
  const long long first = first_k_row(p.backward.forward, args, at.b, at.h * heads, p.k_heads),
                  rows = kIsRagged<Mod> ? p.backward.forward.rows.kv : b.forward.kv_len;
  const auto copies = [&](const void* of, int columns) -> Copies {
    return {(const Element*)of + first * columns, batches, heads, rows * p.k_heads * columns, rows * columns};
  };
  add_up_rows<kWideHeadDim, kHeadDimQk>((Element*)b.d_k + at.b * b.d_k_stride.batch + at.h * b.d_k_stride.head,
                                        b.d_k_stride.row, copies(p.d_k, kWideHeadDim), at, b.forward.vectors,
                                        p.own_times);
  if (p.d_v)
    add_up_rows<kHeadDimV, kHeadDimV>((Element*)b.d_v + at.b * b.d_v_stride.batch + at.h * b.d_v_stride.head,
                                      b.d_v_stride.row, copies(p.d_v, kHeadDimV), at, b.forward.vectors);
}

/// What a thread adds to a capture. Adds to one element, one after another, are one.
class Adds {
public:
  ATTNC_DEVICE explicit Adds(const CaptureSum& sum) : sum(sum) {}
  ATTNC_DEVICE void add(long long to, float x) {
    if (to != element) finish();
    element = to;
    total += x;
  }
  ATTNC_DEVICE void finish() {
    if (element >= 0) add_to(sum, element, total);
    total = 0.f;
  }

private:
  const CaptureSum& sum;
  long long element = -1;
  float total = 0.f;
};

/// Returns the gradient of the factor of q in a round; of k. `row`: of the wider gradient.
ATTNC_DEVICE float of_q_factor(const Element* row, int round) {
  float sum = 0.f;
  visit_products([&](int c, int i, int) {
    if (i == 0) sum += to_float(row[kHeadDimQk + c * kRank + round]);
  });
  return sum;
}
ATTNC_DEVICE float of_kv_factor(const Element* row, int round) {
  float sum = 0.f;
  visit_products([&](int c, int, int j) {
    if (j == 0) sum += to_float(row[kHeadDimQk + c * kRank + round]);
  });
  return sum;
}

/// Adds the gradients of captures in factors of the rows. `at`: the first batch entry and head of the thread.
template <class M>
ATTNC_DEVICE void add_q_factors(const LowRankGradientParams& p, const ModArgs& args, const Place& at) {
  const ForwardParams& f = p.backward.forward;
  for (int i = threadIdx.x; i < (at.end - at.first) * kRank; i += kThreads) {
    const int index = at.first + i / kRank, round = i % kRank;
    M::gradients([&](auto gradient) { // SEAM(gradients)
      using Gradient = decltype(gradient);
      if constexpr (Gradient::kReach == GradientReach::Row) {
        Adds adds(p.sums[Gradient::kCapture]);
        for (int b = at.b; b < at.b + p.q_batches; ++b)
          for (int h = at.h; h < at.h + p.q_heads; ++h) {
            const auto head = M::head(args, b, h); // SEAM(head)
            const int position = position_of<M>(args, head, index);
            const auto row = M::row(args, head, b, h, position, float(position)); // SEAM(row)
            const Coord coord = {b, h, position, 0};
            const Element* of = (const Element*)p.d_q + (first_q_row(f, args, b, h) + index) * kWideHeadDim;
            const float grad = p.factor_times * of_q_factor(of, round);
            adds.add(Gradient::offset(args, head, row, typename M::Col{}, coord, round),
                     Gradient::value(args, head, row, typename M::Col{}, coord, 0.f, grad, round));
          }
        adds.finish();
      }
    });
  }
}

template <class M>
ATTNC_DEVICE void add_kv_factors(const LowRankGradientParams& p, const ModArgs& args, const Place& at) {
  const ForwardParams& f = p.backward.forward;
  const int shared_by = f.q_heads / p.k_heads; // query heads
  for (int i = threadIdx.x; i < (at.end - at.first) * kRank; i += kThreads) {
    const int index = at.first + i / kRank, round = i % kRank;
    M::gradients([&](auto gradient) { // SEAM(gradients)
      using Gradient = decltype(gradient);
      if constexpr (Gradient::kReach == GradientReach::Column) {
        Adds adds(p.sums[Gradient::kCapture]);
        for (int b = at.b; b < at.b + p.kv_batches; ++b)
          for (int kv_head = at.h; kv_head < at.h + p.kv_heads; ++kv_head) {
            const int h = kv_head * shared_by;
            const auto head = M::head(args, b, h); // SEAM(head)
            if (kIsPadded<M> && index >= kv_length<M>(f, args, head)) continue;
            const auto col = M::col(args, head, b, h, index, float(index), 0.f); // SEAM(col)
            const Coord coord = {b, h, 0, index};
            const Element* of =
                (const Element*)p.d_k + (first_k_row(f, args, b, kv_head, p.k_heads) + index) * kWideHeadDim;
            const float grad = of_kv_factor(of, round);
            adds.add(Gradient::offset(args, head, typename M::Row{}, col, coord, round),
                     Gradient::value(args, head, typename M::Row{}, col, coord, 0.f, grad, round));
          }
        adds.finish();
      }
    });
  }
}

/// Returns a tile whose threads take `together` heads each.
ATTNC_DEVICE Place first_of(Place at, int together) {
  at.h *= together;
  return at;
}

extern "C" __global__ void __launch_bounds__(32 * kWarps, 2)
    attnc_low_rank_gradients(const __grid_constant__ LowRankGradientParams p, const __grid_constant__ ModArgs args) {
  const ForwardParams& f = p.backward.forward;
  const bool wanted = p.backward.d_q || p.backward.d_k; // an empty tensor may be null as well
  const int of_q = wanted ? q_tiles(f, f.batch) * f.q_heads : 0;
  const int of_k = wanted ? k_tiles(f, p.backward.kv_batch) * f.kv_heads : 0;
  const int tile = int(blockIdx.x);
  if (tile < of_q) {
    narrow_q(p, args, q_place(f, args, tile, f.q_heads));
  } else if (tile < of_q + of_k) {
    narrow_k(p, args, k_place(f, args, tile - of_q, f.kv_heads));
  } else if constexpr (kSumsFactors) {
    const int q_heads = f.q_heads / p.q_heads, of_factors = q_tiles(f, f.batch / p.q_batches) * q_heads;
    const int rest = tile - of_q - of_k;
    if (rest < of_factors)
      add_q_factors<Mod>(p, args, first_of(q_place(f, args, rest, q_heads), p.q_heads));
    else
      add_kv_factors<Mod>(p, args, first_of(k_place(f, args, rest - of_factors, p.k_heads / p.kv_heads), p.kv_heads));
  }
}

} // namespace attnc::low_rank
