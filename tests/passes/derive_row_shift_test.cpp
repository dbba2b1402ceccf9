// Terms of the row taken out of score_mod: f + shift is what score_mod is.
#include "helpers/derived_by.h"
#include "helpers/traced.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/printer.h"

#include <catch2/catch.hpp>

#include <cmath>

using namespace attnc;
using test::derivedBy;

namespace {

ir::Module scoreOf(const std::string& expression, const std::string& mask = "q_idx >= kv_idx") {
  return test::scoreMod("slopes: f32[H]\ncap: float\n",
                        expression + "\n\ndef mask_mod(b, h, q_idx, kv_idx):\n    return " + mask);
}

bool isSplit(const ir::Module& module) {
  return derivedBy("derive-row-shift", module).output(ir::kRowShift).has_value();
}

} // namespace

TEST_CASE("a penalty linear in the distance is split into a column's and a row's term", "[row_shift]") {
  for (const char* expression :
       {"score + slopes[h] * (kv_idx - q_idx)", "score - slopes[h] * (q_idx - kv_idx)", "(kv_idx - q_idx) + score",
        "score + slopes[h] * (q_idx - kv_idx)", "score - (kv_idx - q_idx) * slopes[h]",
        "score + 0.5 * (kv_idx - q_idx)", "cap * torch.tanh(score / cap) + slopes[h] * (kv_idx - q_idx)",
        "2.0 * (kv_idx - q_idx) - (score - slopes[h])"}) {
    ir::Module module = scoreOf(expression);
    INFO(expression << "\n" << ir::print(module));
    const ir::Module split = derivedBy("derive-row-shift", module);
    REQUIRE(split.output(ir::kRowShift));
    const ProblemShape problem{.batch = 1, .qHeads = 3, .kvHeads = 1, .qLen = 50, .kvLen = 70};
    std::vector<float> slopes = {0.25f, -2.0f, 0.3f};
    Captures captures;
    captures.set("cap", 3.0).set("slopes", TensorView::contiguous(slopes.data(), DType::F32, {3}));
    auto bindings = take(ir::bind(module, captures, problem));
    ir::Evaluator whole(module, bindings, *module.output(ir::kScore));
    ir::Evaluator rest(split, bindings, *split.output(ir::kScore));
    ir::Evaluator shift(split, bindings, *split.output(ir::kRowShift));
    ir::Evaluator column(split, bindings, *split.output(ir::kKvTerm)),
        slope(split, bindings, *split.output(ir::kKvSlope));
    for (int64_t h = 0; h < 3; ++h)
      for (int64_t q = 0; q < 50; q += 7)
        for (int64_t kv = 0; kv < 70; kv += 3) {
          constexpr double kRounding = 0x1p-15; // of terms up to 2 * 70, a few times 2^-24 of that
          double got = rest.evaluate(1.5, 0, h, q, kv).real + shift.evaluate(0, 0, h, q, 0).real;
          CHECK(got == Approx(whole.evaluate(1.5, 0, h, q, kv).real).margin(kRounding));
          // f only reads the column: it adds nothing between rows, and the column's term between columns.
          CHECK(rest.evaluate(1.5, 0, h, q, kv).real == rest.evaluate(1.5, 0, h, 0, kv).real);
          CHECK(column.evaluate(0, 0, h, 0, kv).real == float(slope.evaluate(0, 0, h, 0, 0).real * double(kv)));
          double step = rest.evaluate(1.5, 0, h, q, kv).real - rest.evaluate(1.5, 0, h, q, 0).real;
          CHECK(std::fabs(step) == Approx(std::fabs(column.evaluate(0, 0, h, 0, kv).real)).margin(kRounding));
        }
  }
}

TEST_CASE("a score that is no such sum, or needs positions elsewhere, stays as it is", "[row_shift]") {
  for (const char* expression :
       {"score", "score + slopes[h]", "score + slopes[h] * kv_idx", "score - slopes[h] * abs(q_idx - kv_idx)",
        "torch.tanh(score + slopes[h] * (kv_idx - q_idx))", "2.0 * (score + slopes[h] * (kv_idx - q_idx))",
        "score + slopes[h] * (kv_idx - q_idx) + 0.5 * torch.sin(kv_idx * 0.1)", "score + score * (kv_idx - q_idx)",
        "score + torch.sqrt(q_idx * 1.0) * (kv_idx - q_idx)"}) {
    INFO(expression);
    CHECK_FALSE(isSplit(scoreOf(expression)));
  }
  CHECK_FALSE(isSplit(scoreOf("score + slopes[h] * (kv_idx - q_idx)", "torch.sqrt(kv_idx * 1.0) < 3.0")));
  // With a factor of its own, the score does not count in natural units.
  const ir::Module scaled = derivedBy("derive-scale", scoreOf("2.0 * torch.tanh(score)"));
  REQUIRE(scaled.output(ir::kScaleOut));
  CHECK_FALSE(isSplit(scaled));
}
