#include "support/element.h"

#include <algorithm>

namespace attnc {
namespace {

/// Returns the nearest number with `fractionBits` bits after the leading one; below 2^minExponent, the nearest multiple
/// of the smallest subnormal. Exact in double. Preconditions: finite, not 0. Returns numbers from 2^513 on unchanged:
/// they are too large for all formats.
double roundTo(double value, int fractionBits, int minExponent) {
  constexpr int kFractionBits = 52, kBias = 1023;
  const auto biased = int(std::bit_cast<uint64_t>(value) >> kFractionBits & 0x7ff);
  const int exponent = std::max(biased - kBias, minExponent);
  if (exponent > 512) return value;
  // Near 1.5 * 2^k a double holds only multiples of 2^(k - 52), so adding it rounds.
  const int k = exponent - fractionBits + kFractionBits;
  const double large = std::bit_cast<double>(uint64_t(k + kBias) << kFractionBits | uint64_t(1) << (kFractionBits - 1));
  return std::copysign(value + large - large, value);
}

bool isOrdinary(double value) { return std::isfinite(value) && value != 0; }

template <class T> void put(void* data, int64_t offset, T value) {
  std::memcpy(static_cast<char*>(data) + offset * int64_t(sizeof(T)), &value, sizeof(T));
}

} // namespace

uint16_t toBf16(double value) {
  if (std::isnan(value)) return 0x7fc0;
  // Beyond f32's range the conversion below gives an infinity, which is correct: bf16 has the same range.
  float rounded = float(isOrdinary(value) ? roundTo(value, 7, -126) : value);
  return uint16_t(std::bit_cast<uint32_t>(rounded) >> 16);
}

uint16_t toF16(double value) {
  if (std::isnan(value)) return 0x7e00;
  constexpr double kLargest = 65504;
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  double rounded = std::fabs(isOrdinary(value) ? roundTo(value, 10, -14) : value);
  if (rounded > kLargest) return sign | 0x7c00;
  if (rounded < 0x1p-14) return sign | uint16_t(rounded * 0x1p24);
  uint32_t bits = std::bit_cast<uint32_t>(float(rounded));
  return sign | uint16_t((bits >> 13) - (112 << 10));
}

uint8_t toE4m3(double value) {
  if (std::isnan(value)) return 0x7f;
  constexpr double kLargest = 448;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const double rounded = std::min(std::fabs(isOrdinary(value) ? roundTo(value, 3, -6) : value), kLargest);
  if (rounded < 0x1p-6) return sign | uint8_t(rounded * 0x1p9);
  const int exponent = std::ilogb(rounded);
  return sign | uint8_t((exponent + 7) << 3 | (int(std::ldexp(rounded, 3 - exponent)) - 8));
}

void writeElement(void* data, DType dtype, int64_t offset, double value) {
  switch (dtype) {
  case DType::Bool: return put(data, offset, uint8_t(value != 0));
  case DType::U8: return put(data, offset, uint8_t(value));
  case DType::I8: return put(data, offset, int8_t(value));
  case DType::I16: return put(data, offset, int16_t(value));
  case DType::I32: return put(data, offset, int32_t(value));
  case DType::I64: return put(data, offset, int64_t(value));
  case DType::F16: return put(data, offset, toF16(value));
  case DType::BF16: return put(data, offset, toBf16(value));
  case DType::F32: return put(data, offset, float(value));
  case DType::E4M3: return put(data, offset, toE4m3(value));
  }
}

} // namespace attnc
