// The interpreter against values worked out by hand, and its speed.
#include "helpers/random_module.h"
#include "helpers/take.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/philox.h"
#include "ir/reader.h"

#include <catch2/catch.hpp>

#include <climits>
#include <cmath>
#include <ctime>

using namespace attnc;
using namespace attnc::ir;

namespace {

Module moduleOf(std::string_view text) { return take(read(text)); }

Bindings bound(const Module& module, const Captures& captures, const ProblemShape& problem = {}) {
  return take(bind(module, captures, problem));
}

/// One operation on constants; operands as integers, or floats for f32.
template <class T> double result(Op op, Type from, Type to, std::initializer_list<T> operands) {
  Module module;
  llvm::SmallVector<Value, 3> values;
  for (T operand : operands)
    values.push_back(from == Type::F32 ? module.constF32(float(operand)) : module.constant(from, int64_t(operand)));
  Value value = module.make(op, to, values);
  return Interpreter(module, bound(module, {})).value(value, 0, 0, 0, 0, 0);
}
double i32(Op op, int64_t a, int64_t b) { return result<int64_t>(op, Type::I32, Type::I32, {a, b}); }
double f32(Op op, float a, float b) { return result<float>(op, Type::F32, Type::F32, {a, b}); }

const float kInf = INFINITY, kNan = NAN;

} // namespace

TEST_CASE("any output is evaluated by its name") {
  Module module = moduleOf("%0 = mul i32 %q_idx, 3\n%1 = add i32 %0, %b\n%2 = cast f32 %1\n%3 = mul f32 %score, %2\n"
                           "output score(score, b, q_idx) -> %3\noutput kv_begin(b, h, q_idx) -> %1\n");
  Interpreter interpreter(module, bound(module, {}));
  CHECK(interpreter.output("kv_begin", 0, 1, 0, 5, 0) == 16);
  CHECK(interpreter.output("score", 0.5f, 1, 0, 5, 0) == 8);
  CHECK(interpreter.score(0.5, 1, 0, 5, 0) == 8);
}

TEST_CASE("i32 arithmetic wraps, and division follows Python with a zero divisor giving 0") {
  CHECK(i32(Op::Add, INT_MAX, 1) == INT_MIN);
  CHECK(i32(Op::Sub, INT_MIN, 1) == INT_MAX);
  CHECK(i32(Op::Mul, 1 << 16, 1 << 16) == 0);
  CHECK(result<int64_t>(Op::Neg, Type::I32, Type::I32, {INT_MIN}) == INT_MIN);
  CHECK(result<int64_t>(Op::Abs, Type::I32, Type::I32, {INT_MIN}) == INT_MIN);
  const int64_t cases[][4] = {{7, 2, 3, 1}, {-7, 2, -4, 1}, {7, -2, -4, -1},  {-7, -2, 3, -1},          {6, -3, -2, 0},
                              {5, 0, 0, 0}, {0, 5, 0, 0},   {-1, 64, -1, 63}, {INT_MIN, -1, INT_MIN, 0}};
  for (const auto& [a, b, quotient, remainder] : cases) {
    INFO(a << " by " << b);
    CHECK(i32(Op::FloorDiv, a, b) == quotient);
    CHECK(i32(Op::Mod, a, b) == remainder);
  }
  CHECK(result<int64_t>(Op::FloorDiv, Type::I64, Type::I64, {INT64_MIN, -1}) == double(INT64_MIN));
  CHECK(result<int64_t>(Op::Add, Type::I64, Type::I64, {INT64_MAX, 1}) == double(INT64_MIN));
}

TEST_CASE("bits and shifts: counts are taken modulo the width, the right shift is arithmetic") {
  CHECK(i32(Op::Shl, 1, 33) == 2);
  CHECK(i32(Op::Shl, 1, 31) == INT_MIN);
  CHECK(i32(Op::Shr, -5, 1) == -3);
  CHECK(i32(Op::Shr, -5, -31) == -3);
  CHECK(result<int64_t>(Op::Shl, Type::I64, Type::I64, {1, 33}) == double(1ll << 33));
  CHECK(i32(Op::Xor, 6, 3) == 5);
  CHECK(result<int64_t>(Op::Not, Type::I32, Type::I32, {0}) == -1);
  CHECK(result<int64_t>(Op::Not, Type::Bool, Type::Bool, {0}) == 1);
  CHECK(result<int64_t>(Op::Not, Type::Bool, Type::Bool, {1}) == 0);
}

