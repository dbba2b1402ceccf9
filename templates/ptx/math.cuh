// One function, one instruction: arithmetic and conversions.
#pragma once

#include "mod/contract.cuh"

namespace attnc::ptx {

/// 2^x, relative error 2^-22.5; 0 for x <= -127 (subnormals flush), 0 for -inf.
ATTNC_DEVICE float ex2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// log2(x), absolute error 2^-22 near 1; -inf for 0.
ATTNC_DEVICE float lg2(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// 1/x, relative error 2^-23; inf for 0 and subnormals.
ATTNC_DEVICE float rcp(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// Returns the smaller one; NaN if either is.
ATTNC_DEVICE float min_nan(float x, float y) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}

/// Returns x rounded to TF32 (10 explicit mantissa bits), as the bits of an fp32.
ATTNC_DEVICE unsigned cvt_rna_tf32(float x) {
  unsigned result;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(x));
  return result;
}

ATTNC_DEVICE float cvt_f32_f16(unsigned short x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x));
  return result;
}

/// Returns two fp32 rounded to nearest even and packed.
ATTNC_DEVICE unsigned cvt_rn_bf16x2(float high, float low) {
  unsigned result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
ATTNC_DEVICE unsigned cvt_rn_f16x2(float high, float low) {
  unsigned result;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}

/// Returns four bytes of the eight in x (0 to 3) and y (4 to 7). `which` has a nibble for each; its bit 3 replicates
/// the byte's highest bit into all bits.
ATTNC_DEVICE unsigned prmt(unsigned x, unsigned y, unsigned which) {
  unsigned result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(y), "r"(which));
  return result;
}

/// Returns x, which is the same in all lanes of the warp, in a register of the warp. Called by all lanes.
ATTNC_DEVICE unsigned uniform(unsigned x) {
  unsigned result;
  asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(x));
  return result;
}

/// Hides the value of x from the compiler. No instruction, but no induction variable is derived from it either.
ATTNC_DEVICE int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

} // namespace attnc::ptx
