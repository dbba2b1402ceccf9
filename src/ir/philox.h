// Random numbers by position: what Op::Random means.
//
// Philox 4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): ten rounds
// turn a counter of four words and a key of two into four words. dsl/SPEC.md, section 6, says what the counter is.
#pragma once

#include <array>
#include <cstdint>

namespace attnc::ir {

using PhiloxCounter = std::array<uint32_t, 4>;

/// Returns the four words of a counter under a key.
constexpr PhiloxCounter philox(PhiloxCounter counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t(0xd2511f53) * counter[0], odd = uint64_t(0xcd9e8d57) * counter[2];
    counter = {uint32_t(odd >> 32) ^ counter[1] ^ key0, uint32_t(odd), uint32_t(even >> 32) ^ counter[3] ^ key1,
               uint32_t(even)};
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
  return counter;
}

/// Returns the number in [0, 1) at a position, a multiple of 2^-24. Positions that differ in bits 0 and 3 of kv and of
/// q share three counters: they take a byte each of their 16 bytes, the byte of counter 0 first. Two threads of tensor
/// cores hold these positions together, whether rows of a product are queries or keys, and may share the work.
constexpr float randomAt(int64_t seed, uint32_t b, uint32_t h, uint32_t q, uint32_t kv) {
  uint32_t bits = 0;
  for (uint32_t digit : {0, 1, 8}) {
    const PhiloxCounter words =
        philox({(kv & ~9u) | digit, q & ~9u, h, b}, uint32_t(seed), uint32_t(uint64_t(seed) >> 32));
    bits = bits << 8 | (words[(q & 1) | (q >> 2 & 2)] >> 8 * ((kv & 1) | (kv >> 2 & 2)) & 255);
  }
  return float(bits) * 0x1p-24f;
}

} // namespace attnc::ir
