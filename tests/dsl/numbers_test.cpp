// Numbers at the edges of their ranges: remainders, shifts, norms and known integers.
#include "dsl/tracing.h"
#include "ir/bind.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

using namespace attnc;
using namespace attnc::testing;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

/// The score that an expression of the ints or floats x and y gives.
double value(const std::string& type, const std::string& expression, double x, double y) {
  ir::Module module = traced("x: " + type + "\ny: " + type + "\ndef score_mod(score, b, h, q_idx, kv_idx):\n  return " +
                             expression + "\n");
  Captures captures;
  for (auto [name, number] : {std::pair("x", x), std::pair("y", y)})
    type == "int" ? captures.set(name, int64_t(number)) : captures.set(name, number);
  const Expected<ir::Bindings> bindings =
      ir::bind(module, captures, {.batch = 1, .qHeads = 1, .kvHeads = 1, .qLen = 1, .kvLen = 1});
  REQUIRE(bindings);
  return ir::Interpreter(module, *bindings).score(0, 0, 0, 0, 0);
}

bool isSame(double a, double b) { return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b); }

} // namespace

TEST_CASE("the least i64 is a number", "[dsl][numbers]") {
  CHECK(value("int", "(x + -9223372036854775808) // (1 << 62)", 5, 0) == -2);
  CHECK(value("int", "torch.clamp(x, min=-0x8000000000000000)", -7, 0) == -7);
}

TEST_CASE("fmod of floats is C's, known and traced", "[dsl][numbers]") {
  const double values[] = {0.0,  -0.0, 0.3,   -0.3,  1,     -1,     5,    -7.5,  1e6, -1e6,
                           3e30, 1e38, -1e38, 1e-40, 1e-45, -1e-45, kInf, -kInf, kNan};
  for (double x : values)
    for (double y : values) {
      INFO(x << " by " << y);
      CHECK(isSame(value("float", "torch.fmod(x, y)", x, y), std::fmod(float(x), float(y))));
    }
  CHECK(value("float", "score + math.fmod(-5.0, float('inf')) + math.fmod(-2**31, 1e30)", 0, 0) == -2147483653.0 + 5);
  CHECK(problems("score + math.fmod(1.0, 0)") == std::vector<std::string>{"division-by-zero at 1:9"});
  CHECK(problems("score + math.fmod(float('inf'), 2)") == std::vector<std::string>{"math-domain at 1:9"});
}

TEST_CASE("shifts by traced counts below 0 and beyond the width are torch's", "[dsl][numbers]") {
  for (double count : {-2147483648.0, -33.0, -32.0, -1.0, 32.0, 33.0, 2147483647.0})
    for (double x : {5.0, -5.0, 2147483647.0, -2147483648.0}) {
      INFO(x << " by " << count);
      CHECK(value("int", "x.int() << y.int()", x, count) == 0);
      CHECK(value("int", "torch.bitwise_right_shift(x, y)", x, count) == (x < 0 ? -1 : 0));
      const int64_t wide = count > 0 && count < 64 ? int64_t(uint64_t(int64_t(x)) << int(count)) : 0;
      CHECK(value("int", "x << y", x, count) == float(wide));
    }
  CHECK(value("int", "x << y", 5, 0) == 5);
  CHECK(value("int", "x.int() << y.int()", 5, 31) == -2147483648.0);
  CHECK(value("int", "x >> y", -5, 1) == -3);
}

TEST_CASE("integers known before launch are exact at the ends of their range", "[dsl][numbers]") {
  CHECK(value("int", "score + ((-2**62 * 2) + 3) % -1 + (-2**62 * 2) % 3", 0, 0) == 1);
  CHECK(value("int", "score + (-2**62 * 2) // 3 + 3074457345618258603", 0, 0) == 0);
  CHECK(problems("score + (-2**62 * 2) // -1") == std::vector<std::string>{"int-overflow at 1:9"});
  CHECK(value("int", "score + (torch.div(2**62 + 1, -2, rounding_mode='trunc') + 2**61)", 0, 0) == 0);
  CHECK(value("int", "score + (range(-2**62 * 2, 2**62 - 1 + 2**62, 4)[2**62 - 1] - 2**62 - 2**62 + 4)", 0, 0) == 0);
  CHECK(value("int", "score + (len(list(enumerate([1, 2], 2**62 - 2 + 2**62))))", 0, 0) == 2);
  CHECK(problems("score + len(list(enumerate([1, 2], 2**62 - 1 + 2**62)))") ==
        std::vector<std::string>{"int-overflow at 1:18"});
}

TEST_CASE("a norm of zeros is 0, one of NaN is NaN", "[dsl][numbers]") {
  CHECK(value("float", "torch.stack([x, y]).norm()", 0, 0) == 0);
  CHECK(value("float", "torch.stack([x, y]).norm()", 3, -4) == 5);
  CHECK(std::isnan(value("float", "torch.stack([x, y]).norm(2)", kNan, 1)));
  CHECK(value("float", "torch.norm(torch.tensor([3.0, 4.0])) + score", 0, 0) == 5);
}
