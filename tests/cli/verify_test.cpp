#include "commands/verify.h"

#include "attnc/explain.h"
#include "helpers/simulated_kernel.h"
#include "helpers/take.h"
#include "support/element.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

using namespace attnc;
using namespace attnc::cli;

namespace {

constexpr const char* kBias = "bias: f32[Q_LEN, KV_LEN]\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
                              "  return score + bias[q_idx, kv_idx]\n";

/// A problem as `attnc run --random --backward` draws it.
struct Drawn {
  Mod mod;
  ProblemOptions options;
  HostOperands operands;
  reference::GradientResult want;

  Drawn(const std::string& text, DType dtype, std::optional<LargeScores> large, ProblemShape shape = {1, 2, 1, 48, 160},
        const char* gradients = "none")
      : mod(*Mod::parse(text)) {
    options.random = RandomProblem{shape, 64};
    options.target.dtype = dtype == DType::BF16 ? "bf16" : dtype == DType::F16 ? "fp16" : "fp32";
    options.large = large;
    options.backward = true;
    options.gradients.captures = {gradients};
    auto found = take(findOperands(mod, options));
    operands = std::move(found);
    want = computed(mod);
  }

  reference::GradientResult computed(const Mod& of) const { return take(runReference(of, operands, options)); }

  /// What a kernel would give that computes this.
  RunResult rounded(const reference::GradientResult& of) const {
    RunResult result;
    const auto store = [](const std::vector<double>& values, DType dtype, const std::vector<int64_t>& shape) {
      HostTensor tensor = HostTensor::make(dtype, shape);
      reference::store(values, tensor.view());
      return tensor;
    };
    const DType dtype = operands.q.dtype;
    result.out = store(of.forward.out, dtype, operands.dOut.shape);
    result.lse = store(of.forward.lse, DType::F32, rowsOf(operands));
    result.rowMax = store(of.forward.rowMax, DType::F32, rowsOf(operands));
    result.gradients["dq"] = store(of.dQ, dtype, operands.q.shape);
    result.gradients["dk"] = store(of.dK, dtype, operands.k.shape);
    result.gradients["dv"] = store(of.dV, dtype, operands.v.shape);
    for (const auto& [name, values] : of.captures) {
      const TensorView like = std::get<TensorView>(*operands.gradients.find(name));
      result.gradients["d_" + name] = store(values, like.dtype, {like.shape.begin(), like.shape.begin() + like.rank});
    }
    return result;
  }

  const HostTensor& captured(const char* name) const { return operands.tensors.at(name); }
  Verification verified(const RunResult& got) const { return *verify(mod, operands, options, got, want); }
  RunResult simulated(const Mod& of) const { return test::simulated(of, operands, options); }
};

/// A causal problem whose first row is masked, computed by the reference and rounded as a kernel would.
struct Fixture {
  Mod mod;
  ProblemOptions options;
  HostOperands operands;
  reference::GradientResult want;
  RunResult got;

  explicit Fixture(DType dtype, const char* text = "q_idx > kv_idx") : mod(*Mod::parse(text)) {
    std::mt19937 random(3);
    std::normal_distribution<double> draw;
    for (HostTensor* tensor : {&operands.q, &operands.k, &operands.v}) {
      *tensor = HostTensor::make(dtype, {1, 2, 40, 16});
      for (int64_t i = 0; i < tensor->elements(); ++i) writeElement(tensor->bytes.data(), dtype, i, draw(random));
    }
    auto computed = take(reference::attention(
        mod.module(), {}, {.q = operands.q.view(), .k = operands.k.view(), .v = operands.v.view()}));
    want.forward = computed;
    got.out = HostTensor::make(dtype, {1, 2, 40, 16});
    got.lse = got.rowMax = HostTensor::make(DType::F32, {1, 2, 40});
    reference::store(want.forward.out, got.out.view());
    reference::store(want.forward.lse, got.lse.view());
    reference::store(want.forward.rowMax, got.rowMax.view());
  }

