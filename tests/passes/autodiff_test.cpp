// Gradients against central differences in fp64, at kinks against what PyTorch takes, and as text.
#include "helpers/differences.h"
#include "helpers/random_module.h"
#include "helpers/same_meaning.h"
#include "helpers/traced.h"
#include "ir/bind.h"
#include "ir/hash.h"
#include "ir/interpreter.h"
#include "ir/levels.h"
#include "ir/printer.h"
#include "ir/reader.h"
#include "passes/autodiff.h"
#include "passes/gradient_stops.h"
#include "passes/pipeline.h"

#include <catch2/catch.hpp>

#include <cmath>

using namespace attnc;
using namespace attnc::passes;
using ir::Op;
using ir::Type;
using ir::Value;
using test::gradientsOf;
using test::Judged;
using test::kProblem;
using test::Point;
using test::pointOf;
using test::sampleScore;
using test::Tried;
using test::Widened;

namespace {

ir::Module traced(const std::string& text) { return test::piped(text, {.verify = true}); }

ir::Module scoreMod(const std::string& expression, const std::string& captures = "") {
  return traced("import torch\nimport torch.nn.functional as F\n" + captures +
                "def score_mod(score, b, h, q_idx, kv_idx):\n  return " + expression + "\n");
}

/// d_score of an expression over score and the scalars x and z, for grad = 1, as f32 arithmetic gives it.
double derivative(const std::string& output, const std::string& expression, double score, double x = 0, double z = 0) {
  const ir::Module module = scoreMod(expression, "x: float\nz: float\n");
  const Gradients gradients = gradientsOf(module);
  Captures captures;
  captures.set("x", x).set("z", z);
  auto bindings = take(ir::bind(gradients.module, captures, kProblem));
  INFO(ir::print(gradients.module));
  const auto value = gradients.module.output(output);
  if (!value) return 0;
  return ir::Evaluator(gradients.module, bindings, *value).evaluate(float(score), 0, 0, 0, 0, 1).real;
}

} // namespace

TEST_CASE("each derivative of the table is what central differences say", "[autodiff]") {
  struct Row {
    Op op;
    const char* text;
  };
  const Row rows[] = {
#define OP(Name, text, ...) {Op::Name, text},
#include "ir/ops.def"
  };
  int tried = 0;
  for (const Row& row : rows) {
    const ir::OpInfo& info = ir::info(row.op);
    if (!info.passesGradients || row.op == Op::Sum) continue;
    ++tried;
    INFO(row.text);
    ir::Module module;
    module.scalars = {{"x", Type::F32}, {"z", Type::F32}};
    const bool isSelect = row.op == Op::Select;
    llvm::SmallVector<Value, 3> operands;
    if (isSelect)
      operands.push_back(module.make(Op::Lt, Type::Bool, {module.param(ir::ParamKind::Score), module.constF32(0.5)}));
    for (unsigned i = 0; operands.size() < size_t(info.arity); ++i) operands.push_back(module.scalar(i));
    // Adds a factor and a term, so that the incoming gradient is not plain `grad`.
    const Value result = module.make(row.op, Type::F32, operands), score = module.param(ir::ParamKind::Score);
    module.setOutput(ir::kScore, module.make(Op::Mul, Type::F32, {result, score}));
    Judged judged;
    for (int i = 0; i < 400; ++i) {
      Captures captures;
      captures.set("x", sampleScore(3 * i + 1)).set("z", sampleScore(7 * i + 2));
      auto bindings = take(ir::bind(module, captures, kProblem));
      Tried tried(module, bindings);
      INFO("x " << sampleScore(3 * i + 1) << ", z " << sampleScore(7 * i + 2));
      tried.compareCaptures(pointOf(i, kProblem), judged);
      tried.compareScore(pointOf(i, kProblem), judged);
    }
    CHECK(judged.compared > 250);
  }
  CHECK(tried >= 35);
}

