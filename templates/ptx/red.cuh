// One function, one instruction: sums in global memory (sm_90).
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

/// Adds four floats to four neighbours, each atomically. `to`: a multiple of 16 bytes.
ATTNC_DEVICE void red_add4(float* to, float x0, float x1, float x2, float x3) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x0), "f"(x1), "f"(x2), "f"(x3)
               : "memory");
}

} // namespace attnc::ptx
