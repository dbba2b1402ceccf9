// Element types of q, k, v and out, and their conversions. Storage is plain bits, so no toolkit header is included.
#pragma once

#include "ptx/math.cuh"

namespace attnc {

struct Bf16 {
  unsigned short bits;
};
struct F16 {
  unsigned short bits;
};
struct E4M3 {
  unsigned char bits;
};

/// Whether two types are the same.
template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };

/// Chooses one of two types.
template <bool First, class A, class B> struct Choose { using Type = A; };
template <class A, class B> struct Choose<false, A, B> { using Type = B; };

ATTNC_DEVICE constexpr int round_up(int x, int multiple) { return (x + multiple - 1) / multiple * multiple; }

ATTNC_DEVICE float to_float(Bf16 x) { return __uint_as_float(unsigned(x.bits) << 16); }
ATTNC_DEVICE float to_float(F16 x) { return ptx::cvt_f32_f16(x.bits); }
ATTNC_DEVICE float to_float(float x) { return x; }
ATTNC_DEVICE float to_float(E4M3 x) {
  const unsigned magnitude = x.bits & 0x7fu;
  if (magnitude == 0x7fu) return __uint_as_float(0x7fffffffu);
  return ptx::cvt_f32_f16((unsigned short)((x.bits & 0x80u) << 8 | magnitude << 7)) * 256.f; // biases differ by 8
}

/// Returns two values rounded to nearest even and packed, `low` in the lower half.
template <class Element> ATTNC_DEVICE unsigned pack2(float low, float high);
template <> ATTNC_DEVICE unsigned pack2<Bf16>(float low, float high) { return ptx::cvt_rn_bf16x2(high, low); }
template <> ATTNC_DEVICE unsigned pack2<F16>(float low, float high) { return ptx::cvt_rn_f16x2(high, low); }

/// Unpacks them.
template <class Element> ATTNC_DEVICE void unpack2(unsigned pair, float& low, float& high) {
  low = to_float(Element{(unsigned short)pair});
  high = to_float(Element{(unsigned short)(pair >> 16)});
}

/// Stores two neighbours, rounded to nearest even. `to` is aligned to the pair.
template <class Element> ATTNC_DEVICE void store2(Element* to, float low, float high) {
  *(unsigned*)to = pack2<Element>(low, high);
}
template <> ATTNC_DEVICE void store2<float>(float* to, float low, float high) { *(float2*)to = {low, high}; }

/// Returns one value, rounded to nearest even.
template <class Element> ATTNC_DEVICE Element from_float(float x) { return {(unsigned short)pack2<Element>(x, 0.f)}; }
template <> ATTNC_DEVICE float from_float<float>(float x) { return x; }

} // namespace attnc