TEST_CASE("gradients of random modules are what central differences say", "[autodiff]") {
  Judged ofScore, ofCaptures;
  int reached = 0, rounds = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    test::RandomModule random(seed + 70000, {.operations = int(10 + seed % 40), .transcendental = seed % 2 == 0});
    if (seed % 3) REQUIRE(removeGradientStops(random.module)); // as they come from the pipeline, and raw
    if (hasGradientStops(random.module)) continue;
    auto bindings = take(ir::bind(random.module, random.captures, random.problem));
    Widened wide(random.module, bindings);
    Tried tried(wide.module, wide.bindings);
    INFO("seed " << seed << "\n" << ir::print(wide.module) << "---\n" << ir::print(tried.gradients.module));
    reached += hasScoreGradient(tried.gradients.module);
    for (const CaptureGradient& place : tried.gradients.captures) rounds += place.rounds > 1;
    for (int i = 0; i < 8; ++i) {
      const Point at = pointOf(int(seed) * 8 + i, random.problem);
      if (!tried.isTame(at)) continue;
      tried.compareScore(at, ofScore);
      if (i < 2) tried.compareCaptures(at, ofCaptures);
    }
  }
  CAPTURE(ofScore.compared, ofScore.left, ofCaptures.compared, ofCaptures.left, reached, rounds);
  CHECK(reached > 200);
  CHECK(rounds > 20);
  CHECK(ofScore.compared > 1500);
  CHECK(ofCaptures.compared > 1400);
}

