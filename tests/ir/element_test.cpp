#include "ir/element.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

using namespace attnc;
using namespace attnc::ir;

namespace {

bool isNanF16(uint16_t bits) { return (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0; }
bool isNanBf16(uint16_t bits) { return (bits & 0x7f80) == 0x7f80 && (bits & 0x7f) != 0; }

/// The nearest of all finite numbers of a format, ties to the even pattern: by looking at every one of them.
template <class Decode> uint16_t nearestBySearch(double value, uint16_t largestFinite, Decode decode) {
  uint16_t best = 0;
  double bestDistance = std::numeric_limits<double>::infinity();
  for (uint32_t bits = 0; bits <= largestFinite; ++bits) {
    double distance = std::fabs(std::fabs(value) - double(decode(uint16_t(bits))));
    if (distance < bestDistance || (distance == bestDistance && bits % 2 == 0)) {
      best = uint16_t(bits);
      bestDistance = distance;
    }
  }
  return std::signbit(value) ? best | 0x8000 : best;
}

} // namespace

TEST_CASE("every 16-bit number survives decoding and encoding") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    uint16_t pattern = uint16_t(bits);
    double half = ir::f16ToFloat(pattern), brain = ir::bf16ToFloat(pattern);
    if (isNanF16(pattern) ? !isNanF16(toF16(half)) : toF16(half) != pattern) FAIL("f16 pattern " << bits);
    if (isNanBf16(pattern) ? !isNanBf16(toBf16(brain)) : toBf16(brain) != pattern) FAIL("bf16 pattern " << bits);
  }
}

TEST_CASE("encoding takes the nearest number, ties to even") {
  const double values[] = {1 + 0x1p-11,
                           1 + 0x1p-11 + 0x1p-40,
                           1 + 3 * 0x1p-11,
                           1 - 0x1p-12,
                           0x1p-25,
                           0x1p-25 * 1.001,
                           3 * 0x1p-25,
                           6.1e-5,
                           -6.05e-5,
                           -0.1,
                           3.14159265358979,
                           65519.0,
                           1 + 0x1p-8,
                           -1 - 3 * 0x1p-8,
                           1e-40,
                           -1.7e-39,
                           0.0,
                           -0.0};
  for (double value : values) {
    INFO(value);
    CHECK(toF16(value) == nearestBySearch(value, 0x7bff, ir::f16ToFloat));
    CHECK(toBf16(value) == nearestBySearch(value, 0x7f7f, ir::bf16ToFloat));
  }
}

TEST_CASE("numbers beyond the range become infinities") {
  CHECK(toF16(65519.99) == 0x7bff);
  CHECK(toF16(65520.0) == 0x7c00);
  CHECK(toF16(-1e300) == 0xfc00);
  CHECK(toBf16(1e39) == 0x7f80);
  CHECK(toBf16(-std::numeric_limits<double>::infinity()) == 0xff80);
  CHECK(toBf16(3.3895313892515355e38) == 0x7f7f);
}
