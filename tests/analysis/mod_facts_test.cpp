// What a backward kernel may leave out for a mod.
#include "analysis/mod_facts.h"
#include "dsl/frontend.h"
#include "passes/autodiff.h"
#include "passes/pipeline.h"

#include <catch2/catch.hpp>

using namespace attnc;

namespace {

/// Returns the facts of the mod and its gradient, as kernels take them.
analysis::ModFacts factsOf(const std::string& score) {
  const std::string text =
      "import torch\nbias: f32[H]\ncap: float\nw: f32[H]\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
      "    return " +
      score + "\n";
  INFO(text);
  auto module = dsl::trace(text, {});
  if (!module) FAIL(module.error().message);
  if (Status ok = passes::runPipeline(*module); !ok) FAIL(ok.error().message);
  auto gradients = passes::differentiate(*module, {});
  if (!gradients) FAIL(gradients.error().message);
  return analysis::modFacts(gradients->module);
}

} // namespace

TEST_CASE("the gradient of a score is kept where the mod adds to the score, and only there", "[mod-facts]") {
  for (const char* score : {"score", "score + bias[h]", "score - bias[h] * (q_idx - kv_idx)", "score + cap * h"}) {
    CHECK(factsOf(score).keepsGradient);
    CHECK(factsOf(score).passesGradient);
  }
  for (const char* score : {"score * w[h]", "2 * score", "score + score", "cap * torch.tanh(score / cap)",
                            "torch.where(q_idx > kv_idx, score, cap)", "-score"}) {
    CHECK_FALSE(factsOf(score).keepsGradient);
    CHECK(factsOf(score).passesGradient);
  }
  CHECK_FALSE(factsOf("cap * q_idx").passesGradient);
  CHECK_FALSE(factsOf("cap * q_idx").keepsGradient);
}
