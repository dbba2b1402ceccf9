// Factors of score_mod that are known per head.
#include "analysis/score_factors.h"
#include "helpers/traced.h"

using namespace attnc;
using test::scoreMod;

namespace {

const char* const kCaptures = "cap: float\nw: f32[H]\nrow: f32[Q_LEN]";

} // namespace

TEST_CASE("a soft cap has a factor inside and one around it", "[score-factors]") {
  const auto soft = take(analysis::scoreFactors(scoreMod(kCaptures, "cap * torch.tanh(score / cap)")));
  REQUIRE(soft.in.size() == 1);
  CHECK(soft.in[0].divides);
  CHECK(soft.in[0].line == 6);
  REQUIRE(soft.out);
  CHECK_FALSE(soft.out->divides);
  CHECK(soft.signUnknown); // tanh takes the sign
}

TEST_CASE("factors of the score are found in their order, those around need a sign", "[score-factors]") {
  const ir::Module module = scoreMod(kCaptures, "torch.exp(score * w[h] / cap) * 3");
  const auto factors = take(analysis::scoreFactors(module));
  REQUIRE(factors.in.size() == 2);
  CHECK(module[factors.in[0].value].op == ir::Op::Load);
  CHECK(module[factors.in[1].value].op == ir::Op::Scalar);
  CHECK(factors.in[1].divides);
  REQUIRE(factors.out);
  CHECK_FALSE(factors.signUnknown);
  // exp is not odd, so a factor of unknown sign stays around it.
  const auto unknown = take(analysis::scoreFactors(scoreMod(kCaptures, "torch.exp(score * 2) * w[h]")));
  CHECK_FALSE(unknown.out);
  CHECK(unknown.in.size() == 1);
}

TEST_CASE("what is no factor stays in the body", "[score-factors]") {
  for (const char* score :
       {"score", "score * w[h]", "score + w[h]", "torch.tanh(score)", "torch.tanh(score * row[q_idx])"}) {
    INFO(score);
    CHECK_FALSE(analysis::scoreFactors(scoreMod(kCaptures, score)));
  }
  const ir::Module module = scoreMod(kCaptures, "torch.tanh(score * w[h] + row[q_idx]) + row[q_idx]");
  const auto factors = take(analysis::scoreFactors(module));
  CHECK(factors.in.size() == 1);
  CHECK_FALSE(factors.out);
  CHECK(factors.body == *module.output(ir::kScore));
}
