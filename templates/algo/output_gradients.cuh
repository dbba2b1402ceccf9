// Gradients of outputs of the mod in kernels with tensor cores, of outputs that read weights and no scores:
//
//   dS = mod'(s) P (dP + prob_gradient(P) - delta)
//
// where delta has the row's sum of P prob_gradient(P), which a stage of reductions adds.
#pragma once

#include "attnc_mod.cuh"

#include "algo/softmax.cuh"
#include "algo/step_walk.cuh"
#include "mod/contract.cuh"
#include "params.cuh"
#include "ptx/math.cuh"
#include "tile/fragment.cuh"

namespace attnc {

/// Whether outputs of the mod have gradients.
template <class M> constexpr bool kHasOutputGradients = requires { M::kHasOutputGradients; };

/// A weight whose logarithm is the hardware's: an accurate one takes 45 instructions.
struct QuickWeight {
  float value;
  ATTNC_DEVICE operator float() const { return value; }
};
ATTNC_DEVICE float log_of(QuickWeight weight) { return ptx::lg2(weight.value) * kLn2; }
ATTNC_DEVICE float log2_of(QuickWeight weight) { return ptx::lg2(weight.value); }

/// Returns what outputs give to a weight; a finite number to a weight of 0, where they may give anything.
template <class M>
ATTNC_DEVICE float output_gradient(const ModArgs& args, const typename M::Head& head, const typename M::Row& row,
                                   const typename M::Col& col, Coord at, float weight) {
  if constexpr (kHasOutputGradients<M>)
    return weight == 0.f && !M::kGivesToAllWeights
               ? 0.f
               : M::prob_gradient(args, head, row, col, at, 0.f, QuickWeight{weight}); // SEAM(prob_gradient)
  return 0.f;
}

/// The deltas of a step, less what outputs give to its weights: for to_gradients(). `weights`: P, rounded.
template <class Delta, class Packed, class Place, class Table> struct DeltaOfOutputs {
  using M = typename Place::Hooks;
  const Delta& delta;
  const Packed& weights;
  const ForwardParams& p;
  const ModArgs& args;
  const Place& place;
  Table table;
  Step step;

  ATTNC_DEVICE float at(int r, int n, int e) const {
    float weight[2];
    unpack2<Element>(weights.a[r / 2][n / 2][n % 2 * 2 + r % 2], weight[0], weight[1]);
    const int row = Fragment<1, 8>::column(n, e);
    return delta.at(n, e) - output_gradient<M>(args, place.head, table.row(row), place.col[r],
                                               place.coord(p, args, table, step, row, r), weight[e]);
  }
};

/// Returns what to_gradients() subtracts from the gradient of a weight.
template <class Delta> ATTNC_DEVICE float delta_at(const Delta& delta, int r, int n, int e) {
  if constexpr (requires { delta.at(r, n, e); })
    return delta.at(r, n, e);
  else
    return delta.at(n, e);
}

} // namespace attnc
