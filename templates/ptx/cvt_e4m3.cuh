// One function, one instruction: conversions of fp8 (sm_89 and later).
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

/// Returns two e4m3 as two f16, exactly; the lower byte becomes the lower half.
ATTNC_DEVICE unsigned cvt_f16x2_e4m3x2(unsigned short pair) {
  unsigned result;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(result) : "h"(pair));
  return result;
}

/// Returns two fp32 rounded to nearest even and packed; beyond the range, the largest value, 448.
ATTNC_DEVICE unsigned short cvt_rn_satfinite_e4m3x2(float high, float low) {
  unsigned short result;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(result) : "f"(high), "f"(low));
  return result;
}

} // namespace attnc::ptx
