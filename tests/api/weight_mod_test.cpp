// Mods with a weight_mod: what they compute on the CPU, their gradients, and what is refused next to them.
#include "attnc/attnc.h"
#include "helpers/take.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

using namespace attnc;
using Catch::Contains;

namespace {

constexpr int64_t kRows = 5, kColumns = 7, kDim = 8;

std::string weightMod(const std::string& weight) {
  return "def weight_mod(score, b, h, q_idx, kv_idx):\n  return " + weight + "\n";
}
const std::string kCausal = "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n";

struct Attention {
  std::vector<float> q, k, v, out = std::vector<float>(kRows * kDim), lse = std::vector<float>(kRows);
  float bias = 0.25f;
  Captures captures;

  explicit Attention(const Mod& mod) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (auto [of, rows] : {std::pair(&q, kRows), {&k, kColumns}, {&v, kColumns}})
      for (int64_t i = 0; i < rows * kDim; ++i) of->push_back(normal(random));
    if (!mod.captures().empty()) captures.set("bias", TensorView::contiguous(&bias, DType::F32, {1}));
  }
  Operands operands() {
    Operands all{.q = view(q, kRows), .k = view(k, kColumns), .v = view(v, kColumns)};
    all.scale = 1.f, all.captures = &captures;
    return all;
  }
  static TensorView view(std::vector<float>& of, int64_t rows) {
    return TensorView::contiguous(of.data(), DType::F32, {1, 1, rows, kDim});
  }
  const std::vector<float>& run(const Mod& mod) {
    take(computeOnCpu(mod, operands(), {.out = view(out, kRows)}));
    return out;
  }
  /// Returns the sum of weight(s, q, kv) v for an element of out.
  double expected(int64_t row, int64_t column, const std::function<double(double, int64_t, int64_t)>& weight) const {
    double sum = 0;
    for (int64_t kv = 0; kv < kColumns; ++kv) {
      double s = 0;
      for (int64_t d = 0; d < kDim; ++d) s += double(q[size_t(row * kDim + d)]) * k[size_t(kv * kDim + d)];
      sum += weight(s, row, kv) * v[size_t(kv * kDim + column)];
    }
    return sum;
  }
};

void check(const std::string& text, const std::function<double(double, int64_t, int64_t)>& weight) {
  const Mod mod = take(Mod::parse(text));
  for (const Mod& each : {mod, take(Mod::parseIr(mod.irText()))}) {
    INFO(text << each.irText());
    CHECK(each.hasWeightMod());
    Attention attention(each);
    const std::vector<float>& out = attention.run(each);
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t column = 0; column < kDim; ++column)
        CHECK(out[size_t(row * kDim + column)] ==
              Approx(attention.expected(row, column, weight)).margin(1e-5).epsilon(1e-5));
  }
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::string refusal(const std::string& text) {
  const auto mod = Mod::parse(text);
  REQUIRE_FALSE(mod);
  return mod.error().message;
}

} // namespace

TEST_CASE("a weight_mod takes the place of the softmax") {
  check(weightMod("torch.sigmoid(score)"), [](double s, int64_t, int64_t) { return sigmoid(s); });
  check(weightMod("score"), [](double s, int64_t, int64_t) { return s; });
  check(weightMod("1.0"), [](double, int64_t, int64_t) { return 1; });
  check(weightMod("torch.sigmoid(score - log(KV_LEN))") + kCausal,
        [](double s, int64_t q, int64_t kv) { return q >= kv ? sigmoid(s - std::log(double(kColumns))) : 0; });
  // The score is that behind score_mod, and where it is -inf, the weight is 0, also that of a constant.
  const std::string scores = "def score_mod(score, b, h, q_idx, kv_idx):\n"
                             "  return where(kv_idx == 2, -float('inf'), where(q_idx == 1, 2.0 * score, score))\n";
  check(weightMod("score + 3") + scores,
        [](double s, int64_t q, int64_t kv) { return kv == 2 ? 0 : (q == 1 ? 2 * s : s) + 3; });
}

TEST_CASE("rows without a live score are 0, and there is neither lse nor a row maximum") {
  const Mod mod =
      take(Mod::parse(weightMod("score + 3") + "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx != 2\n"));
  Attention attention(mod);
  const std::vector<float>& out = attention.run(mod);
  for (int64_t column = 0; column < kDim; ++column) CHECK(out[size_t(2 * kDim + column)] == 0);
  const Compiler compiler({.cacheMode = CompilerOptions::CacheMode::Off});
  const auto prepared = compiler.plan(mod, {.arch = "sm_90a", .features = {Feature::RowMax}});
  REQUIRE_FALSE(prepared);
  CHECK_THAT(prepared.error().message, Contains("no row maximum with a weight_mod"));
}

