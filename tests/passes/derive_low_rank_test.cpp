// Low-rank terms: which scores have one, and that score plus products of the factors is what score_mod is.
#include "analysis/gradient_access.h"
#include "analysis/low_rank.h"
#include "helpers/derived_by.h"
#include "helpers/traced.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/printer.h"
#include "passes/autodiff.h"
#include "passes/factor_gradients.h"

#include <catch2/catch.hpp>

#include <llvm/ADT/STLExtras.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>

using namespace attnc;

namespace {

const char kCaptures[] = "u: f32[B, H, Q_LEN, 16]\nw: f32[B, H, KV_LEN, 16]\nkeys: bf16[KV_LEN, 20]\nqueries: "
                         "f32[Q_LEN, 20]\nbias: f32[Q_LEN, KV_LEN]\nsigns: i8[KV_LEN, 16]\ngain: float";

ir::Module scoreOf(const std::string& expression) { return test::scoreMod(kCaptures, expression); }

analysis::LowRank found(const std::string& expression) { return analysis::lowRank(scoreOf(expression)); }

/// The captures of a small problem.
struct Values {
  const ProblemShape problem{.batch = 2, .qHeads = 2, .kvHeads = 1, .qLen = 3, .kvLen = 4};
  std::mt19937 random{7};
  std::normal_distribution<float> normal;
  std::vector<float> u, w, queries, bias;
  std::vector<uint16_t> keys;
  std::vector<int8_t> signs;
  Captures captures;

