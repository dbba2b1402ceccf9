// One function, one instruction: conversions of fp8 (sm_89 and later).
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

/// Returns the two e4m3 in half `Half` of a word as two f16, exactly; the lower byte becomes the lower half.
// NOTE: halves are named in PTX, so that the conversion selects one. A shift would be an instruction of its own.
template <int Half> ATTNC_DEVICE unsigned cvt_f16x2_e4m3x2(unsigned bytes) {
  unsigned result;
  if constexpr (Half == 0)
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low;}" : "=r"(result) : "r"(bytes));
  else
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high;}" : "=r"(result) : "r"(bytes));
  return result;
}

/// Returns two fp32 rounded to nearest even and packed; beyond the range, the largest value, 448.
ATTNC_DEVICE unsigned short cvt_rn_satfinite_e4m3x2(float high, float low) {
  unsigned short result;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(result) : "f"(high), "f"(low));
  return result;
}

} // namespace attnc::ptx