TEST_CASE("derivatives at kinks are PyTorch's", "[autodiff]") {
  const double inf = INFINITY;
  struct Row {
    const char *expression, *output;
    double score, x, z, want;
  };
  const Row rows[] = {
      {"torch.abs(score)", "d_score", 0, 0, 0, 0},
      {"torch.abs(score)", "d_score", -2, 0, 0, -1},
      {"F.relu(score)", "d_score", 0, 0, 0, 0},
      {"F.relu(score)", "d_score", -0.0, 0, 0, 0},
      {"F.relu(score)", "d_score", 1e-30, 0, 0, 1},
      {"F.leaky_relu(score, 0.25)", "d_score", 0, 0, 0, 0.25},
      {"torch.maximum(score, x)", "d_score", 2, 2, 0, 0.5},
      {"torch.maximum(score, x)", "d_x_0", 2, 2, 0, 0.5},
      {"torch.maximum(score, x)", "d_score", 1, 2, 0, 0},
      {"torch.minimum(score, x)", "d_score", 1, 2, 0, 1},
      {"torch.minimum(score, x)", "d_x_0", 2, 2, 0, 0.5},
      {"torch.maximum(score, h.float())", "d_score", 0, 0, 0, 0.5},
      {"torch.minimum(score, x.detach())", "d_score", 2, 2, 0, 0.5},
      {"torch.clamp(score, min=x)", "d_score", 2, 2, 0, 1},
      {"torch.clamp(score, max=x)", "d_x_0", 2, 2, 0, 0},
      {"torch.clamp(score, max=x)", "d_x_0", 3, 2, 0, 1},
      {"torch.clamp(score, -1, 1)", "d_score", 1, 0, 0, 1},
      {"torch.clamp(score, -1, 1)", "d_score", -1, 0, 0, 1},
      {"torch.clamp(score, -1, 1)", "d_score", 1.5, 0, 0, 0},
      {"torch.floor(score) + torch.round(score) + torch.sign(score) + score // 2", "d_score", 1, 0, 0, 0},
      {"torch.trunc(score) * score", "d_score", 2, 0, 0, 2},
      {"score % x", "d_score", 6, 3, 0, 1},
      {"score % x", "d_x_0", -7, 3, 0, 3},
      {"torch.fmod(score, x)", "d_score", -7, 3, 0, 1},
      {"torch.fmod(score, x)", "d_x_0", -7, 3, 0, 2},
      {"torch.fmod(score, x)", "d_x_0", -1e6, INFINITY, 0, 0},
      {"torch.stack([score, x]).norm()", "d_score", 0, 0, 0, 0},
      {"torch.stack([score, x]).norm()", "d_x_0", 0, 0, 0, 0},
      {"torch.stack([score, x]).norm()", "d_x_0", 3, -4, 0, -0.8f},
      {"torch.norm(torch.stack([torch.stack([score, x]), torch.stack([z, z])]), dim=-1).sum()", "d_score", 0, 0, 2, 0},
      {"(torch.arange(20) * score).norm()", "d_score", 0, 0, 0, 0},
      {"torch.sqrt(score)", "d_score", 0, 0, 0, inf},
      {"torch.rsqrt(score)", "d_score", 0, 0, 0, -inf},
      {"torch.log(score)", "d_score", 0, 0, 0, inf},
      {"score ** x", "d_score", 0, 0, 0, 0},
      {"score ** x", "d_score", 0, 0.5, 0, inf},
      {"score ** x", "d_score", 0, 2, 0, 0},
      {"score ** x", "d_x_0", 0, 2, 0, 0},
      {"score ** x", "d_x_0", 0, 0, 0, 0},
      {"score ** x", "d_x_0", -2, 2, 0, NAN},
      {"score ** 2", "d_score", 0, 0, 0, 0},
      {"torch.asin(score)", "d_score", 1, 0, 0, inf},
      {"torch.acos(score)", "d_score", -1, 0, 0, -inf},
      {"torch.acosh(score)", "d_score", 1, 0, 0, inf},
      {"torch.atanh(score)", "d_score", -1, 0, 0, inf},
      {"torch.asinh(score)", "d_score", -1e30, 0, 0, 0},
      {"torch.erfc(score)", "d_score", 30, 0, 0, 0},
      {"torch.atan2(score, x)", "d_score", 0, 0, 0, 0},
      {"torch.atan2(score, x)", "d_x_0", 0, 0, 0, 0},
      {"torch.atan2(score, x)", "d_score", -0.0, -1, 0, -1},
      {"torch.atan2(score, x)", "d_x_0", 2, 0, 0, -0.5},
      {"torch.hypot(score, x)", "d_score", 0, 0, 0, NAN},
      {"torch.hypot(score, x)", "d_score", 3e30, 0, 0, 1},
      {"torch.hypot(score, x)", "d_x_0", 0, -2, 0, -1},
      {"torch.sinc(score)", "d_score", 0, 0, 0, 0},
      {"torch.sinc(score)", "d_score", INFINITY, 0, 0, NAN},
      {"F.softplus(score)", "d_score", 100, 0, 0, 1},
      {"F.logsigmoid(score)", "d_score", -100, 0, 0, 1},
      {"F.logsigmoid(score)", "d_score", 0, 0, 0, 0.5},
      {"torch.where(score > x, score * 2, score * 3)", "d_score", 1, 1, 0, 3},
      {"torch.where(score > x, score * 2, score * 3)", "d_x_0", 1, 1, 0, 0},
      {"score.detach() * score", "d_score", 3, 0, 0, 3},
      {"(score * x).detach() + z", "d_score", 3, 2, 1, 0},
      {"(score * x).detach() + z", "d_x_0", 3, 2, 1, 0},
      {"score * x.detach() + x", "d_x_0", 3, 2, 1, 1},
      {"score.int() * x + score", "d_score", 3, 2, 1, 1},
  };
  for (const Row& row : rows) {
    const double got = derivative(row.output, row.expression, row.score, row.x, row.z);
    INFO(row.output << " of " << row.expression << " at " << row.score << ", " << row.x << ": " << got << " for "
                    << row.want);
    CHECK((std::isnan(row.want) ? std::isnan(got) : got == row.want));
  }
}

TEST_CASE("the derivative of sinc keeps its digits near 0", "[autodiff]") {
  for (double x : {1e-20, 1e-4, 0.01, 0.0795, 0.0796, 0.1}) {
    const double y = M_PI * x,
                 exact = x < 0.02 ? -M_PI * y / 3 * (1 - y * y / 10) : M_PI * (std::cos(y) - std::sin(y) / y) / y;
    CHECK(derivative("d_score", "torch.sinc(score)", x) == Approx(exact).epsilon(1e-5));
  }
}

