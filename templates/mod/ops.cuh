// The operations of mods: the functions that the `cuda` column of src/ir/ops.def names.
//
// In:  values of the four IR types (bool, int, long long, float) and addresses of captured tensors.
// Out: IR semantics: integers wrap, floor_div and floor_mod follow Python, min and max give NaN for NaN, nothing traps.
// Not: coordinates or parameters of attention; see contract.cuh for those.
//
// On the device this file includes nothing. On the host it uses <math.h>, so that tests run generated code without a
// GPU. Functions with a formula here (tanh, sin, floor_div, ...) share one text; only `Machine` differs. No function
// uses local memory. Errors are in units of the last place of the fp32 result, the largest over all fp32 inputs as
// measured on an sm_90 device. Functions without a stated error have CUDA's own (exp 2, expm1 1.5, log, log2, log1p 1,
// erf 1.02, rsqrt 1.6, pow 4, sqrt and division correctly rounded; asin, acos, atan, hypot 1.5, asinh, acosh, atan2 2,
// cosh 2.5, sinh 3, atanh 3.5, erfc 4).
//
// The namespace is attnc::mod, separate from the kernels' own helpers.
#pragma once

#include "mod/contract.cuh"

#if !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#include <math.h> // for the names of CUDA: sqrtf, fmaf, ...
#include <string.h>
#endif

