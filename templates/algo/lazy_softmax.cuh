// Online softmax that puts off rescaling: weights are taken relative to a reference, and the reference follows the
// row's maximum only when a score exceeds it by a factor of 2^kSlack. Exact after normalisation, whatever the
// reference; the weights stay below 2^kSlack, far from the limits of f32 and f16.
//
// As in online_softmax.cuh, x is a score in units of 1 / factor of log2, and a row lies in the four lanes of a quad. A
// lane compares its own maximum with the reference, so that lanes talk to each other only when the reference moves.
#pragma once

#include "algo/online_softmax.cuh"

namespace attnc {

constexpr float kSlack = 8.f;

struct LazyRow {
  float max = negative_infinity();       // of x in this lane
  float reference = negative_infinity(); // equal in the lanes of a quad
  float sum = 0.f;                       // this lane's part

  /// Takes in this lane's largest x of a tile. True: the reference should move.
  ATTNC_DEVICE bool see(float tile_max, float factor) {
    max = fmaxf(max, tile_max);
    return (max - reference) * factor > kSlack;
  }

  /// Moves the reference to the row's maximum; all lanes of the warp. Returns the factor for what was summed so far.
  ATTNC_DEVICE float move(float factor) {
    const float old = reference;
    reference = quad_max(max);
    const float rescale = ptx::ex2(old * factor + bias(factor));
    sum *= rescale;
    return rescale;
  }

  /// Weights are 2^(factor x + bias). A row that saw only -inf gets weights 0.
  ATTNC_DEVICE float bias(float factor) const { return reference == negative_infinity() ? 0.f : -reference * factor; }

  /// Ends the row: 1 / sum, or 0 if no column lives.
  ATTNC_DEVICE float finish() {
    max = quad_max(max);
    sum = quad_sum(sum);
    return sum == 0.f ? 0.f : 1.f / sum;
  }

  /// Natural-log sum of exponentials; -inf if no column lives.
  ATTNC_DEVICE float lse(float factor) const {
    return sum == 0.f ? negative_infinity() : (reference * factor + ptx::lg2(sum)) * kLn2;
  }
};

} // namespace attnc