  /// Gradients as well.
  void addGradients() {
    options.backward = true;
    operands.dOut = operands.q;
    auto computed = take(runReference(mod, operands, options));
    want = std::move(computed);
    for (auto [name, values] : {std::pair("dq", &want.dQ), {"dk", &want.dK}, {"dv", &want.dV}}) {
      HostTensor& tensor = got.gradients[name] = HostTensor::make(operands.q.dtype, operands.q.shape);
      reference::store(*values, tensor.view());
    }
  }

  Verification run() const { return *verify(mod, operands, options, got, want); }

  static void put(HostTensor& tensor, int64_t index, double value) {
    writeElement(tensor.bytes.data(), tensor.dtype, index, value);
  }
  static double get(const HostTensor& tensor, int64_t index) {
    return readElement(tensor.bytes.data(), tensor.dtype, index).real;
  }
};

} // namespace

TEST_CASE("products of a low-rank term may be rounded in bf16, and in no other dtype", "[verify]") {
  // Its products are as large as 64.
  const char* const text = "score + 64.0 * torch.sin(0.5 * q_idx) * torch.cos(0.25 * kv_idx)";
  for (auto [dtype, error, holds] : {std::tuple(DType::BF16, 0.75 * 0x1p-8, true),
                                     {DType::BF16, 1.5 * 0x1p-8, false},
                                     {DType::F16, 0.75 * 0x1p-10, false}}) {
    Fixture fixture(dtype, text);
    CHECK(lowRankFactsOf(fixture.mod, {}, fixture.want.forward.problem)->size == Approx(64).epsilon(0.01));
    writeElement(fixture.got.lse.bytes.data(), DType::F32, 5, fixture.want.forward.lse[5] + error);
    CHECK(fixture.run().holds() == holds);
    fixture.options.kernel.lowRankError = 0x1p-7f;
    CHECK(fixture.run().holds() == (dtype == DType::BF16));
  }
  CHECK(lowRankFactsOf(*Mod::parse("q_idx >= kv_idx"), {}, {1, 1, 1, 8, 8})->size == 0);
}

TEST_CASE("gradients of k and v may be sums of stored parts where a low-rank term makes copies of keys", "[verify]") {
  const bool perHead = GENERATE(true, false);
  const std::string text = fmt::format("u: bf16[H, Q_LEN, 8]\nw: bf16[H, KV_LEN, 8]\n"
                                       "def score_mod(score, b, h, q_idx, kv_idx):\n"
                                       "  return score + 0.5 * (u[h, q_idx] @ w[{}, kv_idx])\n"
                                       "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n",
                                       perHead ? "h" : "0");
  const Drawn drawn(text, DType::BF16, std::nullopt, {2, 4, 1, 150, 150}, "all");
  const RunResult right = drawn.simulated(drawn.mod);
  CHECK(drawn.verified(right).holds());
  // The last key's row of dV has one part of each of the four query heads. Each is off by up to a roundoff as its
  // weight is rounded, and by one more if it is stored.
  const double roundoff = 0x1p-8;
  int found = 0;
  for (int64_t batch = 0; batch < 2; ++batch)
    for (int64_t column = 0; column < 64; ++column) {
      double size = 0, sum = 0;
      for (int64_t h = 0; h < 4; ++h) {
        const int64_t row = (batch * 4 + h) * 150 + 149;
        double score = 0, dO = Fixture::get(drawn.operands.dOut, row * 64 + column);
        for (int64_t i = 0; i < 64; ++i)
          score += Fixture::get(drawn.operands.q, row * 64 + i) *
                   Fixture::get(drawn.operands.k, (batch * 150 + 149) * 64 + i) / 8;
        for (int64_t r = 0; r < 8; ++r)
          score += 0.5 * Fixture::get(drawn.captured("u"), (h * 150 + 149) * 8 + r) *
                   Fixture::get(drawn.captured("w"), ((perHead ? h : 0) * 150 + 149) * 8 + r);
        const double part = std::exp(score - drawn.want.forward.lse[size_t(row)]) * dO;
        size += std::fabs(part), sum += part;
      }
      const int64_t index = (batch * 150 + 149) * 64 + column;
      REQUIRE(sum == Approx(drawn.want.dV[size_t(index)]).margin(1e-6));
      if (size < 8 * std::fabs(sum)) continue;
      ++found;
      for (double error : {1.7 * roundoff * size, 3.5 * roundoff * size}) {
        RunResult off = right;
        Fixture::put(off.gradients["dv"], index, sum + error);
        CHECK(drawn.verified(off).holds() == (perHead && error < 2 * roundoff * size));
      }
    }
  CHECK(found > 0);
}

