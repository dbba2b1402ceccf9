// Sums that do not depend on their order (templates/algo/exact_sum.cuh), run on the host.
#include "algo/exact_sum.cuh"

#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace attnc;

namespace {

struct HostWords {
  ExactWord* words;
  void add(int k, ExactWord amount) const { words[k] += amount; }
  void mark(unsigned bits) const { words[kExactBins] |= bits; }
};

float sumOf(const std::vector<float>& values) {
  ExactWord words[kExactWords] = {};
  for (float value : values) exact_add(std::bit_cast<unsigned>(value), HostWords{words});
  return exact_total(words);
}

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kLargest = std::numeric_limits<float>::max(),
                kSmallest = std::numeric_limits<float>::denorm_min();

} // namespace

TEST_CASE("an exact sum of one float is that float", "[exact-sum]") {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(unsigned(random()));
    const float got = sumOf({value});
    INFO(value);
    if (std::isnan(value))
      CHECK(std::isnan(got));
    else
      CHECK(got == value);
  }
}

TEST_CASE("an exact sum is right where floats cancel, underflow or overflow", "[exact-sum]") {
  CHECK(sumOf({}) == 0);
  CHECK(sumOf({1e30f, 1, -1e30f}) == 1);
  CHECK(sumOf({-1e30f, -1, 1e30f}) == -1);
  CHECK(sumOf({kLargest, kSmallest, -kLargest}) == kSmallest);
  CHECK(sumOf({kLargest, -kSmallest, -kLargest}) == -kSmallest);
  CHECK(sumOf({kLargest, kLargest, -kLargest}) == kLargest);
  CHECK(sumOf({kLargest, kLargest}) == kInfinity);
  CHECK(sumOf({-kLargest, -kLargest}) == -kInfinity);
  CHECK(sumOf({0x1p24f, 1}) == 0x1p24f); // a tie, to even
}

TEST_CASE("infinities and NaN come through an exact sum", "[exact-sum]") {
  CHECK(sumOf({kInfinity, 1, kInfinity}) == kInfinity);
  CHECK(sumOf({-kInfinity, 1}) == -kInfinity);
  CHECK(std::isnan(sumOf({-kInfinity, 1, kInfinity})));
  CHECK(std::isnan(sumOf({1, std::nanf("")})));
}

TEST_CASE("an exact sum does not depend on the order, and is the sum", "[exact-sum]") {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 200; ++i) {
    std::vector<float> values(1 + random() % 3000);
    // Neighbours in size, so that a sum in long double is exact to 2^-50 of the largest.
    for (float& value : values) value = std::ldexp(normal(random), int(random() % 20) - 60 + i % 100);
    long double want = 0, size = 0;
    for (float value : values) want += value, size += std::fabs(value);
    const float first = sumOf(values);
    CHECK(std::fabs(first - want) <= 0.500001L * std::fabs(want) * 0x1p-23L + size * 0x1p-60L);
    std::shuffle(values.begin(), values.end(), random);
    CHECK(std::bit_cast<unsigned>(sumOf(values)) == std::bit_cast<unsigned>(first));
  }
}
