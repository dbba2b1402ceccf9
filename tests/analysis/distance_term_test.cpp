// Penalties that are linear in the distance of q_idx and kv_idx.
#include "analysis/distance_term.h"
#include "helpers/traced.h"

using namespace attnc;
using test::scoreMod;

namespace {

const char* const kSlopes = "slopes: f32[H]\nw: f32[Q_LEN]";

} // namespace

TEST_CASE("a slope times the distance is a term of the score, whichever way it is written", "[distance-term]") {
  struct {
    const char* score;
    bool hasSlope, growsWithKv; // if the slope is positive
  } const rows[] = {{"score + slopes[h] * (kv_idx - q_idx)", true, true},
                    {"score + (q_idx - kv_idx) * slopes[h]", true, false},
                    {"score - slopes[h] * (q_idx - kv_idx)", true, true},
                    {"slopes[h] * (kv_idx - q_idx) + score", true, true},
                    {"score * 0.5 + slopes[h] + slopes[h] * (kv_idx - q_idx)", true, true},
                    {"score + (kv_idx - q_idx)", false, true}};
  for (const auto& row : rows) {
    INFO(row.score);
    const ir::Module module = scoreMod(kSlopes, row.score);
    const auto term = take(analysis::distanceTerm(module));
    CHECK(term.slope.has_value() == row.hasSlope);
    CHECK((term.isReversed == term.isSubtracted) == row.growsWithKv);
    CHECK(module.isParam(module[term.q].operands[0], ir::ParamKind::QIdx));
    CHECK(module.isParam(module[term.kv].operands[0], ir::ParamKind::KvIdx));
    CHECK(term.line == 5);
    REQUIRE_FALSE(term.path.empty());
    CHECK(term.path.front().first == *module.output(ir::kScore));
  }
}

TEST_CASE("a score that uses positions otherwise has no such term", "[distance-term]") {
  for (const char* score : {"score", "score * (kv_idx - q_idx)", "score + slopes[h] * (kv_idx + q_idx)",
                            "score + w[q_idx] * (kv_idx - q_idx)", "score + slopes[h] * (kv_idx - q_idx) + q_idx * 0.5",
                            "score + slopes[h] * torch.abs(kv_idx - q_idx)"}) {
    INFO(score);
    CHECK_FALSE(analysis::distanceTerm(scoreMod(kSlopes, score)));
  }
}