TEST_CASE("gradients go through weight_mod, also of captures") {
  const Mod mod =
      take(Mod::parse("bias: f32[H]\n" + weightMod("torch.sigmoid(score + bias[h]) + bias[h] * score") + kCausal));
  Attention a(mod);
  a.run(mod);
  BackwardOperands operands{a.operands(),
                            Attention::view(a.out, kRows),
                            TensorView::contiguous(a.lse.data(), DType::F32, {1, 1, kRows}),
                            {},
                            {}};
  std::vector<float> dOut(a.out.size(), 1.f), dQ(a.q.size()), dK(a.k.size()), dV(a.v.size());
  for (size_t i = 0; i < dOut.size(); ++i) dOut[i] = float(i % 5) - 2;
  operands.dOut = Attention::view(dOut, kRows);
  float dBias = 0;
  Captures gradients;
  gradients.set("bias", TensorView::contiguous(&dBias, DType::F32, {1}));
  take(computeBackwardOnCpu(mod, operands,
                            {.dQ = Attention::view(dQ, kRows),
                             .dK = Attention::view(dK, kColumns),
                             .dV = Attention::view(dV, kColumns),
                             .captures = &gradients}));
  const auto loss = [&] {
    double sum = 0;
    const std::vector<float>& out = a.run(mod);
    for (size_t i = 0; i < out.size(); ++i) sum += double(out[i]) * dOut[i];
    return sum;
  };
  const auto slope = [&](float& x) {
    const float before = x;
    x = before + 0x1p-7f;
    const double above = loss();
    x = before - 0x1p-7f;
    const double below = loss();
    x = before;
    return (above - below) / 0x1p-6;
  };
  for (size_t i = 0; i < a.q.size(); i += 3) CHECK(dQ[i] == Approx(slope(a.q[i])).margin(2e-3).epsilon(2e-3));
  for (size_t i = 0; i < a.k.size(); i += 3) CHECK(dK[i] == Approx(slope(a.k[i])).margin(2e-3).epsilon(2e-3));
  for (size_t i = 0; i < a.v.size(); i += 3) CHECK(dV[i] == Approx(slope(a.v[i])).margin(2e-3).epsilon(2e-3));
  CHECK(dBias == Approx(slope(a.bias)).margin(2e-3).epsilon(2e-3));
}

TEST_CASE("what is of the softmax is refused next to a weight_mod") {
  const std::string sigmoids = weightMod("torch.sigmoid(score)");
  CHECK_THAT(refusal(sigmoids + "def sink_mod(b, h, q_idx):\n  return 0.0\n"),
             Contains("takes the place of the softmax, and `sink_mod`"));
  CHECK_THAT(refusal(sigmoids + "def prob_mod(prob, b, h, q_idx, kv_idx):\n  return prob / 2\n"),
             Contains("`prob_mod`"));
  CHECK_THAT(refusal(weightMod("None")), Contains("returns nothing"));
  CHECK_THAT(refusal(weightMod("'a'")), Contains("expected a number: the weight"));
  const Mod mod = take(Mod::parse(sigmoids)), causal = take(Mod::parse(kCausal));
  const auto choice = Mod::choice({mod, causal}, "which: i32[B]");
  REQUIRE_FALSE(choice);
  CHECK_THAT(choice.error().message, Contains("has a weight_mod"));
  const auto ir =
      Mod::parseIr("output weight(score, b, h, q_idx, kv_idx) -> %score\noutput sink(b, h, q_idx) -> 0.0\n");
  REQUIRE_FALSE(ir);
  CHECK_THAT(ir.error().message, Contains("leave these out"));
}

TEST_CASE("a weight_mod is found by its name, by a pick and in flex_attention") {
  const std::string text = "def gate(score, b, h, q_idx, kv_idx):\n  return torch.relu(score)\n";
  CHECK_FALSE(take(Mod::parse(text)).hasWeightMod());
  CHECK(take(Mod::parse(text + "weight_mod = gate\n")).hasWeightMod());
  CHECK(take(Mod::parse("flex_attention = None\n" + weightMod("score") + kCausal, {.mods = {"weight_mod", "mask_mod"}}))
            .hasWeightMod());
  const Mod given = take(Mod::parse("from torch.nn.attention.flex_attention import flex_attention\n" + text +
                                    "out = flex_attention(q, k, v, weight_mod=gate)\n"));
  CHECK(given.hasWeightMod());
  REQUIRE(given.choices().size() == 1);
  CHECK(given.choices()[0].kind == "weight_mod");
}

TEST_CASE("fast forward and decode kernels take a weight_mod") {
  const Mod mod = take(Mod::parse(weightMod("torch.sigmoid(score)")));
  const Compiler compiler({.cacheMode = CompilerOptions::CacheMode::Off});
  for (const char* arch : {"sm_80", "sm_90a"})
    for (KernelKind kind : {KernelKind::Forward, KernelKind::Decode})
      CHECK(take(compiler.plan(mod, {.kind = kind, .arch = arch})).options().family != Family::Naive);
  CHECK(take(compiler.plan(mod, {.kind = KernelKind::Backward, .arch = "sm_90a"})).options().family == Family::Naive);
}
