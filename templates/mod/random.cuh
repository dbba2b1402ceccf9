// Random numbers by position: Op::Random of src/ir/ops.def.
//
// In:  a seed and a position. Out: the bits of randomAt() in src/ir/philox.h.
// Not: a state. A number depends on nothing but the operands, so tiles, splits and both passes agree.
#pragma once

#include "mod/ops.cuh"

namespace attnc::mod {

/// The words of a counter of Philox 4x32-10.
struct PhiloxWords {
  unsigned word[4];

  ATTNC_DEVICE void round(unsigned key0, unsigned key1) {
    const Word even = Word(0xd2511f53u) * word[0], odd = Word(0xcd9e8d57u) * word[2];
    word[0] = unsigned(odd >> 32) ^ word[1] ^ key0;
    word[2] = unsigned(even >> 32) ^ word[3] ^ key1;
    word[1] = unsigned(odd);
    word[3] = unsigned(even);
  }
};

/// Returns a number in [0, 1), a multiple of 2^-24.
ATTNC_DEVICE float random_of(long long seed, int b, int h, int q, int kv) {
  constexpr int kDigits = 3; // bytes of a number
  PhiloxWords digits[kDigits];
#pragma unroll
  for (unsigned n = 0; n < kDigits; ++n) digits[n] = {{(kv & ~56u) | n << 3, q & ~8u, unsigned(h), unsigned(b)}};
  unsigned key0 = unsigned(Word(seed)), key1 = unsigned(Word(seed) >> 32);
  // NOTE: a loop. Unrolled, the numbers of a tile's elements are computed side by side, and their words are spilled.
#pragma unroll 1
  for (int round = 0; round < 10; ++round) {
#pragma unroll
    for (int n = 0; n < kDigits; ++n) digits[n].round(key0, key1);
    key0 += 0x9e3779b9u, key1 += 0xbb67ae85u;
  }
  unsigned bits = 0;
#pragma unroll
  for (int n = 0; n < kDigits; ++n) {
    const unsigned low = kv & 16 ? digits[n].word[1] : digits[n].word[0],
                   high = kv & 16 ? digits[n].word[3] : digits[n].word[2];
    bits = bits << 8 | ((kv & 32 ? high : low) >> ((kv & 8) | (q & 8) << 1) & 255);
  }
  return float(int(bits)) * 0x1p-24f;
}

} // namespace attnc::mod
