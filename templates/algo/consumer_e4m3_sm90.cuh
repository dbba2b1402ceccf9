// Consumers of forward_sm90.cu for Q, K and V of e4m3.
//
// The accumulator of wgmma keeps some 14 bits of a sum of products of e4m3: each product is cut off at the last bit of
// the sum. So sums over thousands of keys, of one sign, fall short by some percent, and in the end stand still. Here
// the accumulator takes the products of one step, and O is a sum in fp32, as in DeepSeek-V3 (arXiv:2412.19437, section
// 3.3.2) and SageAttention2 (arXiv:2411.10958):
//
//   S = Q K^T,   P = weights of S, rounded to e4m3,   part = P V,   O += part
//
// S and the parts share registers: neither lives while the other does. So a warpgroup has no product in flight during
// its softmax; those of the other warpgroups overlap it.
#pragma once

#include "algo/consumer_parts_sm90.cuh"
#include "algo/row_scales.cuh"

namespace attnc::sm90 {

/// A warpgroup that computes with elements E of 8 bits.
template <class E> struct ConsumerE4m3 : ConsumerParts {
  using Weights = PackedFragment<E, 1, kBlockN>;
  /// Columns of O that are one product. Two products are in flight.
  static constexpr int kPart = out_part_columns(Out::kColumns, kWarps), kParts = Out::kColumns / kPart;
  using Part = Fragment<1, kPart>;
  using Turned = SwizzledTile<E, kPart, kBlockN>; // rows of a tile of V
  // NOTE: with E, else they concern kernels of 16 bits, which do not instantiate this.
  static_assert(kRowScales || Scales::kRowsOfScale % (kBlockN * sizeof(E)) == 0, "a step lies in a block of factors");
  static_assert(kParts == 1 || kBlockN * sizeof(E) <= 128, "a part is rows of one slab");

  static constexpr float kSmallestUnit = 1.17549435e-38f; // 2^-126: its reciprocal is finite

  ATTNC_DEVICE void start_part(Part& part, const Weights& weights, int i) const {
    wgmma::touch(part);
    ptx::wgmma_fence();
    wgmma::start_gemm(part, weights, transposed(Turned{v.tile().from_row(i * kPart).base}), 0);
    ptx::wgmma_commit_group();
  }

  /// Adds P V to O, with the V that is current.
  ATTNC_DEVICE void add_out(Out& o, const Weights& weights) const {
    Part part[2];
    start_part(part[0], weights, 0);
    if (kParts > 1) start_part(part[1], weights, 1);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (i + 1 < kParts)
        ptx::wgmma_wait_group<1>();
      else
        ptx::wgmma_wait_group<0>();
      Part& done = part[i % 2];
      wgmma::touch(done);
#pragma unroll
      for (int n = 0; n < Part::kGroups; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) o.x[0][i * Part::kGroups + n][e] += done.x[0][n][e];
      if (i + 2 < kParts) start_part(done, weights, i + 2);
    }
  }

  /// A tile of Q: the steps of its rows. M: the mod, or the variant of its sequence.
  template <class M> ATTNC_DEVICE void run_tile(const Work& work) {
    const int thread = ptx::opaque(threadIdx.x); // NOTE: opaque, else values derived from it take a register
    const int row = row_of_scale<kBlockM>(work.q_start, 64 * group, p.base.q_len);
    const Place<1, M> place(p.base, args, work.b, work.h, work.q_start, (thread - 128) / 32 * 16 + thread % 32 / 4,
                            p.base.scale *
                                scale_of_products<kRowScales>(p, work.b, work.h, work.h / p.base.group, row));
    RowScalesOfQ<kRowScales> q_scales;
    if constexpr (kRowScales) q_scales.load<Mod>(p, p.base, args, work.b, work.h, place.q_first);
    RowSoftmax softmax = {};
    float unit = 1.f; // of O: the factor of the last step's V
    Weights weights;
    Out o;
    o.fill(0.f);
    Step step;
    scheduler_barrier_sync();
#pragma unroll 1
    do {
      Scores s;
      k.wait();
      wgmma::touch(s);
      ptx::wgmma_fence();
      wgmma::start_gemm(s, q.tile().from_row(64 * group), transposed(k.tile()), 0); // S = Q K^T
      ptx::wgmma_commit_group();
      scheduler_barrier_arrive();
      StepScales scales;
      step = read_step(k, scales);
      wgmma::wait<0>(s);
      if (!(M::kSharesColumns || kRowScales)) k.release();
      if (kQStages == 1) q.release(step.flags & kStepLast);
      if constexpr (kRowScales)
        q_scales.multiply(s, row_scales_of(shared, k.slot));
      else if (__any_sync(0xffffffffu, scales.k != 1.f)) [[unlikely]]
        s.for_each([&](float& element, int) { element *= scales.k; });
      StepBias<typename M::Exponents, 2> bias(softmax, place);
      apply_mod(s, p.base, args, place, step, this->template columns<M>(), bias);
      if (M::kSharesColumns && !kRowScales) k.release();
      Rescaling<2> rescaling;
      follow_maxima<E>(s, softmax, bias, place, args, is_exact(step), rescaling);
      to_exponents(s, bias, place);
      WeightSums<2> sums(softmax);
      to_weights<0, kBlockN / 8>(s, sums);
      sums.store(softmax);
      if constexpr (kRowScales) {
        multiply_columns(s, row_scales_of(shared, k.slot) + kRowScalesBytes<kBlockN> / 2);
        k.release();
      }
      weights.pack(s);
      k.advance();

      if (__any_sync(0xffffffffu, scales.v != unit)) [[unlikely]] {
        const bool is_zero = fabsf(scales.v) < kSmallestUnit; // then the step adds nothing, in any unit
        const float by = is_zero ? 1.f : __fdividef(unit, scales.v);
        o.for_each([&](float& element, int) { element *= by; });
        if (is_zero) weights = {};
        if (!is_zero) unit = scales.v;
      }
      if (rescaling.is_due) [[unlikely]]
        o.scale_rows(rescaling.factors);
      v.wait();
      scheduler_barrier_sync();
      add_out(o, weights);
      v.release();
      v.advance();
    } while (!(step.flags & kStepLast));
    scheduler_barrier_arrive();
    q.advance();
    store(o, softmax, place, unit);
  }

  ATTNC_DEVICE void run() {
    if (group + 1 == kConsumers) scheduler_barrier_arrive();
    while (true) {
      const Work work = await_work();
      if (!work.valid) break;
      if constexpr (kChooses<Mod>)
        with_variant<Mod>(variant_of<Mod>(args, work.b, work.h),
                          [&](auto m) { this->template run_tile<decltype(m)>(work); });
      else
        run_tile<Mod>(work);
    }
  }
};

} // namespace attnc::sm90
