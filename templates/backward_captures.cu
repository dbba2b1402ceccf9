// Gradients of captured tensors and scalars, with mma.sync and cp.async, for sm_80 and later.
//
//   P = exp(mod(scale Q K^T) - lse),  G = P (dO V^T - delta): the gradient of score_mod's result, 0 where masked; for
//   outputs of the mod see algo/output_gradients.cuh
//   d_capture[offset] += value(scale Q K^T, G)    for each place where the mod reads a capture
//
// A CTA owns kBlockM rows of Q, 16 per warp, and walks KV in steps of kBlockN columns, as the forward kernel does.
// Elements that share an element of a capture are added up first (algo/capture_reduction.cuh). All warps have the same
// role.
//
//   shared memory     bytes                        lifetime
//   QPart, OPart      kBlockM rows of Q, of dO     a batch entry
//   KPart, VPart      kBlockN rows of K, of V      a step
//   scratch (static)  kScratch fp32                a reduction
//
//   barrier                    when                     what it guarantees
//   __syncthreads              begin of a batch entry   Q and dO of the entry before are free
//   __syncthreads              begin of a step          the tiles of the step before are free
//   cp.async, __syncthreads    before its products      the tiles of this step are ready
//   __syncthreads              around writes to         scratch is free; scratch is ready
//                              scratch
//
// Grid: q tiles * q_heads * batch, in one dimension. With loops_batches q tiles * q_heads: a CTA takes all batch
// entries in turn, so that adds to elements of its own [q, kv] need no atomics. Threads: 32 kWarps, kBlockM is 16
// kWarps; kSharedBytes of dynamic shared memory. Runs after backward_delta.cu. The sums are 0, or what other kernels
// have added.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/apply_mod.cuh"
#include "algo/backward_tiles_mma.cuh"
#include "algo/capture_reduction.cuh"
#include "algo/gradients.cuh"
#include "algo/kv_walk.cuh"

namespace attnc::sm80 {

static_assert(kBlockM == 16 * kWarps, "a warp owns 16 rows");

using Reduction = CaptureReduction<kBlockN, kWarps>;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_backward_captures(const __grid_constant__ CaptureParams p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  __shared__ float scratch[Reduction::kScratch];
  const Strides& d_out_stride = p.backward.d_out_stride;
  const unsigned shared = ptx::shared_address(dynamic_shared);
  const Tiles tiles(shared);
  using Scores = Reduction::Scores;

  const auto [b_first, h, q_start] = q_tile_from_end<Mod, kBlockM>(p.backward.forward, args, blockIdx.x);
  const BackwardParams& backward = params_of<Mod>(p.backward, args, b_first);
  const ForwardParams& f = backward.forward;
  if (!has_rows<Mod>(q_start, f.q_len)) return;
  const int b_end = p.loops_batches ? f.batch : b_first + 1;
  const int warp_row = int(threadIdx.x) / 32 * 16;
#pragma unroll 1
  for (int b = b_first; b < b_end; ++b) {
    const Element* q = (const Element*)f.q + b * f.q_stride.batch + h * f.q_stride.head;
    const Element* d_out = (const Element*)backward.d_out + b * d_out_stride.batch + h * d_out_stride.head;
    const Element* k = (const Element*)f.k + b * f.k_stride.batch + h / f.group * f.k_stride.head;
    const Element* v = (const Element*)f.v + b * f.v_stride.batch + h / f.group * f.v_stride.head;
    __syncthreads();
    copy_in<kThreads>(tiles.q, q, f.q_stride.row, q_start, f.q_len, f.vectors);
    copy_in<kThreads>(tiles.o, d_out, d_out_stride.row, q_start, f.q_len, f.vectors);
    ptx::cp_async_commit_group();

    const Place<1> place(f, args, b, h, q_start, warp_row + Scores::row(0));
    float lse[2], bias[2], delta[2];
    bool large[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const long long index = row_of_all(f, b, h, place.q_idx(f, r));
      const bool inside = place.q_first + place.offset(r) < f.q_len; // rows past the end repeat the last, add nothing
      lse[r] = inside ? f.lse[index] : negative_infinity();
      large[r] = is_large(lse[r]);
      bias[r] = large[r] ? 0.f : weight_bias(lse[r], Mod::row_shift(args, place.head, place.row[r])); // SEAM(row_shift)
      delta[r] = backward.delta[index];
    }

    Reduction reduction(p, f, args, place, b, h, q_start, scratch);
    const auto walk = walk_kv<Mod, kBlockN, kBlockSparse>(f, args, b, h, q_start, min(q_start + kBlockM, f.q_len));
#pragma unroll 1
    for (int i = 0; i < walk.count; ++i) {
      const Step step = walk.at(i);
      Scores s, g;
      tiles.multiply(s, g, f, k, v, step.start, warp_row);
      Scores products = s;
      StepBias<Mod::Exponents, 2> step_bias(bias);
      apply_mod(s, f, args, place, step, OwnColumns{}, step_bias);
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (large[r]) {
          const float row_sum = backward.row_sums[row_of_all(f, b, h, place.q_idx(f, r))];
          const float exponent = -ptx::lg2(row_sum) * ptx::rcp(place.form(r).weight_factor()),
                      shift = place.row_shift(args, r);
          s.for_each_of_row(r,
                            [&](float& x) { x = step_bias.without_reference(x, r, place, shift, lse[r]) + exponent; });
          step_bias.drop(r);
        }
      step_bias.catch_up(place);
      if constexpr (kHasProbMod<Mod>)
        scale_weights<Mod>(g, args, RowSite<Mod, 1, OwnColumns>{f, args, place, step, {}});
      if constexpr (kHasOutputGradients<Mod>)
        at_each_score(products, f, args, place, step, OwnColumns{},
                      [&](float&, const Mod::Row& row, const Mod::Col& col, Coord at, int r, int n, int e) {
                        const float weight = bias[r] == negative_infinity()
                                                 ? 0.f
                                                 : ptx::ex2(step_bias.exponent(s.at(r, n, e), r, place));
                        g.at(r, n, e) += output_gradient<Mod>(args, place.head, row, col, at, weight);
                      });
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float weight =
                bias[r] == negative_infinity() ? 0.f : ptx::ex2(step_bias.exponent(s.at(r, n, e), r, place));
            g.at(r, n, e) = weight == 0.f ? 0.f : weight * (g.at(r, n, e) - delta[r]);
          }
      reduction.add(step, products, g);
    }
    reduction.finish();
    ptx::cp_async_wait_group<0>(); // for a tile without steps
  }
}

} // namespace attnc::sm80
