// Low-rank terms: which scores have one, and that score plus products of the factors is what score_mod is.
#include "analysis/low_rank.h"
#include "analysis/traced.h"
#include "helpers/derived_by.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/printer.h"

#include <catch2/catch.hpp>

#include <random>

using namespace attnc;

namespace {

const char kCaptures[] = "u: f32[B, H, Q_LEN, 16]\nw: f32[B, H, KV_LEN, 16]\nkeys: bf16[KV_LEN, 20]\nqueries: "
                         "f32[Q_LEN, 20]\nbias: f32[Q_LEN, KV_LEN]\nsigns: i8[KV_LEN, 16]\ngain: float";

ir::Module scoreOf(const std::string& expression) { return test::scoreMod(kCaptures, expression); }

analysis::LowRank found(const std::string& expression) { return analysis::lowRank(scoreOf(expression)); }

/// Compares both forms of the score for all coordinates of a small problem.
void checkMeaning(const std::string& expression, int64_t rank) {
  const ir::Module module = scoreOf(expression);
  INFO(ir::print(module));
  const ir::Module split = test::derivedBy("derive-low-rank", module);
  const ProblemShape problem{.batch = 2, .qHeads = 2, .kvHeads = 1, .qLen = 3, .kvLen = 4};
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> u(2 * 2 * 3 * 16), w(2 * 2 * 4 * 16), queries(3 * 20), bias(3 * 4);
  for (std::vector<float>* values : {&u, &w, &queries, &bias})
    for (float& value : *values) value = normal(random);
  std::vector<uint16_t> keys(4 * 20);
  for (uint16_t& key : keys) key = uint16_t(0x3f00 + random() % 256);
  std::vector<int8_t> signs(4 * 16);
  for (int8_t& sign : signs) sign = random() % 2 ? 1 : -1;
  Captures captures;
  captures.set("u", TensorView::contiguous(u.data(), DType::F32, {2, 2, 3, 16}))
      .set("w", TensorView::contiguous(w.data(), DType::F32, {2, 2, 4, 16}))
      .set("queries", TensorView::contiguous(queries.data(), DType::F32, {3, 20}))
      .set("keys", TensorView::contiguous(keys.data(), DType::BF16, {4, 20}))
      .set("bias", TensorView::contiguous(bias.data(), DType::F32, {3, 4}))
      .set("signs", TensorView::contiguous(signs.data(), DType::I8, {4, 16}))
      .set("gain", 0.75);
  auto bindings = ir::bind(module, captures, problem);
  if (!bindings) FAIL(bindings.error().message);
  const auto of = [&](const ir::Module& from, llvm::StringRef name) {
    REQUIRE(from.output(name));
    return ir::Evaluator(from, *bindings, *from.output(name));
  };
  const ir::Evaluator whole = of(module, ir::kScore), rest = of(split, ir::kScore), q = of(split, ir::kQFactor),
                      kv = of(split, ir::kKvFactor);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t row = 0; row < 3; ++row)
        for (int64_t column = 0; column < 4; ++column) {
          double term = 0;
          for (int64_t r = 0; r < rank; ++r) // factors see only their own side
            term += q.evaluate(0, b, h, row, 0, 0, r).real * kv.evaluate(0, b, h, 0, column, 0, r).real;
          const float score = normal(random);
          CHECK(rest.evaluate(float(score + term), b, h, row, column).real ==
                Approx(whole.evaluate(score, b, h, row, column).real).margin(2e-5));
        }
}

const std::string kDot = "(u[b, h, q_idx] @ w[b, h, kv_idx])", kOther = "(queries[q_idx] * keys[kv_idx]).sum()";

} // namespace

TEST_CASE("scores lose their low-rank term and keep their meaning", "[low_rank]") {
  for (auto [expression, rank] : std::initializer_list<std::pair<std::string, int64_t>>{
           {"score + " + kDot, 16},
           {kDot + " * gain + score", 16},
           {"score - " + kDot + " / gain", 16},
           {"score + (keys[kv_idx] / 3.0 * gain * (queries[q_idx] / gain)).sum()", 20},
           {"score + " + kDot + " / (keys[kv_idx, 1] * gain)", 16},
           {"score + (keys[q_idx] * queries[kv_idx] * queries[0]).sum()", 20},
           {"score + bias[q_idx, kv_idx] - gain * " + kDot + " + q_idx", 16},
           {"torch.tanh((score + " + kDot + ") / 20.0) * 20.0", 16},
           {"score + " + kDot + " + " + kOther, 36},
           {"score + (" + kOther + " - " + kDot + ") * queries[q_idx, 3]", 36},
           {"score + ((u[b, h, q_idx] + 1.0) * keys[kv_idx, 2] * w[b, h, kv_idx]).sum()", 16},
           {"score + (u[b, h, q_idx] * (w[b, h, kv_idx] + signs[kv_idx])).sum()", 16},
           {"score + u[b, h, q_idx, 1] * w[b, h, kv_idx, 1] - queries[q_idx, 2] * keys[kv_idx, 3]", 2},
           {"score - (queries[q_idx, 0] - keys[kv_idx, 0]) * queries[q_idx, 1]", 1},
           {"score + gain * (2.0 * " + kDot + " - (w[b, h, kv_idx] ** 2).sum() - (u[b, h, q_idx] ** 2).sum())", 16}}) {
    INFO(expression);
    const analysis::LowRank low = found(expression);
    REQUIRE(low.term);
    CHECK(low.term->rank == rank);
    CHECK(low.why == "");
    checkMeaning(expression, rank);
  }
}