TEST_CASE("a correctly rounded result holds, its masked row too") {
  DType dtype = GENERATE(DType::BF16, DType::F16, DType::F32);
  Fixture fixture(dtype);
  CHECK(Fixture::get(fixture.got.lse, 0) == -std::numeric_limits<double>::infinity());
  Verification result = fixture.run();
  CHECK(result.holds());
  CHECK(result.out.comparison.rmse() > 0);
  CHECK_THAT(result.text(), !Catch::Contains("DIFFERS"));
}

TEST_CASE("one wrong element of any output is found") {
  DType dtype = GENERATE(DType::BF16, DType::F16, DType::F32);
  const double infinity = std::numeric_limits<double>::infinity();
  for (double error : {0.25, std::numeric_limits<double>::quiet_NaN(), infinity}) {
    Fixture out(dtype), lse(dtype), rowMax(dtype);
    Fixture::put(out.got.out, 700, Fixture::get(out.got.out, 700) + error);
    CHECK_FALSE(out.run().out.holds());
    CHECK_THAT(out.run().text(), Catch::Contains("DIFFERS") && Catch::Contains("element 700 is "));
    Fixture::put(lse.got.lse, 33, Fixture::get(lse.got.lse, 33) + error);
    CHECK_FALSE(lse.run().holds());
    Fixture::put(rowMax.got.rowMax, 33, Fixture::get(rowMax.got.rowMax, 33) + error);
    CHECK_FALSE(rowMax.run().holds());
  }
  Fixture masked(dtype);
  Fixture::put(masked.got.lse, 0, 0.0);
  CHECK(masked.run().lse.comparison.misplaced() == 1);
  CHECK_FALSE(masked.run().holds());
}

TEST_CASE("an error spread over all elements is found by its RMSE") {
  Fixture fixture(DType::BF16);
  Verification exact = fixture.run();
  double step = exact.out.rmseLimit * 1.5;
  REQUIRE(step < exact.out.maxLimit / 4);
  for (int64_t i = 0; i < fixture.got.out.elements(); ++i)
    Fixture::put(fixture.got.out, i, fixture.want.forward.out[size_t(i)] + (i % 2 ? step : -step));
  CHECK_FALSE(fixture.run().out.holds());
}

TEST_CASE("one wrong element of any gradient is found") {
  DType dtype = GENERATE(DType::BF16, DType::F16, DType::F32);
  Fixture exact(dtype);
  exact.addGradients();
  CHECK(exact.run().holds());
  CHECK(exact.run().gradients.size() == 3);
  for (const char* name : {"dq", "dk", "dv"}) {
    CHECK_THAT(exact.run().text(), Catch::Contains(std::string("verify      ") + name));
    for (double error : {0.25, std::numeric_limits<double>::quiet_NaN()}) {
      Fixture wrong(dtype);
      wrong.addGradients();
      HostTensor& tensor = wrong.got.gradients[name];
      Fixture::put(tensor, 700, Fixture::get(tensor, 700) + error);
      CHECK_FALSE(wrong.run().holds());
      CHECK_THAT(wrong.run().text(), Catch::Contains("DIFFERS") && Catch::Contains("element 700 is "));
    }
  }
}