TEST_CASE("the branch that is not taken has no gradient, whatever its derivative is", "[autodiff]") {
  CHECK(derivative("d_score", "torch.where(score > 0, torch.sqrt(score), 0.0)", 0) == 0);
  CHECK(derivative("d_score", "torch.where(score > 0, torch.sqrt(score), score * 2)", 0) == 2);
  CHECK(derivative("d_score",
                   "torch.where(score > 1, torch.where(score > 2, torch.log(score), torch.sqrt(score)), score)",
                   0) == 1);
  CHECK(derivative("d_score", "torch.where(score > 0, torch.sqrt(score), 0.0) + torch.where(score < 0, 1 / score, 5.0)",
                   0) == 0);
  CHECK(derivative("d_score", "torch.sqrt(torch.where(score > 0, score, x)) + score", 0, 0) == 1);
  CHECK(derivative("d_x_0", "torch.where(score > 0, torch.exp(x * 1000), x)", 0, 1) == 1);
  CHECK(derivative("d_score", "torch.clamp(torch.abs(score), min=1) * 2", 0) == 0);
  // In no round of the sum is it taken.
  const std::string sum = "def score_mod(score, b, h, q_idx, kv_idx):\n"
                          "  return torch.where(w[h] > 5, w[h] * torch.sqrt(score), 1.0).sum()\n";
  const Gradients gradients = gradientsOf(traced("import torch\nw: f32[H, 20]\n" + sum));
  const std::vector<float> zeros(80, 0.f);
  Captures captures;
  captures.set("w", TensorView::contiguous(const_cast<float*>(zeros.data()), DType::F32, {4, 20}));
  auto bindings = take(ir::bind(gradients.module, captures, kProblem));
  const ir::Evaluator gradient(gradients.module, bindings, *gradients.module.output(ir::kDScore));
  CHECK(gradient.evaluate(0, 0, 0, 0, 0, 1).real == 0);
}

TEST_CASE("what is linear costs nothing, and factors that cancel are gone", "[autodiff]") {
  struct Row {
    const char *expression, *gradient;
  };
  const Row rows[] = {
      {"score", "%grad"},
      {"score + x * (kv_idx - q_idx)", "%grad"},
      {"score - x", "%grad"},
      {"-(x - score)", "%grad"},
      {"x * (score / x)", "%grad"},
      {"score * 8.0 / 8.0", "%grad"},
      {"score * 50.0 / 50.0", "%grad"},
      {"score - score", "0.0"},
      {"x", "0.0"},
      {"score.detach()", "0.0"},
      {"torch.floor(score)", "0.0"},
  };
  for (const Row& row : rows) {
    INFO(row.expression);
    const std::string text = ir::print(gradientsOf(scoreMod(row.expression, "x: float\n")).module);
    CHECK(text.find("output d_score(score, b, h, q_idx, kv_idx, grad) -> " + std::string(row.gradient) + "\n") !=
          std::string::npos);
  }
  // A soft cap takes the tanh that is there: 1 - t * t, and one product.
  const ir::Module module = gradientsOf(scoreMod("x * torch.tanh(score / x)", "x: float\n")).module;
  const ir::Node product = module[*module.output(ir::kDScore)];
  INFO(ir::print(module));
  REQUIRE(product.op == Op::Mul);
  REQUIRE(module.isParam(product.operands[0], ir::ParamKind::Grad));
  REQUIRE(module[product.operands[1]].op == Op::Sub);
  int tanhs = 0;
  for (uint32_t id = 0; id < module.size(); ++id) tanhs += module[{id}].op == Op::Tanh;
  CHECK(tanhs == 1);
  // What heads know is one factor.
  const ir::Module scaled =
      gradientsOf(scoreMod("score * s[h] / t[h] * 3.0 * s[q_idx % 4]", "s: f32[H]\nt: f32[H]\n")).module;
  INFO(ir::print(scaled));
  const ir::Node row = scaled[*scaled.output(ir::kDScore)];
  REQUIRE(row.op == Op::Mul);
  REQUIRE(scaled.isParam(row.operands[0], ir::ParamKind::Grad));
  CHECK(ir::levels(scaled)[row.operands[1].id] == ir::Level::Row);
}

