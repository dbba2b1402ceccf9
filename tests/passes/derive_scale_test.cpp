// Factors taken out of score_mod: out * f(in * score) is what score_mod is.
#include "helpers/derived_by.h"
#include "helpers/traced.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/printer.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

using namespace attnc;
using test::derivedBy;

namespace {

ir::Module scoreOf(const std::string& expression) { return test::scoreMod("cap: float\nslopes: f32[H]\n", expression); }

/// Which factors are there: "in out", "in", "out" or "".
std::string factorsOf(const std::string& expression) {
  const ir::Module scaled = derivedBy("derive-scale", scoreOf(expression));
  const bool in = scaled.output(ir::kScaleIn).has_value(), out = scaled.output(ir::kScaleOut).has_value();
  return std::string(in ? "in" : "") + (in && out ? " " : "") + (out ? "out" : "");
}

void checkMeaning(const std::string& expression) {
  ir::Module module = scoreOf(expression);
  INFO(ir::print(module));
  const ir::Module scaled = derivedBy("derive-scale", module);
  REQUIRE((scaled.output(ir::kScaleIn) || scaled.output(ir::kScaleOut)));
  const ProblemShape problem{.batch = 1, .qHeads = 3, .kvHeads = 1, .qLen = 9, .kvLen = 9};
  std::vector<float> slopes = {0.25f, -2.0f, 0.5f};
  for (double cap : {30.0, 1.5, -1.5, -30.0, 1e-3}) {
    Captures captures;
    captures.set("cap", cap).set("slopes", TensorView::contiguous(slopes.data(), DType::F32, {3}));
    auto bindings = take(ir::bind(module, captures, problem));
    ir::Evaluator whole(module, bindings, *module.output(ir::kScore));
    ir::Evaluator inside(scaled, bindings, *scaled.output(ir::kScore));
    auto factor = [&](std::optional<ir::Value> value, int64_t h) {
      return value ? ir::Evaluator(scaled, bindings, *value).evaluate(0, 0, h, 0, 0).real : 1.0;
    };
    for (int64_t h = 0; h < 3; ++h)
      for (double score : {0.0, 0.75, -3.0, 12.5, -60.0}) {
        double in = factor(scaled.output(ir::kScaleIn), h), out = factor(scaled.output(ir::kScaleOut), h);
        double want = whole.evaluate(float(score), 0, h, 5, 2).real;
        INFO("cap " << cap << " h " << h << " score " << score << " in " << in << " out " << out);
        CHECK(out > 0);
        const double sumOfTerms = 1e-6 * std::min(1.0, std::fabs(cap)); // terms near 1 may cancel
        CHECK(out * inside.evaluate(float(in * score), 0, h, 5, 2).real ==
              Approx(want).epsilon(1e-5).margin(sumOfTerms));
      }
  }
}

} // namespace

TEST_CASE("soft caps and scaled scores lose their factors and keep their meaning", "[scaled_score]") {
  for (const char* expression :
       {"cap * torch.tanh(score / cap)", "torch.tanh(score / cap) * cap", "cap * torch.tanh(score * (1 / cap))",
        "50.0 * torch.tanh(score / 50.0)", "-50.0 * torch.tanh(score / 50.0)", "slopes[h] * torch.tanh(score / cap)",
        "cap * torch.tanh(score * 0.5 / 3.0 / cap)", "cap * torch.tanh(score)",
        "cap * torch.tanh(score / cap) + slopes[h] * (kv_idx - q_idx)", "score * cap + slopes[h] * (kv_idx - q_idx)",
        "2.0 * (score * torch.sigmoid(score))", "2.0 * torch.where(q_idx >= kv_idx, score / cap, score / cap - 1.0)"}) {
    INFO(expression);
    checkMeaning(expression);
  }
}

TEST_CASE("a factor leaves only where its sign is known or does not matter", "[scaled_score]") {
  CHECK(factorsOf("cap * torch.tanh(score / cap)") == "in out");
  CHECK(factorsOf("cap * torch.sigmoid(score / cap)") == "in");
  CHECK(factorsOf("2.0 * torch.sigmoid(score)") == "out");
  CHECK(factorsOf("cap * torch.tanh(score / cap) + kv_idx") == "in");
  CHECK(factorsOf("cap * torch.tanh(score / cap + slopes[h])") == "in");
  CHECK(factorsOf("cap * torch.sigmoid(score)") == "");
}

TEST_CASE("a score that is used twice, or only scaled, keeps its form", "[scaled_score]") {
  CHECK(factorsOf("score") == "");
  CHECK(factorsOf("score * cap") == "");
  CHECK(factorsOf("score / 2.0") == "");
  CHECK(factorsOf("score + slopes[h] * (kv_idx - q_idx)") == "");
  CHECK(factorsOf("score / cap + score") == "");
  CHECK(factorsOf("score * q_idx + 1.0") == "");
  CHECK(factorsOf("cap / score") == "");
}