  Values() : u(2 * 2 * 3 * 16), w(2 * 2 * 4 * 16), queries(3 * 20), bias(3 * 4), keys(4 * 20), signs(4 * 16) {
    for (std::vector<float>* values : {&u, &w, &queries, &bias})
      for (float& value : *values) value = normal(random);
    for (uint16_t& key : keys) key = uint16_t(0x3f00 + random() % 256);
    for (int8_t& sign : signs) sign = random() % 2 ? 1 : -1;
    captures.set("u", TensorView::contiguous(u.data(), DType::F32, {2, 2, 3, 16}))
        .set("w", TensorView::contiguous(w.data(), DType::F32, {2, 2, 4, 16}))
        .set("queries", TensorView::contiguous(queries.data(), DType::F32, {3, 20}))
        .set("keys", TensorView::contiguous(keys.data(), DType::BF16, {4, 20}))
        .set("bias", TensorView::contiguous(bias.data(), DType::F32, {3, 4}))
        .set("signs", TensorView::contiguous(signs.data(), DType::I8, {4, 16}))
        .set("gain", 0.75);
  }
};

/// Compares both forms of the score for all coordinates of a small problem.
void checkMeaning(const std::string& expression, int64_t rank) {
  const ir::Module module = scoreOf(expression);
  INFO(ir::print(module));
  const ir::Module split = test::derivedBy("derive-low-rank", module);
  Values values;
  auto& [problem, random, normal, u, w, queries, bias, keys, signs, captures] = values;
  auto bindings = take(ir::bind(module, captures, problem));
  const auto of = [&](const ir::Module& from, llvm::StringRef name) {
    REQUIRE(from.output(name));
    return ir::Evaluator(from, bindings, *from.output(name));
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

/// Compares the gradients of captures in columns, summed over rounds of rows and of columns, with those summed over
/// scores; and what the module without the term says of the score.
void checkGradients(const std::string& expression, const std::set<std::string>& inColumns) {
  const ir::Module module = scoreOf(expression);
  const std::vector<std::string> names = passes::floatCaptures(module);
  auto whole = take(passes::differentiate(module, names));
  const ir::CaptureGradients gradients{names, whole.captures};
  auto made = take(passes::factorGradients(whole.module, gradients));
  INFO(ir::print(made.module));
  std::set<std::string> found;
  for (const ir::CaptureGradient& place : made.gradients.places) found.insert(place.capture);
  CHECK(found == inColumns);
  const ir::Module split = test::derivedBy("derive-low-rank", whole.module);
  Values values;
  auto bindings = take(ir::bind(whole.module, values.captures, values.problem));
  const auto of = [&](const ir::Module& from, llvm::StringRef name) {
    return ir::Evaluator(from, bindings, *from.output(name));
  };
  const int64_t rank = analysis::lowRank(whole.module).term->rank;
  const ir::Evaluator q = of(made.module, ir::kQFactor), kv = of(made.module, ir::kKvFactor),
                      dWhole = of(whole.module, ir::kDScore), dSplit = of(split, ir::kDScore);
  struct Element {
    int64_t b, h, row, column;
    float score, grad;
    double dScore;
  };
  std::vector<Element> elements;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t row = 0; row < 3; ++row)
        for (int64_t column = 0; column < 4; ++column) {
          double term = 0;
          for (int64_t r = 0; r < rank; ++r)
            term += q.evaluate(0, b, h, row, 0, 0, r).real * kv.evaluate(0, b, h, 0, column, 0, r).real;
          const float score = values.normal(values.random), grad = values.normal(values.random);
          const double dScore = dSplit.evaluate(float(score + term), b, h, row, column, grad).real;
          CHECK(dScore == Approx(dWhole.evaluate(score, b, h, row, column, grad).real).margin(2e-5));
          elements.push_back({b, h, row, column, score, grad, dScore});
        }
  using Sums = std::map<std::vector<int64_t>, double>; // by index
  const auto add = [&](Sums& sums, const ir::Module& from, const ir::CaptureGradient& place, double grad,
                       const Element& at, int64_t round) {
    std::vector<int64_t> index;
    const auto tensor = llvm::find_if(from.tensors, [&](const auto& t) { return t.name == place.capture; });
    const TensorView& shape = bindings.tensors[size_t(tensor - from.tensors.begin())];
    for (const std::string& output : place.indices) {
      const int64_t i = of(from, output).evaluate(at.score, at.b, at.h, at.row, at.column, float(grad), round).integer;
      index.push_back(std::clamp<int64_t>(i, 0, shape.shape[index.size()] - 1));
    }
    sums[index] += of(from, place.output).evaluate(at.score, at.b, at.h, at.row, at.column, float(grad), round).real;
  };
  for (const std::string& name : inColumns) {
    Sums ofScores, ofFactors;
    for (const ir::CaptureGradient& place : gradients.places)
      for (const Element& at : elements)
        for (int64_t round = 0; place.capture == name && round < place.rounds; ++round)
          add(ofScores, whole.module, place, at.grad, at, round);
    for (const ir::CaptureGradient& place : made.gradients.places) {
      if (place.capture != name) continue;
      CHECK(place.ofFactor);
      const bool isOfQ = analysis::gradientAccesses(made.module, {place})[0].reach == analysis::Reach::Row;
      std::map<std::array<int64_t, 4>, double> gradientOf; // of a factor: b, h, row or column, round
      for (const Element& at : elements)
        for (int64_t round = 0; round < rank; ++round)
          gradientOf[{at.b, at.h, isOfQ ? at.row : at.column, round}] +=
              at.dScore * (isOfQ ? kv.evaluate(0, at.b, at.h, 0, at.column, 0, round).real
                                 : q.evaluate(0, at.b, at.h, at.row, 0, 0, round).real);
      for (const auto& [at, grad] : gradientOf)
        add(ofFactors, made.module, place, grad,
            {at[0], at[1], isOfQ ? at[2] : 0, isOfQ ? 0 : at[2], 0.f, float(grad), 0}, at[3]);
    }
    for (const auto& [index, sum] : ofScores) CHECK(ofFactors[index] == Approx(sum).margin(2e-4));
    for (const auto& [index, sum] : ofFactors)
      if (!ofScores.count(index)) CHECK(sum == 0);
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

TEST_CASE("gradients of factors add up to those of scores", "[low_rank]") {
  const std::set<std::string> both = {"u", "w"};
  checkGradients("score + " + kDot, both);
  checkGradients("score - " + kDot + " / gain", both);
  checkGradients("torch.tanh((score + " + kDot + ") / 20.0) * 20.0", both);
  checkGradients("score + bias[q_idx, kv_idx] - gain * " + kDot + " + q_idx", both);
  checkGradients("score + " + kDot + " + " + kOther, {"u", "w", "keys", "queries"});
  checkGradients("score + (" + kOther + " - " + kDot + ") * queries[q_idx, 3]", {"u", "w", "keys", "queries"});
  checkGradients("score + ((torch.exp(u[b, h, q_idx]) + 1.0) * keys[kv_idx, 2] * w[b, h, kv_idx]).sum()",
                 {"u", "w", "keys"});
  // Also read elsewhere in the score, even by the same load; on both sides; at an index that knows no row.
  checkGradients("score + gain * (2.0 * " + kDot + " - (w[b, h, kv_idx] ** 2).sum() - (u[b, h, q_idx] ** 2).sum())",
                 {});
  checkGradients("score + " + kDot + " + u[b, h, q_idx, kv_idx]", {"w"});
  checkGradients("score + (queries[q_idx] * queries[kv_idx]).sum()", {});
  checkGradients("score + (keys[q_idx] * queries[kv_idx] * queries[0]).sum()", {"keys"});
  checkGradients("score + (u[0, 0, 0] * u[b, h, q_idx] * w[b, h, kv_idx]).sum()", {"w"});
}

TEST_CASE("scores that use the score elsewhere, or add no product of two sides, have no low-rank term", "[low_rank]") {
  const std::string kSquares = "squares of differences are not divided: write x @ x + y @ y - 2 * (x @ y)";
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
           {"score + ((u[b, h, q_idx] - w[b, h, kv_idx]) ** 2).sum()", kSquares},
           {"score - ((keys[kv_idx] - queries[q_idx]) ** 2).sum() / gain", kSquares},
           {"score + bias[q_idx, kv_idx] - 0.5 * (u[b, h, q_idx, :4] - w[b, h, kv_idx, :4]).square().sum()", kSquares},
           {"score - (u[b, h, q_idx, :3] - w[b, h, kv_idx, :3]).square().sum()", ""}, // rank 3 would gain nothing
           {"score - torch.exp(-((u[b, h, q_idx] - w[b, h, kv_idx]) ** 2).sum())", ""},
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
