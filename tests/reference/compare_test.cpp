#include "reference/compare.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <vector>

using attnc::reference::Comparison;
using attnc::reference::Tolerance;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

Comparison compare(const std::vector<double>& actual, const std::vector<double>& expected, Tolerance tolerance) {
  Comparison comparison(tolerance);
  for (size_t i = 0; i < actual.size(); ++i) comparison.add(actual[i], expected[i]);
  return comparison;
}

} // namespace

TEST_CASE("a NaN in the middle is found, whatever follows it") {
  Comparison lost = compare({99, kNan, 3.001}, {1, 2, 3}, {.absolute = 0.01});
  CHECK_FALSE(lost.holds());
  CHECK(lost.maxError() == 98);
  CHECK(lost.misplaced() == 1);

  Comparison alone = compare({1, kNan, 3.001}, {1, 2, 3}, {.absolute = 0.01});
  CHECK_FALSE(alone.holds());
  REQUIRE(alone.firstBad());
  CHECK(alone.firstBad()->index == 1);
  CHECK(std::isnan(alone.firstBad()->actual));
  CHECK(alone.firstBad()->expected == 2);
  CHECK(alone.firstBadText() == "element 1 is nan, should be 2");
  CHECK(alone.maxError() == Approx(0.001));
}

TEST_CASE("what is not finite must be the same on both sides, even within an infinite tolerance") {
  const double values[] = {kInfinity, -kInfinity, kNan, 0, 5};
  for (double actual : values)
    for (double expected : values) {
      INFO(actual << " for " << expected);
      bool isSame = actual == expected || (std::isnan(actual) && std::isnan(expected));
      bool bothFinite = std::isfinite(actual) && std::isfinite(expected);
      Comparison comparison = compare({1, actual, 1}, {1, expected, 1}, {.absolute = kInfinity});
      CHECK(comparison.holds() == (isSame || bothFinite));
      CHECK(comparison.misplaced() == int64_t(!isSame && !bothFinite));
      CHECK(std::isfinite(comparison.rmse()));
    }
}

TEST_CASE("errors are measured, and the first one beyond the tolerance is told") {
  Comparison comparison =
      compare({1, 10.5, -3, kInfinity}, {1, 10, -3.25, kInfinity}, {.absolute = 0.1, .relative = 0.05});
  CHECK(comparison.count() == 4);
  CHECK(comparison.maxError() == 0.5);
  CHECK(comparison.rmse() == Approx(std::sqrt((0.25 + 0.0625) / 3)));
  CHECK(comparison.holds());
  CHECK(comparison.firstBadText() == "");
  Comparison tight = compare({1, 10.5, -3}, {1, 10, -3.25}, {.absolute = 0.1, .relative = 0.03});
  REQUIRE(tight.firstBad());
  CHECK(tight.firstBad()->index == 1);
}

TEST_CASE("an element may be off by more, or by any number") {
  Comparison comparison({.absolute = 0.5});
  comparison.add(3, 2, 0.5);
  CHECK(comparison.holds());
  comparison.add(1e9, 2, kInfinity, /*counts=*/false);
  CHECK(comparison.holds());
  CHECK(comparison.maxError() == 1);
  CHECK(comparison.rmse() == 1);
  CHECK(comparison.count() == 2);
  CHECK(comparison.largestShare() == 1);
  SECTION("but is as finite") { comparison.add(kNan, 2, kInfinity); }
  SECTION("and the next one is not") { comparison.add(3, 2); }
  CHECK_FALSE(comparison.holds());
  CHECK(comparison.firstBad()->index == 2);
}