namespace attnc::mod {

// Machine: one function, one instruction or one library call

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

ATTNC_DEVICE float f32_bits(unsigned bits) { return __uint_as_float(bits); }
ATTNC_DEVICE unsigned bits_of(float x) { return __float_as_uint(x); }

/// 1 / x to 1 ulp, subnormals included. 1 / 0 is inf.
ATTNC_DEVICE float reciprocal(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x to 1 ulp for normal x and results; subnormals count as 0.
ATTNC_DEVICE float reciprocal_normal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

ATTNC_DEVICE float min_of(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

ATTNC_DEVICE float max_of(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

/// 2^x to 2.1 ulp; results below 2^-126 are 0.
ATTNC_DEVICE float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The hardware's tanh, for mods that ask for `tanh_approx`: PTX promises a relative error of 2^-11; the absolute error
/// is 8e-6.
ATTNC_DEVICE float tanh_approx_of(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

ATTNC_DEVICE int saturate_i32(float x) { return __float2int_rz(x); } // cvt.rzi.s32: saturates, NaN -> 0
ATTNC_DEVICE long long saturate_i64(float x) { return x == x ? __float2ll_rz(x) : 0; } // cvt.rzi.s64: NaN -> 2^63

ATTNC_DEVICE float widen_f16(unsigned short bits) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
  return y;
}

/// A load through the read-only path: captured tensors do not change while a kernel runs.
template <class T> ATTNC_DEVICE T load_once(const T* address) { return __ldg(address); }

#else

inline float f32_bits(unsigned bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
inline unsigned bits_of(float x) {
  unsigned bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float reciprocal(float x) { return 1.0f / x; }
inline float reciprocal_normal(float x) { return 1.0f / x; }
inline float min_of(float a, float b) { return a != a || a < b ? a : b; }
inline float max_of(float a, float b) { return a != a || a > b ? a : b; }
inline float exp2_of(float x) { return exp2f(x); }
inline float tanh_approx_of(float x) { return tanhf(x); }
inline int saturate_i32(float x) {
  if (x != x) return 0;
  return x >= 2147483648.0f ? 2147483647 : x < -2147483648.0f ? -2147483647 - 1 : int(x);
}
inline long long saturate_i64(float x) {
  if (x != x) return 0;
  if (x >= 9223372036854775808.0f) return 9223372036854775807ll;
  return x < -9223372036854775808.0f ? -9223372036854775807ll - 1 : (long long)x;
}
inline float widen_f16(unsigned short bits) {
  float magnitude = float(bits & 0x3ff) * 0x1p-24f; // subnormal: only the mantissa
  int exponent = bits >> 10 & 31;
  if (exponent == 31) magnitude = f32_bits(0x7f800000u | unsigned(bits & 0x3ff) << 13);
  if (exponent > 0 && exponent < 31) magnitude = ldexpf(float(1024 | (bits & 0x3ff)), exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}
template <class T> inline T load_once(const T* address) { return *address; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

#endif

// Integers. Signed overflow is undefined in C++, so sums use unsigned arithmetic: the same instructions.

ATTNC_DEVICE int wrap_neg(int a) { return int(0u - unsigned(a)); }
ATTNC_DEVICE int wrap_add(int a, int b) { return int(unsigned(a) + unsigned(b)); }
ATTNC_DEVICE int wrap_sub(int a, int b) { return int(unsigned(a) - unsigned(b)); }
ATTNC_DEVICE int wrap_mul(int a, int b) { return int(unsigned(a) * unsigned(b)); }

using Word = unsigned long long;
ATTNC_DEVICE long long i64_of(Word bits) { return (long long)bits; }
ATTNC_DEVICE long long i64_of(int a) { return a; }
ATTNC_DEVICE int i32_of(long long a) { return int(unsigned(Word(a))); }
ATTNC_DEVICE long long wrap_neg(long long a) { return i64_of(Word(0) - Word(a)); }
ATTNC_DEVICE long long wrap_add(long long a, long long b) { return i64_of(Word(a) + Word(b)); }
ATTNC_DEVICE long long wrap_sub(long long a, long long b) { return i64_of(Word(a) - Word(b)); }
ATTNC_DEVICE long long wrap_mul(long long a, long long b) { return i64_of(Word(a) * Word(b)); }

ATTNC_DEVICE int abs_of(int a) { return a < 0 ? wrap_neg(a) : a; }
ATTNC_DEVICE long long abs_of(long long a) { return a < 0 ? wrap_neg(a) : a; }
ATTNC_DEVICE int min_of(int a, int b) { return a < b ? a : b; }
ATTNC_DEVICE int max_of(int a, int b) { return a > b ? a : b; }
ATTNC_DEVICE long long min_of(long long a, long long b) { return a < b ? a : b; }
ATTNC_DEVICE long long max_of(long long a, long long b) { return a > b ? a : b; }

/// Returns Python's a // b, rounded to minus infinity. a // 0 is 0; the most negative a // -1 wraps to itself.
template <class Int> ATTNC_DEVICE Int floor_div(Int a, Int b) {
  if (b == 0) return 0;
  if (b == -1) return wrap_neg(a);
  Int quotient = a / b, rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? quotient - 1 : quotient;
}

/// Returns Python's a % b, with the sign of b. a % 0 is 0.
template <class Int> ATTNC_DEVICE Int floor_mod(Int a, Int b) {
  if (b == 0 || b == -1) return 0;
  Int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/// Shifts take their count modulo the width.
ATTNC_DEVICE int shift_left(int a, int count) { return int(unsigned(a) << (count & 31)); }
ATTNC_DEVICE int shift_right(int a, int count) { return a >> (count & 31); }
ATTNC_DEVICE long long shift_left(long long a, long long count) { return i64_of(Word(a) << (count & 63)); }
ATTNC_DEVICE long long shift_right(long long a, long long count) { return a >> (count & 63); }

// fp32

ATTNC_DEVICE float infinity() { return f32_bits(0x7f800000u); }
ATTNC_DEVICE bool is_nan(float x) { return x != x; }
ATTNC_DEVICE float abs_of(float x) { return fabsf(x); }
ATTNC_DEVICE float floor_of(float x) { return floorf(x); }
ATTNC_DEVICE float ceil_of(float x) { return ceilf(x); }
ATTNC_DEVICE float trunc_of(float x) { return truncf(x); }
ATTNC_DEVICE float round_of(float x) { return rintf(x); }
ATTNC_DEVICE float sqrt_of(float x) { return sqrtf(x); }
ATTNC_DEVICE float rsqrt_of(float x) { return rsqrtf(x); }
ATTNC_DEVICE float exp_of(float x) { return expf(x); }
ATTNC_DEVICE float expm1_of(float x) { return expm1f(x); }
ATTNC_DEVICE float log_of(float x) { return logf(x); }
ATTNC_DEVICE float log2_of(float x) { return log2f(x); }
ATTNC_DEVICE float log1p_of(float x) { return log1pf(x); }
ATTNC_DEVICE float erf_of(float x) { return erff(x); }
ATTNC_DEVICE float erfc_of(float x) { return erfcf(x); }
ATTNC_DEVICE float asin_of(float x) { return asinf(x); }
ATTNC_DEVICE float acos_of(float x) { return acosf(x); }
ATTNC_DEVICE float atan_of(float x) { return atanf(x); }
ATTNC_DEVICE float sinh_of(float x) { return sinhf(x); }
ATTNC_DEVICE float cosh_of(float x) { return coshf(x); }
ATTNC_DEVICE float asinh_of(float x) { return asinhf(x); }
ATTNC_DEVICE float acosh_of(float x) { return acoshf(x); }
ATTNC_DEVICE float atanh_of(float x) { return atanhf(x); }
ATTNC_DEVICE float atan2_of(float y, float x) { return atan2f(y, x); }
ATTNC_DEVICE float hypot_of(float x, float y) { return hypotf(x, y); }
ATTNC_DEVICE float pow_of(float x, float y) { return powf(x, y); }
ATTNC_DEVICE float fmod_of(float x, float y) { return fmodf(x, y); }

/// Returns Python's a % b for floats: fmod is exact, then the divisor's sign is applied.
ATTNC_DEVICE float floor_mod(float a, float b) {
  float rest = fmodf(a, b);
  return rest != 0.0f && (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
}

/// Returns Python's a // b for floats, to 2 ulp. Subtracts the remainder first, so that the quotient is whole before it
/// is rounded.
ATTNC_DEVICE float floor_div(float a, float b) {
  if (b == 0.0f) return a / b;
  float rest = fmodf(a, b);
  float quotient = rintf((a - rest) / b);
  if (rest != 0.0f && (rest < 0.0f) != (b < 0.0f)) quotient -= 1.0f;
  return quotient == 0.0f ? copysignf(0.0f, a / b) : quotient;
}

/// 1 / (1 + e^-x) to 4 ulp. Results below 2^-126 are 0.
ATTNC_DEVICE float sigmoid_of(float x) { return reciprocal_normal(1.0f + expf(-x)); }

/// tanh to 6 ulp, without a branch: x P(x^2) / Q(x^2), a minimax fit of relative error 2.1e-8 on |x| <= 9.02, where
/// fp32 is 1. It takes one MUFU and eleven FMAs, so kernels that already need one ex2 per score stay balanced.
ATTNC_DEVICE float tanh_of(float x) {
  float c = min_of(max_of(x, -9.02f), 9.02f);
  float t = c * c;
  float p = fmaf(1.33213383e-8f, t, 2.05853179e-5f);
  p = fmaf(p, t, 3.49415542e-3f);
  p = fmaf(p, t, 0.13379823f);
  p = fmaf(p, t, 1.0f);
  float q = fmaf(7.76300554e-7f, t, 3.28328387e-4f);
  q = fmaf(q, t, 2.58715431e-2f);
  q = fmaf(q, t, 0.467131385f);
  q = fmaf(q, t, 1.0f);
  return c * p * reciprocal_normal(q);
}

// sin, cos, tan

/// An angle as quadrant * pi/2 + rest, with |rest| slightly above pi/4 at most. The quadrant counts modulo 4.
struct Angle {
  float rest;
  int quadrant;
};

/// 2^(8 j - 150) 2/pi modulo 4, in units of 2^-94, for j from 17 on. x = mantissa * 2^(8 j - 150) is multiplied by it,
/// where j is the leading five bits of x's exponent. It lies in the module's memory: a look-up is one load, and no
/// table lands in local memory.
struct alignas(16) Quarters {
  unsigned high, middle, low;
};
ATTNC_TABLE Quarters kTwoOverPi[] = {{0x0000a2f9u, 0x836e4e44u, 0x1529fc27u}, {0x00a2f983u, 0x6e4e4415u, 0x29fc2757u},
                                     {0xa2f9836eu, 0x4e441529u, 0xfc2757d1u}, {0xf9836e4eu, 0x441529fcu, 0x2757d1f5u},
                                     {0x836e4e44u, 0x1529fc27u, 0x57d1f534u}, {0x6e4e4415u, 0x29fc2757u, 0xd1f534ddu},
                                     {0x4e441529u, 0xfc2757d1u, 0xf534ddc0u}, {0x441529fcu, 0x2757d1f5u, 0x34ddc0dbu},
                                     {0x1529fc27u, 0x57d1f534u, 0xddc0db62u}, {0x29fc2757u, 0xd1f534ddu, 0xc0db6295u},
                                     {0xfc2757d1u, 0xf534ddc0u, 0xdb629599u}, {0x2757d1f5u, 0x34ddc0dbu, 0x6295993cu},
                                     {0x57d1f534u, 0xddc0db62u, 0x95993c43u}, {0xd1f534ddu, 0xc0db6295u, 0x993c4390u},
                                     {0xf534ddc0u, 0xdb629599u, 0x3c439041u}};

/// Payne and Hanek's reduction, for 2^16 <= |x|. It is compiled next to every sin of a score, so it is short and
/// branchless.
ATTNC_DEVICE Angle reduce_large(float x) {
  const unsigned bits = bits_of(x);
  const unsigned mantissa = ((bits & 0x7fffff) | 0x800000) << (bits >> 23 & 7);
  const Quarters by = kTwoOverPi[(bits >> 26 & 31) - 17];
  // In units of 2^-62 quarter turns, modulo 4 quarter turns.
  const Word turns = Word(mantissa) * by.middle + (Word(mantissa) * by.low >> 32) + (Word(mantissa * by.high) << 32);
  const int quadrant = int(unsigned(turns >> 32) + (1u << 29)) >> 30;
  const float fraction = float(i64_of(turns - (Word(quadrant) << 62)));
  const float rest = fmaf(fraction, 1.5707963267948966f * 0x1p-62f, 0.0f * x); // NaN for inf
  return bits >> 31 ? Angle{-rest, -quadrant} : Angle{rest, quadrant};
}

/// Cody and Waite's reduction if three parts of pi/2 (71 bits) suffice; otherwise reduce_large.
ATTNC_DEVICE Angle reduce(float x) {
  if (!(fabsf(x) <= 1e5f)) return reduce_large(x);
  const float kRound = 12582912.0f; // 1.5 * 2^23: adding it rounds to a whole number, in the low bits
  float shifted = fmaf(x, 0.636619772f, kRound);
  float n = shifted - kRound;
  float rest = fmaf(-n, 0x1.921fb4p0f, x);
  rest = fmaf(-n, 0x1.4442d0p-24f, rest);
  rest = fmaf(-n, 0x1.846988p-48f, rest);
  return {rest, int(bits_of(shifted))};
}

/// sin and cos of |x| <= pi/4: minimax fits of relative error 3.8e-9 and 1.2e-10.
ATTNC_DEVICE float sin_quadrant(float x) {
  float t = x * x;
  float p = fmaf(-1.951496853e-4f, t, 8.332158506e-3f);
  p = fmaf(p, t, -0.1666665458f);
  return fmaf(p * t, x, x);
}
ATTNC_DEVICE float cos_quadrant(float x) {
  float t = x * x;
  float p = fmaf(2.443277296e-5f, t, -1.388731294e-3f);
  p = fmaf(p, t, 4.166664562e-2f);
  p = fmaf(p, t, -0.5f);
  return fmaf(p, t, 1.0f);
}

/// sin((quadrant + shift) * pi/2 + rest)
ATTNC_DEVICE float sin_shifted(Angle angle, int shift) {
  int quadrant = angle.quadrant + shift;
  float y = quadrant & 1 ? cos_quadrant(angle.rest) : sin_quadrant(angle.rest);
  return quadrant & 2 ? -y : y;
}

/// sin and cos to 2 ulp up to 1e5 and 3 ulp beyond, tan to 4 and 6 ulp; inf gives NaN, -0 gives +0.
ATTNC_DEVICE float sin_of(float x) { return sin_shifted(reduce(x), 0); }
ATTNC_DEVICE float cos_of(float x) { return sin_shifted(reduce(x), 1); }
ATTNC_DEVICE float tan_of(float x) {
  Angle angle = reduce(x);
  return sin_shifted(angle, 0) * reciprocal_normal(sin_shifted(angle, 1));
}

// Captured tensors

/// Elements converted to IR types: integers below 32 bits widen to int, half precision to float.
ATTNC_DEVICE bool load_bool(const unsigned char* address) { return load_once(address) != 0; }
ATTNC_DEVICE int load_u8(const unsigned char* address) { return load_once(address); }
ATTNC_DEVICE int load_i8(const signed char* address) { return load_once(address); }
ATTNC_DEVICE int load_i16(const short* address) { return load_once(address); }
ATTNC_DEVICE int load_i32(const int* address) { return load_once(address); }
ATTNC_DEVICE long long load_i64(const long long* address) { return load_once(address); }
ATTNC_DEVICE float load_f16(const unsigned short* address) { return widen_f16(load_once(address)); }
ATTNC_DEVICE float load_bf16(const unsigned short* address) { return f32_bits(unsigned(load_once(address)) << 16); }
ATTNC_DEVICE float load_f32(const float* address) { return load_once(address); }

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
/// The host passes this address for a tensor without elements; it looks the name up in the cubin.
extern "C" __device__ unsigned long long attnc_zero = 0;
#endif

/// Returns the index that is read: indices outside [0, size) move to the nearest end; 0 for an empty axis.
ATTNC_DEVICE int clamp_index(int index, int size) { return max_of(min_of(index, size - 1), 0); }
ATTNC_DEVICE long long clamp_index(long long index, long long size) { return max_of(min_of(index, size - 1), 0ll); }

/// Returns elements from the start of an axis, in 64 bits.
ATTNC_DEVICE long long step(long long index, long long stride) { return index * stride; }

} // namespace attnc::mod
