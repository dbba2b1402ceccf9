// What a backward kernel may leave out for a mod.
#include "analysis/mod_facts.h"
#include "helpers/traced.h"
#include "passes/autodiff.h"

#include <catch2/catch.hpp>

using namespace attnc;

namespace {

/// Returns the facts of the mod and its gradient, as kernels take them.
analysis::ModFacts factsOf(const std::string& score) {
  auto gradients = take(passes::differentiate(test::scoreMod("bias: f32[H]\ncap: float\nw: f32[H]\n", score), {}));
  return analysis::modFacts(gradients.module);
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
