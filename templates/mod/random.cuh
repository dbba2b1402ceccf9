// Random numbers by position: Op::Random of src/ir/ops.def.
//
// In:  a seed and a position. Out: the bits of randomAt() in src/ir/philox.h.
// Not: a state. A number depends on nothing but the operands, so tiles, splits and both passes agree.
//
// A counter of Philox has a byte for each of 16 positions, which a thread of tensor cores holds together.
#pragma once

#include "mod/ops.cuh"

namespace attnc::mod {

struct PhiloxWords {
  unsigned word[4];
};

/// Philox 4x32-10.
ATTNC_DEVICE PhiloxWords philox(unsigned c0, unsigned c1, unsigned c2, unsigned c3, unsigned key0, unsigned key1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const Word even = Word(0xd2511f53u) * c0, odd = Word(0xcd9e8d57u) * c2;
    c0 = unsigned(odd >> 32) ^ c1 ^ key0;
    c2 = unsigned(even >> 32) ^ c3 ^ key1;
    c1 = unsigned(odd);
    c3 = unsigned(even);
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}

/// Returns one of the three bytes of a number, the highest first.
ATTNC_DEVICE unsigned random_byte(unsigned digit, long long seed, unsigned b, unsigned h, unsigned q, unsigned kv) {
  const PhiloxWords words =
      philox((kv & ~56u) | digit << 3, q & ~8u, h, b, unsigned(Word(seed)), unsigned(Word(seed) >> 32));
  const unsigned low = kv & 16 ? words.word[1] : words.word[0], high = kv & 16 ? words.word[3] : words.word[2];
  return (kv & 32 ? high : low) >> ((kv & 8) | (q & 8) << 1) & 255;
}

/// Returns a number in [0, 1), a multiple of 2^-24.
ATTNC_DEVICE float random_of(long long seed, int b, int h, int q, int kv) {
  unsigned bits = 0;
#pragma unroll
  for (unsigned digit = 0; digit < 3; ++digit)
    bits = bits << 8 | random_byte(digit, seed, unsigned(b), unsigned(h), unsigned(q), unsigned(kv));
  return float(int(bits)) * 0x1p-24f;
}

} // namespace attnc::mod
