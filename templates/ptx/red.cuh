// One function, one instruction: sums in global memory (sm_80 and later).
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

ATTNC_DEVICE void red_add(float* to, float x) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}

/// Adds four floats to four consecutive ones, each atomically. `to`: a multiple of 16 bytes. sm_90 and later.
ATTNC_DEVICE void red_add4(float* to, float x0, float x1, float x2, float x3) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x0), "f"(x1), "f"(x2), "f"(x3)
               : "memory");
}

} // namespace attnc::ptx
