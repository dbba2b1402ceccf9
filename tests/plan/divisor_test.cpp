// Division by multiplication, as decode kernels do it, against division.
#include "families/decode_plan.h"

#include <catch2/catch.hpp>

using namespace attnc;

namespace {

/// As Divisor::quotient() of templates/params_decode.cuh.
int quotient(const Divisor& by, int n) {
  const uint64_t high = uint64_t(by.multiplier) * uint64_t(n) >> 32;
  return int(unsigned(high + uint64_t(n)) >> by.shift);
}

constexpr int kMost = 0x7fffffff;

} // namespace

TEST_CASE("quotients by multiplication are those of division, up to the largest int", "[api]") {
  int wrong = 0;
  for (int64_t divisor = 1; divisor <= kMost; divisor += divisor < 1000 ? 1 : divisor / 37)
    for (int64_t near = 0; near <= kMost; near += near < 100 * divisor ? divisor : kMost / 97)
      for (int64_t n : {near - 1, near, near + 1, int64_t(kMost)}) {
        if (n < 0 || n > kMost) continue;
        wrong += quotient(plan::divisorOf(divisor), int(n)) != int(n / divisor);
      }
  CHECK(wrong == 0);
}

TEST_CASE("there are no heads to divide by in an empty problem", "[api]") {
  CHECK(plan::divisorOf(0).divisor == 1);
  CHECK(quotient(plan::divisorOf(0), 7) == 7);
}
