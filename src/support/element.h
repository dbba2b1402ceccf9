// Reading and writing elements of tensors in host memory: the number formats that C++ has no type for.
#pragma once

#include "attnc/tensor.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace attnc {

constexpr bool isFloat(DType dtype) { return dtype >= DType::F16; }
constexpr bool isInteger(DType dtype) { return dtype > DType::Bool && dtype < DType::F16; }

inline float bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

inline float f16ToFloat(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = (bits >> 10) & 31, fraction = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(float(fraction) * 0x1p-24f));
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

inline float e4m3ToFloat(uint8_t bits) {
  const float sign = bits & 0x80 ? -1.f : 1.f;
  const int exponent = (bits >> 3) & 15, fraction = bits & 7;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<float>::quiet_NaN();
  return sign * (exponent ? std::ldexp(float(8 + fraction), exponent - 10) : std::ldexp(float(fraction), -9));
}

/// A value of any IR type: integers and bools (0 or 1) in `integer`, f32 in `real`. Mods are defined in f32; tests
/// compute the same in double, to see how much rounding matters.
template <class Real> union NumberOf {
  int64_t integer;
  Real real;
};
using Number = NumberOf<float>;

template <class T> T elementAt(const void* data, int64_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + offset * int64_t(sizeof(T)), sizeof(T));
  return value;
}

/// Reads the element `offset` elements after `data`, converted to the type it loads as. `data` is host memory.
inline Number readElement(const void* data, DType dtype, int64_t offset) {
  switch (dtype) {
  case DType::Bool: return {.integer = elementAt<uint8_t>(data, offset) != 0};
  case DType::U8: return {.integer = elementAt<uint8_t>(data, offset)};
  case DType::I8: return {.integer = elementAt<int8_t>(data, offset)};
  case DType::I16: return {.integer = elementAt<int16_t>(data, offset)};
  case DType::I32: return {.integer = elementAt<int32_t>(data, offset)};
  case DType::I64: return {.integer = elementAt<int64_t>(data, offset)};
  case DType::F16: return {.real = f16ToFloat(elementAt<uint16_t>(data, offset))};
  case DType::BF16: return {.real = bf16ToFloat(elementAt<uint16_t>(data, offset))};
  case DType::F32: return {.real = elementAt<float>(data, offset)};
  case DType::E4M3: return {.real = e4m3ToFloat(elementAt<uint8_t>(data, offset))};
  }
  return {.integer = 0};
}

/// Rounds once, to nearest with ties to even. Numbers that are too large give an infinity; NaN stays NaN.
uint16_t toBf16(double value);
uint16_t toF16(double value);
/// Rounds the same way, but a number that is too large gives the largest one, 448: there are no infinities.
uint8_t toE4m3(double value);

/// Writes `value` as the element `offset` elements after `data`, which is host memory. Floats (`dtype` F32, F16 or
/// BF16) round as above. Integers and bools round toward zero (precondition: the result fits).
void writeElement(void* data, DType dtype, int64_t offset, double value);

} // namespace attnc
