// The public interface to the fp64 reference: what it computes, and what it is told of wrong outputs.
#include "attnc/attnc.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

using namespace attnc;

namespace {

/// One head of two queries and three keys, of which the second query sees all and the first one the first two.
struct Problem {
  std::vector<float> q = {1, 0, 0, 2}, k = {1, 0, 0, 1, 1, 1}, v = {1, 2, 3, 4, 5, 6};
  std::vector<float> bias = {0.5f, -0.5f, 0.25f}, out = std::vector<float>(4), lse = std::vector<float>(2);
  Captures captures;
  Operands operands{.q = view(q, {1, 1, 2, 2}), .k = view(k, {1, 1, 3, 2}), .v = view(v, {1, 1, 3, 2}), .scale = 1.f};

  Problem() {
    captures.set("bias", view(bias, {3}));
    operands.captures = &captures;
  }
  static TensorView view(std::vector<float>& data, std::initializer_list<int64_t> shape) {
    return TensorView::contiguous(data.data(), DType::F32, shape);
  }
};

Mod mod() {
  return *Mod::parse("bias: f32[KV_LEN]\ndef score_mod(s, b, h, q, k):\n    return s + bias[k]\n"
                     "def mask_mod(b, h, q, k):\n    return k <= q + 1\n");
}

} // namespace

TEST_CASE("attention on the CPU is that of the definition") {
  Problem problem;
  REQUIRE(
      computeOnCpu(mod(), problem.operands,
                   {.out = Problem::view(problem.out, {1, 1, 2, 2}), .lse = Problem::view(problem.lse, {1, 1, 2})}));
  // Scores of the first query: 1 + 0.5 and 0 - 0.5.
  const double a = std::exp(1.5), b = std::exp(-0.5);
  CHECK(problem.lse[0] == Approx(std::log(a + b)));
  CHECK(problem.out[0] == Approx((a * 1 + b * 3) / (a + b)));
  CHECK(problem.lse[1] == Approx(std::log(std::exp(0.5) + std::exp(1.5) + std::exp(2.25))));
}

TEST_CASE("a launch that breaks a condition of the mod is told in the mod's words") {
  Problem problem;
  const Mod asserting = *Mod::parse("bias: f32[N]\nif len(bias) != KV_LEN + 1: raise ValueError('bias is short')\n"
                                    "def score_mod(s, b, h, q, k):\n    return s + bias[k + 1]\n");
  const Outputs outputs{.out = Problem::view(problem.out, {1, 1, 2, 2})};
  auto status = computeOnCpu(asserting, problem.operands, outputs);
  REQUIRE_FALSE(status);
  CHECK(status.error().blame == Blame::Environment);
  CHECK_THAT(status.error().message,
             Catch::Contains("bias is short (") && Catch::Contains("N = 3") && Catch::Contains("KV_LEN = 3"));
  std::vector<float> longer(4);
  problem.captures.set("bias", Problem::view(longer, {4}));
  CHECK(computeOnCpu(asserting, problem.operands, outputs));
}

TEST_CASE("gradients on the CPU are those of differences") {
  Problem problem;
  std::vector<float> dOut = {1, -2, 0.5f, 3}, dQ(4), dBias(3);
  Captures gradients;
  gradients.set("bias", Problem::view(dBias, {3}));
  BackwardOperands operands;
  static_cast<Operands&>(operands) = problem.operands;
  operands.dOut = Problem::view(dOut, {1, 1, 2, 2});
  std::vector<float> dK(6), dV(6);
  REQUIRE(computeBackwardOnCpu(mod(), operands,
                               {.dQ = Problem::view(dQ, {1, 1, 2, 2}),
                                .dK = Problem::view(dK, {1, 1, 3, 2}),
                                .dV = Problem::view(dV, {1, 1, 3, 2}),
                                .captures = &gradients}));
  auto loss = [&] {
    REQUIRE(computeOnCpu(mod(), problem.operands, {.out = Problem::view(problem.out, {1, 1, 2, 2})}));
    double sum = 0;
    for (size_t i = 0; i < dOut.size(); ++i) sum += double(dOut[i]) * problem.out[i];
    return sum;
  };
  auto slope = [&](float& x) {
    const float at = x, step = 1.f / 64;
    x = at + step;
    const double above = loss();
    x = at - step;
    const double below = loss();
    x = at;
    return (above - below) / (2 * step);
  };
  for (size_t i = 0; i < 3; ++i) CHECK(dBias[i] == Approx(slope(problem.bias[i])).margin(1e-3));
  for (size_t i = 0; i < 4; ++i) CHECK(dQ[i] == Approx(slope(problem.q[i])).margin(1e-3));
  CHECK(dV[4] == Approx(slope(problem.v[4])).margin(1e-3));
}

TEST_CASE("outputs of another shape are refused, and nothing is written") {
  Problem problem;
  problem.lse = {7, 7};
  auto status =
      computeOnCpu(mod(), problem.operands,
                   {.out = Problem::view(problem.out, {1, 1, 4, 1}), .lse = Problem::view(problem.lse, {1, 1, 2})});
  REQUIRE_FALSE(status);
  CHECK(status.error().blame == Blame::Environment);
  CHECK(status.error().message == "out is [1, 1, 4, 1]");
  CHECK(problem.lse[0] == 7);
}