TEST_CASE("f32 floor division and remainder follow Python") {
  CHECK(f32(Op::FloorDiv, -7, 2) == -4);
  CHECK(f32(Op::Mod, -7, 2) == 1);
  CHECK(f32(Op::Mod, 7, -2) == -1);
  CHECK(f32(Op::Mod, -1, kInf) == kInf);
  CHECK(f32(Op::FloorDiv, -1, kInf) == -1);
  CHECK(f32(Op::FloorDiv, 1, 0) == kInf);
  CHECK(std::isnan(f32(Op::Mod, 1, 0)));
  CHECK(f32(Op::Fmod, -0.3f, 1e6f) == -0.3f);
  CHECK(f32(Op::Fmod, -1, kInf) == -1);
  CHECK(f32(Op::Fmod, -7.5f, 2) == -1.5f);
}

TEST_CASE("min and max give NaN for NaN on either side") {
  for (Op op : {Op::Min, Op::Max}) {
    CHECK(std::isnan(f32(op, kNan, 1)));
    CHECK(std::isnan(f32(op, 1, kNan)));
  }
  CHECK(f32(Op::Min, -kInf, 1) == -kInf);
  CHECK(i32(Op::Max, -3, 2) == 2);
}

TEST_CASE("casts truncate and saturate, NaN gives 0, bool asks for not zero") {
  auto toI32 = [](float x) { return result<float>(Op::Cast, Type::F32, Type::I32, {x}); };
  auto toI64 = [](float x) { return result<float>(Op::Cast, Type::F32, Type::I64, {x}); };
  CHECK(toI32(-2.9f) == -2);
  CHECK(toI32(3e9f) == INT_MAX);
  CHECK(toI32(-kInf) == INT_MIN);
  CHECK(toI32(kNan) == 0);
  CHECK(toI64(1e30f) == double(INT64_MAX));
  CHECK(toI64(-1e30f) == double(INT64_MIN));
  CHECK(result<float>(Op::Cast, Type::F32, Type::Bool, {kNan}) == 1);
  CHECK(result<float>(Op::Cast, Type::F32, Type::Bool, {-0.f}) == 0);
  CHECK(result<int64_t>(Op::Cast, Type::I64, Type::I32, {(1ll << 32) + 5}) == 5);
  CHECK(result<int64_t>(Op::Cast, Type::I64, Type::Bool, {1ll << 32}) == 1);
  CHECK(result<int64_t>(Op::Cast, Type::Bool, Type::F32, {1}) == 1);
}

TEST_CASE("rounding is half to even, and special functions are those of libm") {
  auto of = [](Op op, float x) { return result<float>(op, Type::F32, Type::F32, {x}); };
  CHECK(of(Op::Round, 2.5f) == 2);
  CHECK(of(Op::Round, -3.5f) == -4);
  CHECK(of(Op::Trunc, -1.5f) == -1);
  CHECK(of(Op::Rsqrt, 4) == 0.5);
  CHECK(of(Op::Sigmoid, 0) == 0.5);
  CHECK(of(Op::TanhApprox, 0.5f) == float(std::tanh(0.5)));
  CHECK(of(Op::Exp2, 3) == 8);
  CHECK(of(Op::Expm1, 1e-9f) == 1e-9f);
  CHECK(of(Op::Expm1, -200) == -1);
  CHECK(of(Op::Erfc, 10) == float(std::erfc(10.0)));
  CHECK(of(Op::Asinh, -1e30f) == float(std::asinh(-1e30f)));
  CHECK(of(Op::Asinh, 1e-9f) == 1e-9f);
  CHECK(of(Op::Sinh, -kInf) == -kInf);
  CHECK(of(Op::Acosh, 1) == 0);
  CHECK(of(Op::Atanh, 1) == kInf);
  CHECK(std::isnan(of(Op::Asin, 1.5f)));
  CHECK(f32(Op::Atan2, -0.f, -1) == -float(M_PI));
  CHECK(f32(Op::Atan2, 0, -1) == float(M_PI));
  CHECK(std::signbit(f32(Op::Atan2, -0.f, 1)));
  CHECK(f32(Op::Hypot, 3e30f, 4e30f) == float(std::hypot(double(3e30f), double(4e30f))));
  CHECK(f32(Op::Hypot, 3e-40f, 4e-40f) == float(std::hypot(double(3e-40f), double(4e-40f))));
  CHECK(f32(Op::Hypot, kNan, -kInf) == kInf);
  CHECK(f32(Op::Pow, 2, 10) == 1024);
  CHECK(result<float>(Op::IsNan, Type::F32, Type::Bool, {kNan}) == 1);
}

