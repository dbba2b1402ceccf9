// Gradients against central differences in fp64, at kinks against what PyTorch takes, and as text.
#include "dsl/frontend.h"
#include "ir/hash.h"
#include "ir/interpreter.h"
#include "ir/printer.h"
#include "ir/reader.h"
#include "passes/autodiff.h"
#include "passes/gradient_stops.h"
#include "passes/pipeline.h"
#include "support/differences.h"
#include "support/random_module.h"
#include "support/same_meaning.h"

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

ir::Module traced(const std::string& text) {
  auto module = dsl::trace(text, {.name = "gradients.py"});
  if (!module) FAIL(module.error().message);
  if (Status ok = runPipeline(*module, {.verify = true}); !ok) FAIL(ok.error().message);
  return std::move(*module);
}

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
  auto bindings = ir::bind(gradients.module, captures, kProblem);
  REQUIRE(bindings);
  INFO(ir::print(gradients.module));
  const auto value = gradients.module.output(output);
  if (!value) return 0;
  return ir::Evaluator(gradients.module, *bindings, *value).evaluate(float(score), 0, 0, 0, 0, 1).real;
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
    // A factor and a term, so that the gradient that arrives is neither `grad` nor alone.
    const Value result = module.make(row.op, Type::F32, operands), score = module.param(ir::ParamKind::Score);
    module.setOutput(ir::kScore, module.make(Op::Mul, Type::F32, {result, score}));
    Judged judged;
    for (int i = 0; i < 400; ++i) {
      Captures captures;
      captures.set("x", sampleScore(3 * i + 1)).set("z", sampleScore(7 * i + 2));
      auto bindings = ir::bind(module, captures, kProblem);
      REQUIRE(bindings);
      Tried tried(module, *bindings);
      INFO("x " << sampleScore(3 * i + 1) << ", z " << sampleScore(7 * i + 2));
      tried.compareCaptures(pointOf(i, kProblem), judged);
      tried.compareScore(pointOf(i, kProblem), judged);
    }
    CHECK(judged.compared > 400);
  }
  CHECK(tried >= 24);
}

TEST_CASE("gradients of random modules are what central differences say", "[autodiff]") {
  Judged ofScore, ofCaptures;
  int reached = 0, rounds = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    test::RandomModule random(seed + 70000, {.operations = int(10 + seed % 40), .transcendental = seed % 2 == 0});
    if (seed % 3) REQUIRE(removeGradientStops(random.module)); // as they come from the pipeline, and raw
    if (hasGradientStops(random.module)) continue;
    auto bindings = ir::bind(random.module, random.captures, random.problem);
    REQUIRE(bindings);
    Widened wide(random.module, *bindings);
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
  CHECK(ofCaptures.compared > 1500);
}
