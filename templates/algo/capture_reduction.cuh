// Gradients of captures for a tile of Q rows that walks KV. Elements of attention that share an element of the capture
// (GradientReach) are added up first, before memory is touched. The sums of one CTA have a fixed order.
//
//   reach       accumulator                      memory traffic
//   Head        a register, over all steps       one add per tile
//   Row         a register per row, all steps    one add per row
//   Column      per step                         one add per column and step
//   Diagonal    per step                         one add per diagonal and step
//   Element     none                             one add per element; no atomic if one thread owns its slot
//
// If the round of a sum moves the offset, Head and Row accumulate per step only.
#pragma once

#include "attnc_mod.cuh"

#include "algo/apply_mod.cuh"
#include "algo/capture_sums.cuh"

namespace attnc {

/// Returns the sum over lanes l, l ^ 4, l ^ 8, ..., which share one t of the fragment.
ATTNC_DEVICE float sum_of_groups(float x) {
#pragma unroll
  for (int lanes = 4; lanes < 32; lanes *= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
  return x;
}

/// Sums along the diagonals of a warp's 16 rows. Lane (g, t) gives total[i]; its sum over t belongs to diagonal row -
/// column = 8 i + g - Columns.
///
/// Element (8 half + g, 8 n + 2 t + e) lies on diagonal 8 (half - n) + (g - 2 t - e). So a lane adds up its elements
/// with the same half - n and e, and passes the sum to the lane whose g is g - 2 t - e modulo 8.
template <int Columns> ATTNC_DEVICE void sum_diagonals(float (&total)[Columns / 8 + 2], const Fragment<1, Columns>& x) {
  constexpr int kGroups = Columns / 8;
  const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (float& sum : total) sum = 0.f;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int from = g + 2 * t + e; // the g whose sum belongs here; plus 8 if it wrapped around
    const int source = from % 8 * 4 + t;
#pragma unroll
    for (int i = 0; i <= kGroups; ++i) { // half - n is i + 1 - kGroups
      float sum = 0.f;
      if (i < kGroups) sum += x.at(0, kGroups - 1 - i, e);
      if (i > 0) sum += x.at(1, kGroups - i, e);
      sum = __shfl_sync(0xffffffffu, sum, source);
      total[i + 1] += from < 8 ? sum : 0.f;
      total[i] += from < 8 ? 0.f : sum;
    }
  }
#pragma unroll
  for (float& sum : total) sum = quad_sum(sum);
}

/// Reductions of a CTA whose warps own 16 rows each. All threads call all functions together.
template <int Columns, int Warps> class CaptureReduction {
public:
  using Scores = Fragment<1, Columns>;
  /// Floats of shared memory that the CTA lends.
  static constexpr int kScratch = Warps * (Columns + 16);

  /// `f`: as params_of() returns it for batch entry b.
  ATTNC_DEVICE CaptureReduction(const CaptureParams& p, const ForwardParams& f, const ModArgs& args,
                                const Place<1>& place, int b, int h, int q_start, float* scratch)
      : p(p), f(f), args(args), place(place), b(b), h(h), q_start(q_start), scratch(scratch) {
    for (auto& sums : kept) sums[0] = sums[1] = 0.f;
  }

  /// Adds a step. `products`: q k^T. `grads`: gradients of score_mod's results, 0 for elements that are masked or
  /// outside.
  ATTNC_DEVICE void add(Step step, Scores& products, Scores& grads) {
    Mod::gradients([&](auto gradient) { // SEAM(gradients)
      using Gradient = decltype(gradient);
      constexpr int kTurns = Gradient::kRoundMoves ? Gradient::kRounds : 1;
#pragma unroll 1
      for (int turn = 0; turn < kTurns; ++turn) {
        Scores values;
        at_each_score(products, f, args, place, step, OwnColumns{},
                      [&](float& product, const Mod::Row& row, const Mod::Col& col, Coord at, int r, int n, int e) {
                        const float grad = grads.at(r, n, e);
                        values.at(r, n, e) =
                            grad == 0.f ? 0.f : value<Gradient>(row, col, at, product * f.scale, grad, turn);
                      });
        reduce<Gradient>(step, values, turn);
      }
    });
  }

  /// Called after the last step.
  ATTNC_DEVICE void finish() {
    Mod::gradients([&](auto gradient) { // SEAM(gradients)
      using Gradient = decltype(gradient);
      if constexpr (Gradient::kReach == GradientReach::Head && !Gradient::kRoundMoves)
        add_of_head<Gradient>(kept[Gradient::kIndex][0], 0);
      if constexpr (Gradient::kReach == GradientReach::Row && !Gradient::kRoundMoves)
        add_of_rows<Gradient>(kept[Gradient::kIndex], 0);
    });
  }

private:
  /// Returns the value of one round, or the sum over all rounds if these share one offset.
  template <class Gradient>
  ATTNC_DEVICE float value(const Mod::Row& row, const Mod::Col& col, Coord at, float score, float grad,
                           int turn) const {
    if constexpr (Gradient::kRoundMoves || Gradient::kRounds == 1) {
      return Gradient::value(args, place.head, row, col, at, score, grad, turn);
    } else {
      float sum = 0.f;
#pragma unroll 1
      for (int round = 0; round < Gradient::kRounds; ++round)
        sum += Gradient::value(args, place.head, row, col, at, score, grad, round);
      return sum;
    }
  }

  template <class Gradient> ATTNC_DEVICE const CaptureSum& sum_of() const { return p.sums[Gradient::kCapture]; }

  template <class Gradient> ATTNC_DEVICE void reduce(Step step, Scores& values, int turn) {
    if constexpr (Gradient::kReach == GradientReach::Head || Gradient::kReach == GradientReach::Row) {
      float sums[2] = {0.f, 0.f};
      values.for_each([&](float& value, int r) { sums[r] += value; });
      if constexpr (Gradient::kReach == GradientReach::Head) sums[0] += sums[1];
      if constexpr (Gradient::kRoundMoves) {
        if constexpr (Gradient::kReach == GradientReach::Head)
          add_of_head<Gradient>(sums[0], turn);
        else
          add_of_rows<Gradient>(sums, turn);
      } else {
        kept[Gradient::kIndex][0] += sums[0];
        kept[Gradient::kIndex][1] += sums[1];
      }
    } else if constexpr (Gradient::kReach == GradientReach::Column) {
      add_of_columns<Gradient>(step, values, turn);
    } else if constexpr (Gradient::kReach == GradientReach::Diagonal) {
      add_of_diagonals<Gradient>(step, values, turn);
    } else {
      at_each_score(values, f, args, place, step, OwnColumns{},
                    [&](float& value, const Mod::Row& row, const Mod::Col& col, Coord at) {
                      if (value != 0.f)
                        add_to(sum_of<Gradient>(), Gradient::offset(args, place.head, row, col, at, turn), value);
                    });
    }
  }

  template <class Gradient> ATTNC_DEVICE void add_of_head(float sum, int turn) {
    sum = sum_of_groups(quad_sum(sum));
    __syncthreads();
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float total = 0.f;
    for (int warp = 0; warp < Warps; ++warp) total += scratch[warp];
    add_to(sum_of<Gradient>(), Gradient::offset(args, place.head, Mod::Row{}, Mod::Col{}, {b, h, 0, 0}, turn), total);
  }

  template <class Gradient> ATTNC_DEVICE void add_of_rows(float (&sums)[2], int turn) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float total = quad_sum(sums[r]);
      const int q_idx = place.q_first + place.offset(r);
      if (threadIdx.x % 4 == 0 && q_idx < f.q_len) {
        const int at = position_of<Mod>(args, place.head, q_idx);
        add_to(sum_of<Gradient>(), Gradient::offset(args, place.head, place.row[r], Mod::Col{}, {b, h, at, 0}, turn),
               total);
      }
    }
  }

  template <class Gradient> ATTNC_DEVICE void add_of_columns(Step step, const Scores& values, int turn) {
    __syncthreads(); // scratch is free
#pragma unroll
    for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float sum = sum_of_groups(values.at(0, n, e) + values.at(1, n, e));
        if (threadIdx.x % 32 < 4) scratch[threadIdx.x / 32 * Columns + Scores::column(n, e)] = sum;
      }
    __syncthreads();
    for (int column = threadIdx.x; column < Columns; column += 32 * Warps) {
      const int kv_idx = step.start + column;
      if (kv_idx >= f.kv_len) continue;
      float total = 0.f;
#pragma unroll
      for (int warp = 0; warp < Warps; ++warp) total += scratch[warp * Columns + column];
      const Mod::Col col = Mod::col(args, place.head, b, h, kv_idx, float(kv_idx - place.origin), 0.f); // SEAM(col)
      add_to(sum_of<Gradient>(), Gradient::offset(args, place.head, Mod::Row{}, col, {b, h, 0, kv_idx}, turn), total);
    }
  }

  template <class Gradient> ATTNC_DEVICE void add_of_diagonals(Step step, const Scores& values, int turn) {
    constexpr int kOfWarp = Columns + 16; // diagonals of a warp, from row - column = -Columns on
    float sums[Columns / 8 + 2];
    sum_diagonals(sums, values);
    __syncthreads(); // scratch is free
    if (threadIdx.x % 4 == 0)
#pragma unroll
      for (int i = 0; i < Columns / 8 + 2; ++i)
        scratch[threadIdx.x / 32 * kOfWarp + 8 * i + threadIdx.x % 32 / 4] = sums[i];
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * Warps + Columns; i += 32 * Warps) {
      const int row = max(i - Columns, 0), column = max(Columns - i, 0); // the diagonal's first element
      const int q_idx = q_start + row, kv_idx = step.start + column;
      if (q_idx >= f.q_len || kv_idx >= f.kv_len) continue;
      float total = 0.f;
#pragma unroll
      for (int warp = 0; warp < Warps; ++warp) {
        const int at = i - 16 * warp;
        if (at >= 0 && at < kOfWarp) total += scratch[warp * kOfWarp + at];
      }
      const int position = position_of<Mod>(args, place.head, q_idx);
      const Mod::Row row_of = Mod::row(args, place.head, b, h, position, float(position - place.origin)); // SEAM(row)
      const Mod::Col col = Mod::col(args, place.head, b, h, kv_idx, float(kv_idx - place.origin), 0.f);   // SEAM(col)
      add_to(sum_of<Gradient>(), Gradient::offset(args, place.head, row_of, col, {b, h, position, kv_idx}, turn),
             total);
    }
  }

  const CaptureParams& p;
  const ForwardParams& f;
  const ModArgs& args;
  const Place<1>& place;
  const int b, h, q_start;
  float* const scratch;
  float kept[Mod::kGradients > 0 ? Mod::kGradients : 1][2]; // by Gradient::kIndex
};

} // namespace attnc