TEST_CASE("one wrong element of the gradient of a capture is found, whatever its size", "[verify]") {
  const DType dtype = GENERATE(DType::BF16, DType::F16, DType::F32);
  for (const char* stored : {"bf16", "f32"})
    for (double derivative : {1e-4, 1.0, 1e2}) {
      const Drawn drawn(fmt::format("bias: {}[KV_LEN]\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
                                    "  return score + {} * bias[kv_idx]\n",
                                    stored, derivative),
                        dtype, std::nullopt, {1, 2, 1, 40, 60}, "all");
      const RunResult right = drawn.simulated(drawn.mod);
      CHECK(drawn.verified(right).holds());
      CHECK(drawn.verified(right).gradients.size() == 4);
      for (double error : {derivative / 8, std::numeric_limits<double>::quiet_NaN()}) {
        RunResult wrong = right;
        // The mean of the others' sizes, since weights are far apart where derivatives are large.
        double size = 0;
        for (double each : drawn.want.captures.at("bias")) size += std::fabs(each) / 60;
        Fixture::put(wrong.gradients["d_bias"], 17,
                     Fixture::get(wrong.gradients["d_bias"], 17) + std::max(size, error));
        if (std::isnan(error)) Fixture::put(wrong.gradients["d_bias"], 17, error);
        CHECK_FALSE(drawn.verified(wrong).holds());
        CHECK_THAT(drawn.verified(wrong).text(), Catch::Contains("DIFFERS") && Catch::Contains("element 17 is "));
      }
    }
}

TEST_CASE("limits follow the operands, the mod and the arithmetic", "[verify]") {
  const auto limits = [](double factor, bool tf32, const char* text = "score") {
    Fixture fixture(DType::F32, text);
    for (int64_t i = 0; i < fixture.operands.v.elements(); ++i)
      Fixture::put(fixture.operands.v, i, factor * Fixture::get(fixture.operands.v, i));
    fixture.options.kernel.tf32 = tf32;
    fixture.addGradients();
    std::vector<double> all;
    for (const auto& [name, output] : fixture.run().gradients) all.push_back(output.maxLimit);
    return all;
  };
  const std::vector<double> plain = limits(1, false), large = limits(100, false), coarse = limits(1, true),
                            steep = limits(1, false, "4.0 * score");
  CHECK(large[0] > 50 * plain[0]);
  CHECK(large[1] > 50 * plain[1]);
  CHECK(large[2] == Approx(plain[2])); // dV = P^T dO
  for (size_t i : {0, 1}) CHECK(steep[i] > 2 * plain[i]);
  for (size_t i : {0, 1, 2}) CHECK(coarse[i] > 100 * plain[i]);
}

TEST_CASE("rows of scores that are +inf or NaN are NaN on both sides, and nothing else will do") {
  const char* text =
      "import torch\n"
      "def score_mod(score, b, h, q_idx, kv_idx):\n"
      "  bad = torch.where(q_idx % 4 == 1, torch.inf, torch.where(q_idx % 4 == 2, torch.nan, -torch.inf))\n"
      "  return torch.where(kv_idx == 7, bad, score)\n"
      "def mask_mod(b, h, q_idx, kv_idx):\n  return (q_idx < 20) | (kv_idx != 7)\n";
  DType dtype = GENERATE(DType::BF16, DType::F32);
  Fixture fixture(dtype, text);
  CHECK(fixture.run().holds());
  for (int64_t row = 0; row < 40; ++row) {
    INFO("row " << row);
    const bool isBad = row < 20 && (row % 4 == 1 || row % 4 == 2);
    for (const HostTensor* rows : {&fixture.got.lse, &fixture.got.rowMax})
      CHECK(std::isnan(Fixture::get(*rows, row)) == isBad);
    CHECK(std::isnan(Fixture::get(fixture.got.out, row * 16)) == isBad);
  }
  Fixture infinite(dtype, text), finite(dtype, text);
  Fixture::put(infinite.got.rowMax, 1, std::numeric_limits<double>::infinity());
  CHECK_FALSE(infinite.run().holds());
  Fixture::put(finite.got.out, 16, 0.0);
  CHECK_FALSE(finite.run().holds());
}