TEST_CASE("each place where score_mod reads a capture has a gradient, and says where it belongs", "[autodiff]") {
  const ir::Module module =
      scoreMod("score * s[h] + s[kv_idx] * torch.tanh(s[h]) + (w[h] * v[q_idx]).sum() + zero * x + n",
               "s: f32[H]\nw: bf16[H, 24]\nv: f16[Q_LEN, 24]\nzero: f32\nx: float\nn: int\n");
  CHECK(floatCaptures(module).size() == 5); // not n
  const Gradients gradients = gradientsOf(module);
  std::map<std::string, const CaptureGradient*> byOutput;
  for (const CaptureGradient& place : gradients.captures) byOutput[place.output] = &place;
  INFO(ir::print(gradients.module));
  REQUIRE(byOutput.size() == 6);
  CHECK(byOutput.at("d_s_0")->indices == std::vector<std::string>{"d_s_0_index0"});
  CHECK(byOutput.at("d_s_1")->capture == "s");
  CHECK(byOutput.at("d_w_0")->rounds == 24);
  CHECK(byOutput.at("d_v_0")->indices.size() == 2);
  CHECK(byOutput.at("d_zero_0")->indices.empty());
  CHECK(byOutput.at("d_x_0")->rounds == 1);
  const Value index = *gradients.module.output("d_v_0_index1");
  CHECK(gradients.module.isParam(index, ir::ParamKind::Round));
  // Only what is asked for; a mod without score_mod hands its gradient on.
  auto one = take(differentiate(module, std::vector<std::string>{"w"}));
  CHECK(one.captures.size() == 1);
  CHECK(one.module.outputs().size() == 1 + 1 + 1 + 2);
  auto none = take(differentiate(traced("def mask_mod(b, h, q, k):\n  return q >= k\n")));
  CHECK(none.module.isParam(*none.module.output(ir::kDScore), ir::ParamKind::Grad));
}

TEST_CASE("gradients are outputs like others: passes settle, text reads back, hashes tell them apart", "[autodiff]") {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    test::RandomModule random(seed + 80000, {.operations = int(10 + seed % 50)});
    REQUIRE(runPipeline(random.module));
    const Gradients gradients = gradientsOf(random.module);
    ir::Module module = gradients.module;
    const std::string text = ir::print(module);
    auto again = ir::read(text);
    INFO("seed " << seed << "\n" << text);
    REQUIRE(again);
    CHECK(ir::print(*again) == text);
    CHECK(ir::canonicalHash(*again) == ir::canonicalHash(module));
    CHECK(ir::canonicalHash(module) != ir::canonicalHash(random.module));
    CHECK_FALSE(hasGradientStops(module));
    REQUIRE(runPipeline(module, {.verify = true}));
    test::requireSameMeaning(gradients.module, module, random.captures, random.problem, 20, test::Sameness::Attention);
    // The forward is what it is without gradients.
    ir::Module forward = random.module, kept = gradients.module;
    REQUIRE(removeGradientStops(forward));
    test::requireSameMeaning(forward, kept, random.captures, random.problem, 20, test::Sameness::Attention);
  }
}

TEST_CASE("gradients of long mods take time and room in proportion", "[autodiff]") {
  std::string product = "score";
  for (int i = 0; i < 400; ++i) product += " * (t[h, " + std::to_string(i) + "] + score)";
  std::string steps = "  x = score\n";
  for (int i = 0; i < 200; ++i)
    steps += "  x = torch.where(t[h, " + std::to_string(i) + "] > x, x * t[h, " + std::to_string(i + 1) +
             "], torch.sin(x))\n";
  for (const std::string& body : {"  return " + product + "\n", steps + "  return x\n"}) {
    const ir::Module module =
        traced("import torch\nt: f32[H, 400]\ndef score_mod(score, b, h, q_idx, kv_idx):\n" + body);
    const Gradients gradients = gradientsOf(module);
    CHECK(gradients.module.size() < 4 * module.size());
  }
}
