// templates/mod/ops.cuh on the host: the formulas that are attnc's own, against libm in double, and the integer rules.
#include "codegen/host_mods.h"
#include "ir/philox.h"
#include "ir/semantics.h"
#include "support/element.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <random>

namespace attnc {
namespace {

/// C entry points for what the tests call.
constexpr const char* kEntries = R"(
#include "mod/random.cuh"
#define ENTRY(name) extern "C" float f32_##name(float x) { return attnc::mod::name(x); }
ENTRY(tanh_of) ENTRY(sin_of) ENTRY(cos_of) ENTRY(tan_of) ENTRY(sigmoid_of) ENTRY(rsqrt_of) ENTRY(exp2_of)
extern "C" float f32_floor_div(float a, float b) { return attnc::mod::floor_div(a, b); }
extern "C" float f32_floor_mod(float a, float b) { return attnc::mod::floor_mod(a, b); }
extern "C" int i32_floor_div(int a, int b) { return attnc::mod::floor_div(a, b); }
extern "C" int i32_floor_mod(int a, int b) { return attnc::mod::floor_mod(a, b); }
extern "C" long long i64_floor_div(long long a, long long b) { return attnc::mod::floor_div(a, b); }
extern "C" long long i64_floor_mod(long long a, long long b) { return attnc::mod::floor_mod(a, b); }
extern "C" int saturate_i32(float x) { return attnc::mod::saturate_i32(x); }
extern "C" long long saturate_i64(float x) { return attnc::mod::saturate_i64(x); }
extern "C" float widen_f16(unsigned short x) { return attnc::mod::widen_f16(x); }
extern "C" float random_of(long long seed, int b, int h, int q, int kv) {
  return attnc::mod::random_of(seed, b, h, q, kv);
}
extern "C" int clamp_index(int i, int n) { return attnc::mod::clamp_index(i, n); }
)";

const test::HostMods& ops() {
  static const test::HostMods* host = [] {
    auto* made = new test::HostMods;
    made->build(kEntries);
    return made;
  }();
  return *host;
}

template <class F> F* entry(const char* name) { return reinterpret_cast<F*>(ops().symbol(name)); }

/// |got - want| in units of the last place of want.
double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  if (double(got) == want || (std::fabs(want) < 0x1p-126 && std::fabs(got - want) < 0x1p-126)) return 0;
  int exponent;
  std::frexp(want, &exponent);
  return std::fabs(got - want) / std::ldexp(1.0, exponent - 24);
}

/// The largest error over every 509th float between -high and high, and over the special values.
template <class Reference> double worst(const char* name, float high, Reference reference) {
  auto* function = entry<float(float)>(name);
  double result = 0;
  for (uint64_t bits = 0; bits < uint64_t(1) << 32; bits += 509 * 8) {
    float x = std::bit_cast<float>(uint32_t(bits));
    if (std::fabs(x) <= high) result = std::max(result, ulps(function(x), reference(double(x))));
  }
  for (float x : {0.0f, -0.0f, 1.0f, -1.0f, high, -high, NAN})
    result = std::max(result, ulps(function(x), reference(double(x))));
  return result;
}

template <class Int> std::vector<Int> interesting() {
  constexpr Int kLow = std::numeric_limits<Int>::min(), kHigh = std::numeric_limits<Int>::max();
  return {0, 1, -1, 2, -2, 3, -3, 7, -7, 64, -64, 1000003, -1000003, kLow, Int(kLow + 1), kHigh, Int(kHigh - 1)};
}

template <class Int> void checkDivision(const char* quotient, const char* rest) {
  auto *div = entry<Int(Int, Int)>(quotient), *mod = entry<Int(Int, Int)>(rest);
  for (Int a : interesting<Int>())
    for (Int b : interesting<Int>()) {
      INFO(a << " " << b);
      CHECK(div(a, b) == ir::semantics::floorDiv(a, b));
      CHECK(mod(a, b) == ir::semantics::floorMod(a, b));
    }
}

} // namespace