TEST_CASE("rows of v that are not finite may reach what a mask hides them from, in their columns", "[verify]") {
  Fixture fixture(DType::BF16);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(fixture.run().nonFiniteRows.empty());
  Fixture::put(fixture.got.out, 5 * 16 + 3, nan); // head 0, row 5, column 3
  CHECK_FALSE(fixture.run().holds());
  Fixture::put(fixture.operands.v, 39 * 16 + 3,
               std::numeric_limits<double>::infinity()); // the last key, which no query sees
  CHECK(fixture.run().holds());
  CHECK(fixture.run().passedOver == 1);
  CHECK_THAT(fixture.run().text(),
             Catch::Contains("a row of v is infinite or NaN") && Catch::Contains("1 elements are NaN by that"));
  Fixture::put(fixture.got.out, 5 * 16 + 3, 1e3); // a number is compared
  CHECK_FALSE(fixture.run().holds());
  Fixture::put(fixture.got.out, 5 * 16 + 3, nan);
  Fixture::put(fixture.got.out, 5 * 16 + 4, nan); // another column
  CHECK_FALSE(fixture.run().holds());
  Fixture other(DType::BF16);
  Fixture::put(other.operands.v, 39 * 16 + 3, nan);
  Fixture::put(other.got.out, (40 + 5) * 16 + 3, nan); // another head
  CHECK_FALSE(other.run().holds());
  Fixture gradients(DType::BF16);
  gradients.addGradients();
  Fixture::put(gradients.got.gradients["dq"], 7, nan);
  CHECK_FALSE(gradients.run().holds());
  Fixture::put(gradients.operands.k, 39 * 16, nan);
  CHECK(gradients.run().holds());
}

TEST_CASE("a penalty by distance may be rounded in two parts, from a row near by, and not from position 0",
          "[verify]") {
  const auto penalty = [](const std::string& sum) {
    return "slopes: f32[H]\ndef score_mod(score, b, h, q_idx, kv_idx):\n  return " + sum +
           "\ndef mask_mod(b, h, q_idx, kv_idx):\n  return kv_idx <= q_idx\n";
  };
  const auto fromOrigin = [&](const std::string& origin) {
    return *Mod::parse(
        penalty("(score + slopes[h] * (kv_idx + " + origin + ")) - slopes[h] * (q_idx + " + origin + ")"));
  };
  const Drawn drawn(penalty("score + slopes[h] * (kv_idx - q_idx)"), DType::BF16, std::nullopt);
  CHECK(drawn.verified(drawn.rounded(drawn.computed(fromOrigin("200")))).holds());
  CHECK_FALSE(drawn.verified(drawn.rounded(drawn.computed(fromOrigin("200000")))).holds());
}

TEST_CASE("results of large scores hold, and those do not in which the weights of a tile vanish", "[verify]") {
  const DType dtype = GENERATE(DType::BF16, DType::F16, DType::F32);
  const double lowest = -double(std::numeric_limits<float>::max());
  const std::string
      byKey = "bias: f32[KV_LEN]\ndef score_mod(score, b, h, q_idx, kv_idx):\n  return score + bias[kv_idx]\n",
      byQuery = "bias: f32[Q_LEN]\ndef score_mod(score, b, h, q_idx, kv_idx):\n  return score + bias[q_idx]\n",
      noop = "def score_mod(score, b, h, q_idx, kv_idx):\n  return score\n";
  int found = 0;
  for (const std::string& text : {std::string(kBias), byKey, byQuery, noop})
    for (double size : {-1e4, -1e9, lowest, 1e9})
      for (int pattern = 0; pattern < int(std::size(LargeScores::kNames)); ++pattern) {
        INFO(text << size << " " << LargeScores::kNames[pattern]);
        const Drawn drawn(text, dtype, LargeScores{size, LargeScores::Pattern(pattern)});
        const Verification right = drawn.verified(drawn.rounded(drawn.want));
        INFO(right.text());
        CHECK(right.holds());
        CHECK(right.roundedRows == 0);
        const reference::GradientResult without =
            drawn.computed(*Mod::parse(text + "def mask_mod(b, h, q_idx, kv_idx):\n  return kv_idx // 64 != 1\n"));
        double moved = 0;
        for (size_t i = 0; i < without.forward.out.size(); ++i)
          moved = std::max(moved, std::fabs(without.forward.out[i] - drawn.want.forward.out[i]));
        if (moved < 0.05) continue; // the weights were 0
        ++found;
        const Verification wrong = drawn.verified(drawn.rounded(without));
        CHECK_FALSE(wrong.out.holds());
        CHECK_FALSE(wrong.gradients.back().second.holds()); // dv
      }
  CHECK(found > 40);
}