TEST_CASE("Philox gives the words of Random123, and random the bits of its three counters") {
  // tests/kat_vectors of Random123: philox4x32 10
  CHECK(philox({0, 0, 0, 0}, 0, 0) == PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr uint32_t kOnes = 0xffffffff;
  CHECK(philox({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes) ==
        PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) ==
        PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

  // Byte 3 of word 2 of the counters (kv 32, 33, 40; q 16): positions kv 41, q 24.
  const auto byte = [](uint32_t counter) { return philox({counter, 16, 3, 2}, 7, 9)[2] >> 24; };
  const float expected = float(byte(32) << 16 | byte(33) << 8 | byte(40)) / (1 << 24);
  CHECK(randomAt(int64_t(9) << 32 | 7, 2, 3, 24, 41) == expected);

  Module module = moduleOf("%0 = cast i64 %b\n%1 = add i64 %0, 38654705663L\n"
                           "%2 = random f32 %1, %b, %h, %q_idx, %kv_idx\n"
                           "output score(score, b, h, q_idx, kv_idx) -> %2");
  Interpreter interpreter(module, bound(module, {}));
  CHECK(interpreter.score(0, 1, 3, 8, 40) == double(randomAt(int64_t(9) << 32, 1, 3, 8, 40)));
  double sum = 0, squares = 0;
  for (int64_t q = 0; q < 100; ++q)
    for (int64_t kv = 0; kv < 100; ++kv) {
      const double x = interpreter.score(0, 0, 0, q, kv);
      CHECK((x >= 0 && x < 1));
      sum += x, squares += x * x;
    }
  CHECK(std::fabs(sum / 1e4 - 0.5) < 0.015); // 5 standard deviations
  CHECK(std::fabs(squares / 1e4 - 1 / 3.) < 0.015);
}

TEST_CASE("f32 is rounded after each operation, and casts round once") {
  auto scoreOf = [](std::string_view text, double score = 0) {
    Module module = moduleOf(text);
    return Interpreter(module, bound(module, {})).score(score, 0, 0, 0, 0);
  };
  CHECK(scoreOf("%0 = div f32 1.0, 3.0\noutput score(score, b, h, q_idx, kv_idx) -> %0") == double(1.f / 3));
  CHECK(scoreOf("%0 = div f32 1.0, 3.0\n%1 = mul f32 %0, 3.0\noutput score(score, b, h, q_idx, kv_idx) -> %1") == 1);
  CHECK(scoreOf("%0 = exp f32 1.0\noutput score(score, b, h, q_idx, kv_idx) -> %0") == double(float(std::exp(1.0))));
  CHECK(scoreOf("%0 = add f32 %score, 0.0\noutput score(score, b, h, q_idx, kv_idx) -> %0", 0.1) == double(0.1f));
  CHECK(scoreOf("output mask(b, h, q_idx, kv_idx) -> true", 0.1) == 0.1); // no score_mod: the score stays what it is
  // A little above the middle of two f32, but not in double.
  CHECK(scoreOf("%0 = cast f32 1152921573326323713L\noutput score(score, b, h, q_idx, kv_idx) -> %0") ==
        0x1p60 + 0x1p37);
}

TEST_CASE("gathers honour strides and dtypes and clamp each index into the tensor") {
  Module module = moduleOf("dim N\ntensor t: i16[2, N]\n%0 = load i32 t[%q_idx, %kv_idx]\n%1 = cast f32 %0\noutput "
                           "score(score, b, h, q_idx, kv_idx) -> %1");
  int16_t data[] = {0, 10, 1, 11, 2, -12}; // transposed: element (i, j) at data[i + 2 j]
  TensorView view{.data = data, .dtype = DType::I16, .rank = 2, .shape = {2, 3}, .stride = {1, 2}};
  Interpreter interpreter(module, bound(module, Captures().set("t", view)));
  auto at = [&](int64_t q, int64_t kv) { return interpreter.score(0, 0, 0, q, kv); };
  CHECK(at(0, 0) == 0);
  CHECK(at(1, 1) == 11);
  CHECK(at(1, 2) == -12);
  CHECK(at(5, 9) == -12);
  CHECK(at(-5, 9) == 2);
  view.data = data + 4; // a reversed second axis
  view.stride = {1, -2};
  CHECK(Interpreter(module, bound(module, Captures().set("t", view))).score(0, 0, 0, 1, 2) == 10);
}

TEST_CASE("a gather from an empty tensor gives 0") {
  Module module =
      moduleOf("dim N\ntensor t: f32[N]\n%0 = load f32 t[%q_idx]\noutput score(score, b, h, q_idx, kv_idx) -> %0");
  TensorView empty = TensorView::contiguous(nullptr, DType::F32, {0});
  CHECK(Interpreter(module, bound(module, Captures().set("t", empty))).score(5, 0, 0, 0, 0) == 0);
}

TEST_CASE("half formats decode: normal, subnormal, inf and NaN") {
  CHECK(f16ToFloat(0x3c00) == 1.f);
  CHECK(f16ToFloat(0xc500) == -5.f);
  CHECK(f16ToFloat(0x0001) == 0x1p-24f);
  CHECK(f16ToFloat(0x83ff) == -1023 * 0x1p-24f);
  CHECK(f16ToFloat(0x7bff) == 65504.f);
  CHECK(f16ToFloat(0xfc00) == -kInf);
  CHECK(std::isnan(f16ToFloat(0x7e00)));
  CHECK(bf16ToFloat(0x3f80) == 1.f);
  CHECK(bf16ToFloat(0xff80) == -kInf);
}

TEST_CASE("values cached for a row or a head follow every change of coordinates") {
  Module module = moduleOf(
      "tensor s: i32[H]\n%0 = load i32 s[%h]\n%1 = mul i32 %0, %q_idx\n%2 = add i32 %1, %kv_idx\n"
      "%3 = mul i32 %b, 1000\n%4 = add i32 %2, %3\n%5 = cast f32 %4\noutput score(score, b, h, q_idx, kv_idx) -> %5");
  int32_t data[] = {3, 5};
  Captures captures;
  captures.set("s", TensorView::contiguous(data, DType::I32, {2}));
  Interpreter interpreter(module, bound(module, captures, {.qHeads = 2}));
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) {
    int64_t b = random() % 2, h = random() % 2, q = random() % 3, kv = random() % 3;
    REQUIRE(interpreter.score(0, b, h, q, kv) == double(data[h] * q + kv + b * 1000));
  }
}

TEST_CASE("a copy of an interpreter is independent of the original") {
  Module module = moduleOf("%0 = cast f32 %q_idx\noutput score(score, b, h, q_idx, kv_idx) -> %0");
  Interpreter first(module, bound(module, {}));
  CHECK(first.score(0, 0, 0, 1, 0) == 1);
  Interpreter second = first;
  CHECK(second.score(0, 0, 0, 2, 0) == 2);
  CHECK(first.score(0, 0, 0, 1, 5) == 1);
}

TEST_CASE("a module without functions changes nothing") {
  Module module;
  Interpreter interpreter(module, bound(module, {}));
  CHECK(interpreter.score(1.5, 0, 0, 0, 0) == 1.5);
  CHECK(interpreter.mask(0, 0, 0, 0));
}

TEST_CASE("random modules evaluate without a trap, and hoisting does not show") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    test::RandomModule random(seed);
    Bindings bindings = bound(random.module, random.captures, random.problem);
    Interpreter kept(random.module, bindings);
    for (uint64_t i = 0; i < 40; ++i) {
      int64_t b = int64_t(i / 20), h = int64_t(i / 10 % 4), q = int64_t(i * 7 / 5 % 13), kv = int64_t(i * 5 % 17);
      double score = test::RandomModule::sampleScore(i);
      Interpreter fresh(random.module, bindings);
      double expected = fresh.score(score, b, h, q, kv), actual = kept.score(score, b, h, q, kv);
      REQUIRE(((std::isnan(expected) && std::isnan(actual)) || expected == actual));
      REQUIRE(kept.mask(b, h, q, kv) == fresh.mask(b, h, q, kv));
    }
  }
}

