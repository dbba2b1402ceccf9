// Exact fp32 sums by integers: the result does not depend on the order of the terms. For host and device.
//
// A sum is kExactWords 64-bit words, all 0 at first. Word k < kExactBins counts multiples of 2^(32 k - 149). A float is
// cut into two parts of 32 bits, which are added to neighbouring words as integers, so any order gives the same words.
// Up to 2^31 floats fit. The last word records NaN and the infinities.
//
//   exact_add(x, words)         words.add(k, x): adds to word k, modulo 2^64; words.mark(bits): sets bits of the last
//   exact_total(words)          the sum, rounded to fp32: its error is hardly more than half a unit in the last place
#pragma once

#include "mod/contract.cuh"
#include "params.cuh"

namespace attnc {

using ExactWord = unsigned long long;
constexpr int kExactBins = kExactWords - 1;
static_assert(32 * kExactBins >= 254 + 24, "from the last bit of the smallest float to the first of the largest");
enum ExactMark : unsigned { kExactNan = 1, kExactPlusInfinity = 2, kExactMinusInfinity = 4 };

/// Adds a float, given by its bits.
template <class Words> ATTNC_DEVICE void exact_add(unsigned bits, Words words) {
  const bool negative = bits >> 31;
  const unsigned exponent = bits >> 23 & 255, fraction = bits & 0x7fffff;
  if (exponent == 255) {
    words.mark(fraction ? kExactNan : negative ? kExactMinusInfinity : kExactPlusInfinity);
    return;
  }
  const unsigned place = exponent ? exponent - 1 : 0; // position of the last bit above 2^-149
  const ExactWord wide = ExactWord(exponent ? fraction | 0x800000 : fraction) << place % 32;
  const ExactWord low = wide & 0xffffffff, high = wide >> 32;
  if (low) words.add(int(place / 32), negative ? 0 - low : low);
  if (high) words.add(int(place / 32) + 1, negative ? 0 - high : high);
}

/// Returns the total. Overwrites `words`.
ATTNC_DEVICE float exact_total(ExactWord (&words)[kExactWords]) {
  const unsigned marks = unsigned(words[kExactBins]);
  const float zero = 0.f, infinity = float(1e300 * 1e10);
  if (marks & kExactNan || (marks & kExactPlusInfinity && marks & kExactMinusInfinity)) return infinity * zero;
  if (marks) return marks & kExactPlusInfinity ? infinity : -infinity;
  // Propagates carries between 32-bit digits. The carry out of the last one is the sign.
  bool negative = false;
  for (int turn = 0; turn < 2; ++turn) {
    long long carry = 0;
    for (int k = 0; k < kExactBins; ++k) {
      const long long sum = (long long)words[k] + carry;
      words[k] = ExactWord(sum) & 0xffffffff;
      carry = sum >> 32;
    }
    words[kExactBins] = ExactWord(carry);
    if (carry >= 0) break;
    negative = true;
    for (int k = 0; k < kExactBins; ++k) words[k] = 0 - words[k];
    words[kExactBins - 1] -= ExactWord(carry) << 32; // the carry belongs to the number
  }
  double total = double((long long)words[kExactBins]);
  for (int k = kExactBins; k-- > 0;) total = total * 4294967296.0 + double(words[k]);
  const float result = float(total * 0x1p-149);
  return negative ? -result : result;
}

} // namespace attnc