TEST_CASE("one row of a large score that rounding decides does not hide the others", "[verify]") {
  const DType dtype = GENERATE(DType::BF16, DType::F32);
  const std::string text =
      "bias: f32[Q_LEN]\ndef score_mod(score, b, h, q_idx, kv_idx):\n  return score + bias[q_idx]\n";
  Drawn drawn(text, dtype, std::nullopt);
  drawn.options.backward = false;
  Fixture::put(drawn.operands.tensors.at("bias"), 5, -1e9);
  drawn.want = drawn.computed(drawn.mod);
  RunResult right = drawn.rounded(drawn.want);
  CHECK(drawn.verified(right).roundedRows == 2); // heads
  CHECK_THAT(drawn.verified(right).text(), Catch::Contains("rounding decides the weights of 2 rows"));
  const auto holds = [&](HostTensor RunResult::*tensor, int64_t index, double error) {
    RunResult wrong = right;
    Fixture::put(wrong.*tensor, index, Fixture::get(wrong.*tensor, index) + error);
    return drawn.verified(wrong).holds();
  };
  CHECK(holds(&RunResult::out, 5 * 64, 0.5));
  CHECK_FALSE(holds(&RunResult::out, 5 * 64, std::numeric_limits<double>::quiet_NaN()));
  for (int64_t row : {4, 6, 47}) {
    CHECK_FALSE(holds(&RunResult::out, row * 64, 0.2));
    CHECK_FALSE(holds(&RunResult::lse, row, 0.01));
    CHECK_FALSE(holds(&RunResult::rowMax, row, 0.01));
  }
  CHECK(holds(&RunResult::lse, 5, 512));
  CHECK_FALSE(holds(&RunResult::lse, 5, 1e4));
  CHECK_FALSE(holds(&RunResult::rowMax, 5, 1e4));
}

TEST_CASE("rows of large scores are compared where these are exact, and only there", "[verify]") {
  const LargeScores all{1e9, LargeScores::Pattern::All};
  const auto roundedRows = [](const Drawn& drawn) { return drawn.verified(drawn.rounded(drawn.want)).roundedRows; };
  CHECK(roundedRows(Drawn(kBias, DType::BF16, all)) == 0);
  CHECK(roundedRows(Drawn("score", DType::BF16, all)) == 0);
  for (const char* text : {"score * 0.7", "score + (kv_idx - q_idx) * 0.3", "tanh(score / 1e9) * 1e9"}) {
    const Drawn drawn(std::string("from torch import tanh\ndef score_mod(score, b, h, q_idx, kv_idx):\n  return ") +
                          text + "\n",
                      DType::BF16, all);
    CHECK(roundedRows(drawn) == 96);
  }
  Drawn scaled(kBias, DType::BF16, all), inexact(kBias, DType::BF16, all), coarse(kBias, DType::F32, all);
  scaled.options.scale = 0.3;
  CHECK(roundedRows(scaled) == 96);
  Fixture::put(inexact.operands.k, 0, 1 + 0x1p-7);
  CHECK(roundedRows(inexact) == 0);
  for (int64_t i = 0; i < 64; ++i) Fixture::put(inexact.operands.k, i, i % 2 ? 0x1p-12 : 1.0);
  CHECK(roundedRows(inexact) == 96);
  coarse.options.kernel.tf32 = true;
  CHECK(roundedRows(coarse) == 0);
  Fixture::put(coarse.operands.k, 0, 1 + 0x1p-12); // no TF32
  CHECK(roundedRows(coarse) == 96);
}

