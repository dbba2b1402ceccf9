#include "support/element.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

using namespace attnc;

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
    double half = f16ToFloat(pattern), brain = bf16ToFloat(pattern);
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
                           -1e-41,
                           0.0,
                           -0.0};
  for (double value : values) {
    INFO(value);
    CHECK(toF16(value) == nearestBySearch(value, 0x7bff, f16ToFloat));
    CHECK(toBf16(value) == nearestBySearch(value, 0x7f7f, bf16ToFloat));
  }
}

TEST_CASE("fp8 takes the nearest number, ties to even, and saturates") {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = e4m3ToFloat(uint8_t(bits));
    if ((bits & 0x7f) == 0x7f)
      CHECK(std::isnan(value));
    else
      CHECK(int(toE4m3(value)) == bits);
  }
  CHECK(e4m3ToFloat(0x01) == 0x1p-9f);
  CHECK(e4m3ToFloat(0x38) == 1.f);
  CHECK(e4m3ToFloat(0xfe) == -448.f);
  const auto decode = [](uint16_t bits) { return e4m3ToFloat(uint8_t(bits)); };
  for (double value : {0.0, 0x1p-10, 0x1p-10 * 1.01, 3 * 0x1p-10, 0.017, 1.06, 1.0625, 1.1875, 3.14, 15.6, 440.0, 447.9,
                       449.0, 1e30}) {
    INFO(value);
    CHECK(toE4m3(value) == nearestBySearch(value, 0x7e, decode));
  }
  CHECK(toE4m3(-std::numeric_limits<double>::infinity()) == 0xfe);
  CHECK((toE4m3(std::nan("")) & 0x7f) == 0x7f);
  CHECK(std::signbit(e4m3ToFloat(toE4m3(-0.0))));
}

TEST_CASE("numbers beyond the range become infinities") {
  CHECK(toF16(65519.99) == 0x7bff);
  CHECK(toF16(65520.0) == 0x7c00);
  CHECK(toF16(-1e300) == 0xfc00);
  CHECK(toBf16(1e39) == 0x7f80);
  CHECK(toBf16(-1.7e308) == 0xff80);
  CHECK(toBf16(5e-324) == 0);
  CHECK(toBf16(-std::numeric_limits<double>::infinity()) == 0xff80);
  CHECK(toBf16(3.3895313892515355e38) == 0x7f7f);
}