TEST_CASE("scores that use the score elsewhere, or add no product of two sides, have no low-rank term", "[low_rank]") {
  for (auto [expression, why] : std::initializer_list<std::pair<std::string, std::string>>{
           {"score * 2.0 + " + kDot, "the sum of products is not added to the score as it is given"},
           {"torch.tanh(score) + " + kDot, "the sum of products is not added to the score as it is given"},
           {kDot + " - score", "the sum of products is not added to the score as it is given"},
           {kDot, "the sum of products is not added to the score as it is given"},
           {"torch.maximum(score, score + " + kDot + ")", "score_mod also uses the score without the sum of products"},
           {"torch.maximum(score * 2.0, score + " + kDot + ")",
            "score_mod also uses the score without the sum of products"},
           {"torch.where(score > 1.0, score + " + kDot + ", 0.0)",
            "score_mod also uses the score without the sum of products"},
           {"torch.where(bias[q_idx, kv_idx] > 0, score + " + kDot + ", score)",
            "score_mod also uses the score without the sum of products"},
           {"score + ((u[b, h, q_idx] - w[b, h, kv_idx]) ** 2).sum()", ""},
           {"score + (u[b, h, q_idx] * w[b, h, kv_idx] * bias[q_idx, kv_idx]).sum() ** 2", ""},
           {"score + torch.sqrt(" + kDot + ")", "the sum of products is not added to the score as it is given"},
           {"score + bias[q_idx, kv_idx]", ""},
           {"score + queries[q_idx, 0] + keys[kv_idx, 0]", ""},
           {"score", ""}}) {
    INFO(expression);
    const analysis::LowRank low = found(expression);
    CHECK_FALSE(low.term);
    CHECK(low.why == why);
  }
}

TEST_CASE("factors of a side are numbers of bf16 only if all of them are", "[low_rank]") {
  const auto isBf16 = [](const std::string& expression, bool ofQ = false) {
    const analysis::LowRank low = found(expression);
    REQUIRE(low.term);
    return ofQ ? low.term->qIsBf16 : low.term->kvIsBf16;
  };
  CHECK(isBf16("score + (keys[q_idx] * gain * queries[kv_idx]).sum()", true));
  CHECK(isBf16("score - (keys[q_idx] * queries[kv_idx]).sum() / gain", true));
  CHECK_FALSE(isBf16("score + (keys[q_idx] * queries[kv_idx] * queries[0]).sum()", true));
  CHECK_FALSE(isBf16("score + " + kOther, true));
  CHECK(isBf16("score + " + kOther));
  CHECK(isBf16("score + (u[b, h, q_idx] * signs[kv_idx]).sum()"));
  CHECK(isBf16("score + (u[b, h, q_idx] * -torch.abs(signs[kv_idx].float())).sum()"));
  CHECK_FALSE(isBf16("score + " + kDot));
  CHECK_FALSE(isBf16("score + " + kOther + " + " + kDot));
  CHECK(isBf16("score + (queries[q_idx] * (keys[kv_idx] / 3.0 * gain)).sum()")); // gains go to the other side
  CHECK_FALSE(isBf16("score + (queries[q_idx] * (keys[kv_idx] + 3.0)).sum()"));
  CHECK_FALSE(isBf16("score + (queries[q_idx] * keys[kv_idx] * keys[kv_idx, 0]).sum()"));
}

TEST_CASE("sums that lead to many products are left in time", "[low_rank]") {
  std::string text = "u: f32[Q_LEN]\nw: f32[KV_LEN]\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
                     "    x = u[q_idx] * w[kv_idx] + u[q_idx]\n";
  for (int i = 0; i < 60; ++i) text += "    x = x + x * u[q_idx]\n";
  const ir::Module module = test::piped(text + "    return score + x\n");
  const analysis::LowRank low = analysis::lowRank(module);
  CHECK((!low.term || low.term->parts.size() < 2048));
}
