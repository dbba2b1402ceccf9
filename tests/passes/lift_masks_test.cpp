// Masks in score_mod: which become a part of mask_mod, that attention means the same, and that loops are bounded then.
#include "helpers/derived_by.h"
#include "helpers/same_meaning.h"
#include "helpers/traced.h"
#include "ir/hash.h"
#include "ir/loops.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "passes/pipeline.h"
#include "passes/rebuild.h"

#include <catch2/catch.hpp>

using namespace attnc;
using namespace attnc::passes;

namespace {

ir::Module moduleOf(const std::string& text) { return test::piped(text, {.verify = true}); }

/// Scores with masks in them, around values of a random module.
class MaskedScores {
public:
  MaskedScores(test::RandomModule& from, uint64_t seed) : module(from.module), random(seed) {
    const std::vector<ir::LoopSet> open = ir::openLoops(module);
    for (uint32_t id = 0; id < module.size(); ++id) {
      if (open[id]) continue; // a round of a sum, and nothing outside it
      if (module[{id}].type == ir::Type::F32) reals.push_back({id});
      if (module[{id}].type == ir::Type::Bool) bools.push_back({id});
    }
  }

  ir::Value score(int depth) {
    if (depth == 0) return below(2) ? module.param(ir::ParamKind::Score) : reals[below(reals.size())];
    ir::Value x = score(depth - 1);
    switch (below(15)) {
    case 0:
    case 1:
    case 2: return select(condition(2), x, infinity(-1));
    case 3: return select(condition(2), infinity(-1), x);
    case 4: return make(ir::Op::Add, x, select(condition(1), module.constF32(0), infinity(-1)));
    case 5: return make(ir::Op::Sub, x, select(condition(1), module.constF32(0), infinity(1)));
    case 6: return make(ir::Op::Mul, x, module.constF32(below(2) ? 2.f : -0.5f));
    case 7: return make(ir::Op::Div, x, module.constF32(below(2) ? 4.f : -1.f));
    case 8: return module.make(ir::Op::Neg, ir::Type::F32, {x});
    case 9: return make(below(2) ? ir::Op::Min : ir::Op::Max, x, score(depth - 1));
    case 10: return module.make(ir::Op::Tanh, ir::Type::F32, {x});
    case 11: return make(ir::Op::Add, x, score(depth - 1));
    case 12:
      return select(condition(2), x,
                    module.constF32(below(2) ? -1e9f : std::numeric_limits<float>::lowest())); // no mask
    default: return select(condition(1), x, score(depth - 1));
    }
  }

private:
  uint64_t below(uint64_t bound) { return random() % bound; }
  ir::Value infinity(int sign) { return module.constF32(float(sign) * std::numeric_limits<float>::infinity()); }
  ir::Value make(ir::Op op, ir::Value x, ir::Value y) { return module.make(op, ir::Type::F32, {x, y}); }
  ir::Value select(ir::Value condition, ir::Value x, ir::Value y) {
    return module.make(ir::Op::Select, ir::Type::F32, {condition, x, y});
  }

  ir::Value condition(int depth) {
    if (depth == 0 || below(3) == 0) {
      if (below(3)) return bools[below(bools.size())];
      return module.make(ir::Op::Lt, ir::Type::Bool, {module.constF32(0.5), module.param(ir::ParamKind::Score)});
    }
    ir::Value x = condition(depth - 1);
    if (below(4) == 0) return module.make(ir::Op::Not, ir::Type::Bool, {x});
    return module.make(below(2) ? ir::Op::And : ir::Op::Or, ir::Type::Bool, {x, condition(depth - 1)});
  }

  ir::Module& module;
  std::mt19937_64 random;
  std::vector<ir::Value> reals, bools;
};

/// Whether an infinity is left in what score_mod needs.
bool hasInfinity(const ir::Module& module) {
  std::vector<bool> needed = ir::neededByOutputs(module);
  for (uint32_t id = 0; id < module.size(); ++id)
    if (needed[id] && module.isConst({id}) && module[{id}].type == ir::Type::F32 && std::isinf(module.f32({id})))
      return true;
  return false;
}

} // namespace

TEST_CASE("lifting masks out of random scores changes nothing for attention") {
  int lifting = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    test::RandomModule random(seed + 50000, {.operations = 12, .longRows = seed % 4 == 3});
    random.module.setOutput(ir::kScore, MaskedScores(random, seed).score(2 + int(seed % 4)));
    if (seed % 3 == 0) random.module.dropOutput(ir::kMask);
    ir::Module before = random.module, after = before, piped = before;
    REQUIRE(findPass("lift-masks")->run(after, {}));
    INFO("seed " << seed << "\n--- before\n" << ir::print(before) << "--- after\n" << ir::print(after));
    REQUIRE_FALSE(ir::verify(after));
    test::requireSameMeaning(before, after, random.captures, random.problem, 60, test::Sameness::Attention);
    REQUIRE(runPipeline(piped, {.verify = true}));
    test::requireSameMeaning(before, piped, random.captures, random.problem, 30, test::Sameness::Attention);
    lifting += after.liftsMasks;
    ir::Module twice = after;
    twice.liftsMasks = false;
    REQUIRE(findPass("lift-masks")->run(twice, {}));
    CHECK_FALSE(twice.liftsMasks);
  }
  CHECK(lifting > 500);
}

