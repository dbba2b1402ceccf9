// How the attention of two sets of keys becomes that of both.
#pragma once

#include "algo/softmax.cuh"

namespace attnc {

/// Factors of the outputs of both, and the lse of the whole. An lse of -inf says that nothing lives.
struct MergedStages {
  float before, part, lse;

  ATTNC_DEVICE static MergedStages of(float before, float part) {
    const float larger = before > part ? before : part; // NaN stays NaN
    if (larger == negative_infinity()) return {0.f, 0.f, larger};
    const float a = before == negative_infinity() ? 0.f : ptx::ex2((before - larger) * kLog2e);
    const float b = part == negative_infinity() ? 0.f : ptx::ex2((part - larger) * kLog2e);
    const float scale = ptx::rcp(a + b);
    return {a * scale, b * scale, ptx::lg2(a + b) * kLn2 + larger};
  }
};

} // namespace attnc
