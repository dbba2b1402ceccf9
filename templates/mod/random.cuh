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
  ATTNC_DEVICE void run(unsigned key0, unsigned key1) {
#pragma unroll
    for (int i = 0; i < 10; ++i) round(key0 + i * 0x9e3779b9u, key1 + i * 0xbb67ae85u);
  }
};

/// Returns a number in [0, 1), a multiple of 2^-24.
ATTNC_DEVICE float random_of(long long seed, int b, int h, int q, int kv) {
  constexpr unsigned kDigits[] = {0, 1, 8}; // of the counters with a number's bytes
  PhiloxWords digits[3];
#pragma unroll
  for (int n = 0; n < 3; ++n) digits[n] = {{(kv & ~9u) | kDigits[n], q & ~9u, unsigned(h), unsigned(b)}};
  unsigned key0 = unsigned(Word(seed)), key1 = unsigned(Word(seed) >> 32);
  // NOTE: a loop. Unrolled, the numbers of a tile's elements are computed side by side, and their words are spilled.
#pragma unroll 1
  for (int round = 0; round < 10; ++round) {
#pragma unroll
    for (PhiloxWords& words : digits) words.round(key0, key1);
    key0 += 0x9e3779b9u, key1 += 0xbb67ae85u;
  }
  unsigned bits = 0;
#pragma unroll
  for (const PhiloxWords& words : digits) {
    const unsigned low = q & 1 ? words.word[1] : words.word[0], high = q & 1 ? words.word[3] : words.word[2];
    bits = bits << 8 | ((q & 8 ? high : low) >> ((kv & 1) << 3 | (kv & 8) << 1) & 255);
  }
  return float(int(bits)) * 0x1p-24f;
}

} // namespace attnc::mod