TEST_CASE("gradients in f32 may be off by the rounding of lse", "[verify]") {
  const auto limit = [](double bias) {
    Drawn drawn("bias: f32[Q_LEN]\ndef score_mod(score, b, h, q_idx, kv_idx):\n  return score + bias[q_idx]\n",
                DType::F32, std::nullopt, {1, 2, 1, 10, 20});
    Fixture::put(drawn.operands.tensors.at("bias"), 5, bias);
    drawn.want = drawn.computed(drawn.mod);
    return drawn.verified(drawn.rounded(drawn.want)).gradients[0].second.maxLimit;
  };
  CHECK(limit(-4000) > 10 * limit(3));
}

TEST_CASE("errors of half the limit that one rule for all mods would need are found", "[verify]") {
  // The rule: 2 roundings of the largest element of v, and as much for scores; 32 roundings of gradients of standard
  // normal operands.
  const DType dtype = GENERATE(DType::BF16, DType::F16, DType::F32);
  const double ofOut = dtype == DType::BF16  ? 0x1p-8
                       : dtype == DType::F16 ? 0x1p-11
                                             : 0x1p-20,
               ofScores = 0x1p-20 * 8, // of the size of q and k, rows of 64 numbers, times the scale
      ofGradients = dtype == DType::BF16  ? 0x1p-9
                    : dtype == DType::F16 ? 0x1p-12
                                          : 0x1p-16;
  for (const char* body : {"score", "20.0 * torch.tanh(score / 20.0)", "score + slopes[h] * (kv_idx - q_idx)"})
    for (const char* mask : {"", "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n"}) {
      const std::string text = fmt::format("import torch\nslopes: f32[H]\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
                                           "  return {}\n{}",
                                           body, mask);
      INFO(text);
      const Drawn drawn(text, dtype, std::nullopt, {1, 2, 2, 128, 128}, "all");
      const RunResult right = drawn.simulated(drawn.mod);
      const Verification verified = drawn.verified(right);
      INFO(verified.text());
      CHECK(verified.holds());
      const auto bounds = boundsOf(drawn.mod, drawn.operands, drawn.options, drawn.want);
      double largestOfV = 0;
      for (int64_t i = 0; i < drawn.operands.v.elements(); ++i)
        largestOfV = std::max(largestOfV, std::fabs(Fixture::get(drawn.operands.v, i)));
      // Where a query has few keys, the largest elements of v may be nearly all of out.
      const auto found = [](const std::vector<double>& limits, double error) {
        return double(std::count_if(limits.begin(), limits.end(), [&](double limit) { return error > limit; })) /
               double(limits.size());
      };
      CHECK(found(bounds->out, (ofOut + ofScores) * largestOfV) > (dtype == DType::F32 ? 0.7 : 0.99));
      for (const auto* limits : {&bounds->dQ, &bounds->dK, &bounds->dV}) CHECK(found(*limits, 16 * ofGradients) > 0.9);
    }
}