TEST_CASE("tanh, sigmoid and the trigonometric functions keep the errors that ops.cuh states", "[codegen]") {
  CHECK(worst("f32_tanh_of", INFINITY, [](double x) { return std::tanh(x); }) < 6);
  CHECK(worst("f32_sigmoid_of", INFINITY, [](double x) { return 1 / (1 + std::exp(-x)); }) < 4);
  CHECK(worst("f32_sin_of", 1e5f, [](double x) { return std::sin(x); }) < 2);
  CHECK(worst("f32_sin_of", INFINITY, [](double x) { return std::sin(x); }) < 3);
  CHECK(worst("f32_cos_of", 1e5f, [](double x) { return std::cos(x); }) < 2);
  CHECK(worst("f32_cos_of", INFINITY, [](double x) { return std::cos(x); }) < 3);
  CHECK(worst("f32_tan_of", 1e5f, [](double x) { return std::tan(x); }) < 4);
  CHECK(worst("f32_tan_of", INFINITY, [](double x) { return std::tan(x); }) < 6);
  CHECK(std::signbit(entry<float(float)>("f32_tanh_of")(-0.0f)));
}

TEST_CASE("integer division follows Python for every sign, zero and the edges", "[codegen]") {
  checkDivision<int>("i32_floor_div", "i32_floor_mod");
  checkDivision<long long>("i64_floor_div", "i64_floor_mod");
}

TEST_CASE("float division with rounding down follows Python", "[codegen]") {
  auto *div = entry<float(float, float)>("f32_floor_div"), *mod = entry<float(float, float)>("f32_floor_mod");
  for (float a : {0.0f, -0.0f, 1.0f, -1.0f, 5.5f, -5.5f, 7.0f, 0.3f, 1234567.0f, 1e-40f, 3e38f, INFINITY, NAN})
    for (float b : {1.0f, -1.0f, 2.0f, -2.0f, 0.5f, 3.0f, -3.0f, 0.1f, -0.7f, 0.0f, INFINITY, -INFINITY, NAN}) {
      INFO(a << " " << b);
      CHECK(ulps(div(a, b), ir::semantics::floorDiv(a, b)) == 0);
      CHECK(ulps(mod(a, b), ir::semantics::floorMod(a, b)) == 0);
    }
}

TEST_CASE("casts from float truncate and saturate, and NaN becomes 0", "[codegen]") {
  auto* toI32 = entry<int(float)>("saturate_i32");
  auto* toI64 = entry<long long(float)>("saturate_i64");
  for (float x : {0.0f, 0.9f, -0.9f, -1.5f, 2147483520.0f, 2147483648.0f, -2147483648.0f, 1e30f, -1e30f, 9.2e18f,
                  9223372036854775808.0f, -9223372036854775808.0f, INFINITY, -INFINITY, NAN}) {
    INFO(x);
    CHECK(toI32(x) == ir::semantics::saturate<int32_t>(x));
    CHECK(toI64(x) == ir::semantics::saturate<int64_t>(x));
  }
}

TEST_CASE("every half-precision number widens as in the interpreter", "[codegen]") {
  auto* widen = entry<float(unsigned short)>("widen_f16");
  int wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float got = widen(uint16_t(bits)), want = f16ToFloat(uint16_t(bits));
    wrong += !(std::isnan(want) ? std::isnan(got) : got == want && std::signbit(got) == std::signbit(want));
  }
  CHECK(wrong == 0);
}

TEST_CASE("an index is moved to the nearest element, and to 0 in an empty axis", "[codegen]") {
  auto* clamp = entry<int(int, int)>("clamp_index");
  CHECK(clamp(3, 5) == 3);
  CHECK(clamp(5, 5) == 4);
  CHECK(clamp(INT32_MAX, 5) == 4);
  CHECK(clamp(-1, 5) == 0);
  CHECK(clamp(INT32_MIN, 5) == 0);
  CHECK(clamp(7, 0) == 0);
  CHECK(clamp(-7, 0) == 0);
}

TEST_CASE("random numbers have the bits of the interpreter's", "[codegen]") {
  auto* random = entry<float(long long, int, int, int, int)>("random_of");
  std::mt19937_64 draws(11);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t a = draws(), b = draws() >> (i % 3 ? 26 : 0); // most positions are small
    const int64_t seed = int64_t(i % 2 ? draws() : draws() % 100);
    const int h = int(uint32_t(a)), q = int(uint32_t(b)), kv = int(uint32_t(b >> 20));
    INFO(seed << " " << int(a >> 32) << " " << h << " " << q << " " << kv);
    REQUIRE(random(seed, int(a >> 32), h, q, kv) ==
            ir::randomAt(seed, uint32_t(a >> 32), uint32_t(h), uint32_t(q), uint32_t(kv)));
  }
}

} // namespace attnc
