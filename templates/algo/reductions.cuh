// Outputs that a mod declares: sums and maxima of a value over live scores. A score of -inf is not live.
#pragma once

#include "attnc_mod.cuh"

#include "algo/exponents.cuh"
#include "algo/q_walk.cuh"
#include "algo/sequence.cuh"
#include "algo/softmax.cuh"
#include "algo/step_walk.cuh"
#include "mod/contract.cuh"
#include "params_reductions.cuh"

namespace attnc {

/// Returns the larger number; NaN if one is.
ATTNC_DEVICE float larger_or_nan(float x, float y) { return x > y || x != x ? x : y; }

/// A weight and its logarithm, which is known before it: mods that take it need no accurate logarithm, of 45
/// instructions.
struct Weight {
  float value, log;
  ATTNC_DEVICE operator float() const { return value; }
};
ATTNC_DEVICE float log_of(Weight weight) { return weight.log; }
ATTNC_DEVICE float log2_of(Weight weight) { return weight.log * kLog2e; }

/// What a kernel has reduced to a row or a column, for each reduction of its form.
template <bool OfColumns> struct Reduced {
  float of[Mod::kReductions];

  ATTNC_DEVICE Reduced() {
    each([&](auto r) { of[r.kIndex] = none<decltype(r)>(); });
  }

  /// Calls visit(r) for the reductions of the form.
  template <class Visit> ATTNC_DEVICE static void each(Visit visit) {
    Mod::reductions([&](auto r) { // SEAM(reductions)
      if constexpr (r.kOfColumns == OfColumns) visit(r);
    });
  }
  template <class R> ATTNC_DEVICE static constexpr float none() { return R::kIsMax ? negative_infinity() : 0.f; }
  template <class R> ATTNC_DEVICE static float joined(float x, float y) {
    return R::kIsMax ? larger_or_nan(x, y) : x + y;
  }

  /// Adds the value at a score, if it lives. `score`: of score_mod; `prob`: its weight.
  ATTNC_DEVICE void add(bool lives, const ModArgs& args, const Mod::Head& head, const Mod::Row& row,
                        const Mod::Col& col, Coord at, float score, Weight prob) {
    each([&](auto r) {
      float& x = of[r.kIndex];
      x = lives ? joined<decltype(r)>(x, r.value(args, head, row, col, at, score, prob)) : x;
    });
  }

  /// Joins those of lanes whose index differs in bits below `Lanes`, from `First` on.
  template <int First, int Lanes> ATTNC_DEVICE void join_lanes() {
    each([&](auto r) {
      float& x = of[r.kIndex];
#pragma unroll
      for (int distance = Lanes / 2; distance >= First; distance /= 2)
        x = joined<decltype(r)>(x, __shfl_xor_sync(0xffffffffu, x, distance));
    });
  }

  /// Writes those that are wanted.
  ATTNC_DEVICE void store(float* const (&out)[kMaxReductions], long long index) const {
    each([&](auto r) {
      if (out[r.kIndex]) out[r.kIndex][index] = of[r.kIndex];
    });
  }
};

/// Whether weights follow from products without a call.
constexpr bool kIsProduct = !Mod::Exponents::kCallsScore;

/// Returns what add_score() is told of a row: its lse, or if kIsProduct the term of exponents of two. Rows without live
/// columns then have weights of 0.
ATTNC_DEVICE float reference_of(float lse) {
  if (!kIsProduct) return lse;
  return lse == negative_infinity() ? lse : -lse * kLog2e;
}

/// Adds a score, if it exists and lives. `x`: the product q k^T; `masked`: whether mask_mod is to be asked.
// NOTE: no branches: with them, the exponentials of a tile wait for one another.
template <bool OfColumns>
ATTNC_DEVICE void add_score(Reduced<OfColumns>& to, const ModArgs& args, const Mod::Head& head, const Mod::Row& row,
                            const Mod::Col& col, Coord at, float x, float scale, float reference, bool exists,
                            bool masked) {
  bool lives = exists & (!masked | Mod::mask(args, head, row, col, at)); // SEAM(mask)
  float score = x * scale;
  if constexpr (!kIsProduct) score = Mod::score(args, head, row, col, at, score); // SEAM(score)
  const float difference = score - reference;                                     // from lse
  const float exponent = kIsProduct ? x * (scale * kLog2e) + reference : difference * kLog2e;
  // A score of -inf adds 0 to sums of weights, so these do not ask.
  if (!(kIsProduct && Mod::kSumsWeights[OfColumns])) lives &= (kIsProduct ? exponent : score) != negative_infinity();
  to.add(lives, args, head, row, col, at, score, {ptx::ex2(exponent), kIsProduct ? exponent * kLn2 : difference});
}

/// What the lists of rows say of a block.
enum class Listed { Empty, Partial, Full };

/// Returns it, for the block of a row of q and a position of k. Called by whole warps; all lanes get the same.
ATTNC_DEVICE Listed listed_at(const ForwardParams& p, int b, int h, int q_idx, int kv_idx) {
  if constexpr (kBlockSparse) {
    const BlockLists& lists = lists_of<Mod>(p);
    const BlockRow row(lists, b, h, q_idx / lists.q_block, lists.kv_block);
    const auto has = [&](const int* index, int count) {
      bool found = false;
      for (int i = threadIdx.x % 32; i < count; i += 32) found |= index[i] == kv_idx / lists.kv_block;
      return __any_sync(0xffffffffu, found);
    };
    if (has(row.partial_index, row.partial_count)) return Listed::Partial;
    return has(row.full_index, row.full_count) ? Listed::Full : Listed::Empty;
  } else {
    return Listed::Partial;
  }
}

/// Returns the steps of `Size` rows of Q that may see columns [kv_start, kv_start + Columns). With lists they are all:
/// those of columns do not exist in forward passes.
template <int Size, int Columns>
ATTNC_DEVICE auto walk_rows(const ForwardParams& p, const ModArgs& args, const Mod::Head& head, int b, int h,
                            int kv_start) {
  if constexpr (Mod::kHasBounds && !kBlockSparse) {
    const int end = min(kv_start + Columns, p.kv_len);
    return StepWalk<Size, StepSource::Bounds, Mod::kHasMaskMod>(
        p.q_len, q_bounds<Mod>(args, head, b, h, kv_start, end, p.q_len));
  } else {
    return StepWalk<Size, StepSource::All, Mod::kHasMaskMod>(p.q_len);
  }
}

} // namespace attnc