TEST_CASE("roundings of mods that amplify hold, and faults do not", "[verify]") {
  struct Case {
    const char* dtype;
    bool tf32;
  };
  const Case given =
      GENERATE(Case{"bf16", false}, Case{"fp16", false}, Case{"fp32", false}, Case{"fp32", true}, Case{"e4m3", false});
  for (const char* body :
       {"score", "score * score", "8.0 * score", "torch.exp(0.75 * score)", "torch.floor(4.0 * score) + 0.5 * score",
        "torch.where(score > 0.25, score, 3.0 * score - 1.0)", "1.0 / (torch.abs(score) + 0.05)",
        "torch.abs(score) ** 2.5", "(score + 3000.0) - 3000.0", "-4.0 * (score - bias[kv_idx]) ** 2"}) {
    const auto modOf = [&](const char* mask) {
      return take(Mod::parse(fmt::format("import torch\nbias: f32[KV_LEN]\n"
                                         "def score_mod(score, b, h, q_idx, kv_idx):\n  return {}\n"
                                         "def mask_mod(b, h, q_idx, kv_idx):\n  return {}\n",
                                         body, mask)));
    };
    const Mod mod = modOf("kv_idx <= q_idx + 8");
    ProblemOptions options;
    options.random = RandomProblem{{1, 2, 1, 32, 48}, 64};
    options.target.dtype = given.dtype;
    options.kernel.tf32 = given.tf32;
    if (given.dtype == std::string("e4m3")) options.target.fp8.scales = "heads";
    options.backward = given.dtype != std::string("e4m3");
    auto operands = take(findOperands(mod, options));
    const auto want = take(runReference(mod, operands, options));
    const auto holds = [&](const RunResult& got) {
      const auto verification = take(verify(mod, operands, options, got, want));
      UNSCOPED_INFO(verification.text());
      return verification.holds();
    };
    const RunResult right = test::simulated(mod, operands, options);
    {
      INFO(given.dtype << (given.tf32 ? ", tf32: " : ": ") << body);
      CHECK(holds(right));
    }
    INFO(given.dtype << (given.tf32 ? ", tf32: " : ": ") << body);
    CHECK_FALSE(holds(test::simulated(modOf("(kv_idx <= q_idx + 8) & (kv_idx != 5)"), operands, options)));
    CHECK_FALSE(holds(test::simulated(modOf("kv_idx <= q_idx + 9"), operands, options)));
    ProblemOptions scaled = options;
    scaled.scale = (given.tf32 ? 1.05 : 1.01) / 8;
    CHECK_FALSE(holds(test::simulated(mod, operands, scaled)));
    RunResult swapped = right;
    const size_t row = swapped.out.bytes.size() / 64; // two heads of 32 rows
    std::swap_ranges(swapped.out.bytes.begin() + ptrdiff_t(10 * row), swapped.out.bytes.begin() + ptrdiff_t(11 * row),
                     swapped.out.bytes.begin() + ptrdiff_t(20 * row));
    CHECK_FALSE(holds(swapped));
  }
}

TEST_CASE("gradients of outputs hold, and those without one of them do not") {
  const char* const text = "far: f32[H, KV_LEN]\nslopes: f32[H]\n"
                           "def score_mod(score, b, h, q_idx, kv_idx):\n"
                           "  return score + slopes[h] * 0.02 * (kv_idx - q_idx)\n"
                           "def mask_mod(b, h, q_idx, kv_idx):\n  return kv_idx <= q_idx + 60\n"
                           "def surprise(prob, score, b, h, q_idx, kv_idx):\n"
                           "  return where(prob > 0, -prob * log(prob), 0.0)\n"
                           "def weight(prob, score, b, h, q_idx, kv_idx):\n  return prob * far[h, kv_idx]\n"
                           "def logit(prob, score, b, h, q_idx, kv_idx):\n  return 0.05 * score * score\n"
                           "entropy: f32[B, H, Q_LEN] = reduce_sum(surprise)\n"
                           "sums: f32[B, H, KV_LEN] = reduce_sum(weight)\n";
  for (DType dtype : {DType::BF16, DType::F16, DType::F32})
    for (const char* more : {"", "logits: f32[B, H] = reduce_sum(logit)\n"}) {
      Drawn drawn(std::string(text) + more, dtype, {}, {1, 2, 1, 48, 160}, "all");
      INFO(dtypeName(dtype) << " " << more);
      const Verification right = drawn.verified(drawn.simulated(drawn.mod));
      INFO(right.text());
      CHECK(right.holds());
      CHECK(right.gradients.size() == 5);
      for (const CaptureInfo& gradient : drawn.mod.reductionGradients()) {
        INFO(gradient.name);
        std::vector<char>& bytes = drawn.operands.tensors.at(gradient.name).bytes;
        const std::vector<char> kept = bytes;
        std::fill(bytes.begin(), bytes.end(), char(0)); // views of it stay
        const RunResult wrong = drawn.simulated(drawn.mod);
        std::copy(kept.begin(), kept.end(), bytes.begin());
        CHECK_FALSE(drawn.verified(wrong).holds());
      }
    }
}