TEST_CASE("a sliding window evaluates fast enough for the CPU reference") {
  Module module = moduleOf("scalar window: i32\n%0 = le i32 %kv_idx, %q_idx\n%1 = sub i32 %q_idx, %kv_idx\n"
                           "%2 = le i32 %1, @window\n%3 = and bool %0, %2\noutput mask(b, h, q_idx, kv_idx) -> %3");
  Interpreter interpreter(module, bound(module, Captures().set("window", 100), {.qLen = 4096, .kvLen = 4096}));
  int64_t live = 0;
  std::clock_t start = std::clock(); // of this process: other processes do not count
  for (int64_t q = 0; q < 4096; ++q)
    for (int64_t kv = 0; kv < 4096; ++kv) live += interpreter.mask(0, 0, q, kv);
  double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
  CHECK(live == 4096 * 101 - 100 * 101 / 2);
  INFO(4096.0 * 4096.0 / seconds / 1e6 << " million evaluations a second");
#ifdef NDEBUG
  CHECK(seconds < 4.0); // 0.14 s on an idle core; the bound leaves room for a slow machine
#endif
}

TEST_CASE("a sum adds in the order of its index, rounded to f32 each time") {
  std::vector<float> data(20, 1);
  data[0] = 0x1p24f; // 1 is lost when added to it, twenty are not
  Module module = moduleOf("tensor t: f32[20]\n%0 = load f32 t[%i0:20]\n%1 = sum f32 %i0:20, %0\n"
                           "%2 = sub i32 19, %i0:20\n%3 = load f32 t[%2]\n%4 = sum f32 %i0:20, %3\n"
                           "%5 = sub f32 %4, %1\noutput score(score, b, h, q_idx, kv_idx) -> %5\n");
  Captures captures;
  captures.set("t", TensorView::contiguous(data.data(), DType::F32, {20}));
  Bindings bindings = bound(module, captures);
  CHECK(Interpreter(module, bindings).score(0, 0, 0, 0, 0) == 20);
}