TEST_CASE("a mask is lifted however it is spelled, and the score keeps nothing of it") {
  for (const char* score :
       {"where(q_idx >= kv_idx, score, -inf)", "where(q_idx < kv_idx, float('-inf'), score)",
        "score.masked_fill(q_idx < kv_idx, -float('inf'))", "score + where(q_idx >= kv_idx, 0.0, -inf)",
        "score - where(q_idx >= kv_idx, 0, inf)", "where(q_idx < kv_idx, -inf, 0.0) + score",
        "where(kv_idx > q_idx, -inf, where(kv_idx > q_idx, -inf, score))",
        "minimum(score, where(q_idx >= kv_idx, inf, -inf))",
        "where(q_idx >= kv_idx, score, torch.finfo(torch.float32).min * 2)"}) {
    INFO(score);
    ir::Module lifted = moduleOf(score), mask = moduleOf("q_idx >= kv_idx");
    CHECK(lifted.liftsMasks);
    CHECK_FALSE(hasInfinity(lifted));
    REQUIRE(lifted.output(ir::kMask));
    // Without a score, the result is the mod with the same mask_mod.
    if (lifted.output(ir::kScore) && lifted[*lifted.output(ir::kScore)].op == ir::Op::Param) {
      lifted.dropOutput(ir::kScore);
      CHECK(ir::canonicalHash(lifted) == ir::canonicalHash(mask));
    }
  }
}

TEST_CASE("a causal score_mod as published bounds its loop like a mask_mod") {
  const std::string head = "def score_mod(score, b, h, q_idx, kv_idx):\n    return ";
  const std::string mask = "\ndef mask_mod(b, h, q_idx, kv_idx):\n    return q_idx >= kv_idx\n";
  for (const auto& [masked, plain] :
       {std::pair("torch.where(q_idx >= kv_idx, score, -float(\"inf\"))", "score"),
        std::pair("torch.where(q_idx >= kv_idx, score * 0.5 + (kv_idx - q_idx), float('-inf'))",
                  "score * 0.5 + (kv_idx - q_idx)"),
        std::pair("torch.where(q_idx >= kv_idx, score, -float('inf')) * 2", "score * 2"),
        std::pair("20 * torch.tanh(score / 20) + torch.where(q_idx >= kv_idx, 0, -float('inf'))",
                  "20 * torch.tanh(score / 20)")}) {
    INFO(masked);
    ir::Module lifted = moduleOf(head + masked + "\n"), two = moduleOf(head + plain + "\n" + mask);
    CHECK(test::hasBounds(lifted));
    CHECK(ir::canonicalHash(lifted) == ir::canonicalHash(two));
  }
}

TEST_CASE("what is no mask stays in the score") {
  for (const char* score : {"tanh(where(q_idx >= kv_idx, score, -inf))", "exp(where(q_idx >= kv_idx, score, -inf))",
                            "where(q_idx >= kv_idx, score, -1e30)", "where(q_idx >= kv_idx, score, inf)",
                            "where(score > 0, score, -inf)", "where((score > 0) | (q_idx >= kv_idx), score, -inf)",
                            "maximum(where(q_idx >= kv_idx, score, -inf), 0)", "-where(q_idx >= kv_idx, score, -inf)",
                            "where(q_idx >= kv_idx, score, -inf) * h", "where(q_idx >= kv_idx, score, -inf) * 0",
                            "score * where(q_idx >= kv_idx, 1, -inf)", "where(q_idx >= kv_idx, score, nan)"}) {
    INFO(score);
    ir::Module module = moduleOf(score);
    CHECK_FALSE(module.liftsMasks);
    CHECK_FALSE(module.output(ir::kMask));
  }
}

TEST_CASE("of a condition that asks for the score, the rest is lifted") {
  ir::Module module = moduleOf("where((q_idx >= kv_idx) & (score > 1), score, -inf)");
  CHECK(module.liftsMasks);
  CHECK(test::hasBounds(module));
  CHECK(hasInfinity(module));
  module = moduleOf("where((q_idx < kv_idx) | (score < 1), -inf, score)");
  CHECK(test::hasBounds(module));
}

TEST_CASE("a lifted mask joins the mask_mod of the text") {
  ir::Module module =
      moduleOf("def score_mod(score, b, h, q_idx, kv_idx):\n    return torch.where(q_idx >= kv_idx, score, "
               "-float('inf'))\ndef mask_mod(b, h, q_idx, kv_idx):\n    return q_idx - kv_idx < 64\n");
  ir::Module both = moduleOf("(q_idx >= kv_idx) & (q_idx - kv_idx < 64)");
  module.dropOutput(ir::kScore);
  CHECK(ir::canonicalHash(module) == ir::canonicalHash(both));
}

TEST_CASE("scores of any depth are lifted in linear time") {
  ir::Module module;
  ir::Value score = module.param(ir::ParamKind::Score), q = module.param(ir::ParamKind::QIdx);
  ir::Value infinity = module.constF32(-std::numeric_limits<float>::infinity());
  for (int i = 0; i < 20000; ++i) {
    ir::Value test = module.make(ir::Op::Le, ir::Type::Bool, {module.constInt(ir::Type::I32, i), q});
    score = module.make(ir::Op::Select, ir::Type::F32, {test, score, infinity});
  }
  module.setOutput(ir::kScore, score);
  const size_t size = module.size();
  REQUIRE(findPass("lift-masks")->run(module, {}));
  CHECK(module.liftsMasks);
  CHECK(module.size() < 2 * size);
}