TEST_CASE("sums inside sums see the index of the outer one, and what is the same in all rounds counts in each") {
  // Row i of [3, 4] times its sum: the sum over i of i * (sum over j of (4 i + j)) + q_idx.
  Module module =
      moduleOf("%0 = mul i32 %i1:3, 4\n%1 = add i32 %0, %i0:4\n%2 = sum i32 %i0:4, %1\n"
               "%3 = mul i32 %i1:3, %2\n%4 = add i32 %3, %q_idx\n%5 = sum i32 %i1:3, %4\n"
               "%6 = sum i32 %i0:7, %5\n%7 = cast f32 %6\noutput score(score, b, h, q_idx, kv_idx) -> %7\n");
  Interpreter interpreter(module, bound(module, {}, {.qLen = 8}));
  CHECK(interpreter.score(0, 0, 0, 5, 0) == 7 * (1 * 22 + 2 * 38 + 3 * 5));
  CHECK(interpreter.score(0, 0, 0, 2, 0) == 7 * (1 * 22 + 2 * 38 + 3 * 2));
}

TEST_CASE("coordinates unravel the position of a token, and go on beside the grid") {
  Module module = moduleOf("scalar w: i32\nscalar t: i32\ngrid [2, @w, 4] before @t\n"
                           "%0 = coord i32 grid0.0, %kv_idx\n%1 = coord i32 grid0.1, %kv_idx\n"
                           "%2 = coord i32 grid0.2, %kv_idx\n%3 = in_grid bool grid0, %kv_idx\n"
                           "output z(kv_idx) -> %0\noutput y(kv_idx) -> %1\noutput x(kv_idx) -> %2\n"
                           "output inside(kv_idx) -> %3\n");
  Captures captures;
  captures.set("w", 3).set("t", 5);
  const Interpreter interpreter(module, bound(module, captures));
  const auto at = [&](const char* name, int64_t kv) { return interpreter.output(name, 0, 0, 0, 0, kv); };
  int64_t token = 5;
  for (int z = 0; z < 2; ++z)
    for (int y = 0; y < 3; ++y)
      for (int x = 0; x < 4; ++x, ++token) {
        INFO(token);
        CHECK(at("z", token) == z);
        CHECK(at("y", token) == y);
        CHECK(at("x", token) == x);
        CHECK(at("inside", token) == 1);
      }
  CHECK(at("inside", 4) == 0);
  CHECK(at("inside", token) == 0);
  CHECK(at("z", 4) == -1);
  CHECK(at("y", 4) == 2);
  CHECK(at("x", 4) == 3);
  CHECK(at("z", token) == 2);
  CHECK(at("z", token + 23) == 3);
}
