// Tangents against gradients of the same module, against central differences, and what declares them.
#include "helpers/random_module.h"
#include "helpers/take.h"
#include "helpers/traced.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/printer.h"
#include "passes/autodiff.h"
#include "passes/pipeline.h"
#include "support/element.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>

using namespace attnc;
using namespace attnc::passes;

namespace {

ir::Module traced(const std::string& score, const std::string& captures) {
  return test::piped("import torch\nimport torch.nn.functional as F\n" + captures +
                         "def score_mod(score, b, h, q_idx, kv_idx):\n  return " + score + "\n",
                     {.verify = true});
}

Gradients moved(const ir::Module& module) {
  return take(differentiate(module, floatCaptures(module), {}, /*withTangents=*/true));
}

double at(const ir::Module& module, const Captures& captures, const std::string& output, float score, float grad,
          float scoreTangent, float gradTangent) {
  auto bindings =
      take(ir::bind(module, captures, ProblemShape{.batch = 1, .qHeads = 1, .kvHeads = 1, .qLen = 4, .kvLen = 4}));
  const auto value = module.output(output);
  if (!value) return 0;
  return ir::Evaluator(module, bindings, *value).evaluate(score, 0, 0, 0, 0, grad, 0, scoreTangent, gradTangent).real;
}

} // namespace

TEST_CASE("a tangent is what central differences along the direction say", "[tangents]") {
  for (const char* score :
       {"score", "score * x + z", "torch.tanh(score / x) * z", "torch.exp(-score * score) * torch.sin(z * x)",
        "torch.where(score > 0, score ** 3 * z, x / (score - 2))", "F.softplus(score * x) - torch.sqrt(z * z + 1)",
        "torch.maximum(score, x) * torch.minimum(z, score)", "score * score + torch.rsqrt(x * x + 1)"}) {
    const Gradients all = moved(traced(score, "x: float\nz: float\n"));
    const double point[] = {0.7, 1.3, -0.8, 0.9}, direction[] = {0.6, -0.4, 1.1, 0.5}; // score, x, z, grad
    const auto value = [&](const std::string& output, double step, bool isTangent) {
      const auto moved = [&](int i) { return point[i] + step * direction[i]; };
      Captures captures;
      captures.set("x", moved(1)).set("z", moved(2)).set("x_tangent", direction[1]).set("z_tangent", direction[2]);
      return at(all.module, captures, output, float(moved(0)), float(moved(3)), isTangent ? float(direction[0]) : 0,
                isTangent ? float(direction[3]) : 0);
    };
    INFO(score << "\n" << ir::print(all.module));
    const double step = 1. / 256;
    for (const char* of : {"score", "d_score"}) {
      const double expected = (value(of, step, false) - value(of, -step, false)) / (2 * step);
      INFO(of);
      CHECK(value(std::string("t_") + of, 0, true) == Approx(expected).margin(2e-3).epsilon(2e-3));
    }
  }
}

TEST_CASE("tangents and gradients of random modules agree", "[tangents]") {
  // The tangent along a direction is the product of all gradients with it: forward and reverse mode of one function.
  int compared = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    test::RandomModule random(seed);
    random.module.dropOutput(ir::kMask), random.module.dropOutput("of_row");
    take(runPipeline(random.module));
    const std::vector<std::string> floats = floatCaptures(random.module);
    const Gradients plain = take(differentiate(random.module, floats));
    const Gradients all = take(differentiate(random.module, floats, {}, /*withTangents=*/true));
    const auto bound = take(ir::bind(plain.module, random.captures, random.problem));
    Captures captures = random.captures; // a tensor is its own direction
    for (const ir::ScalarCapture& scalar : random.module.scalars)
      if (scalar.type == ir::Type::F32) captures.set(scalar.name + "_tangent", 0.625);
    std::map<std::string, TensorView> tensorOf;
    for (size_t i = 0; i < plain.module.tensors.size(); ++i) {
      const ir::TensorCapture& tensor = plain.module.tensors[i];
      tensorOf[tensor.name] = bound.tensors[i];
      if (ir::loadedType(tensor.dtype) == ir::Type::F32) captures.set(tensor.name + "_tangent", bound.tensors[i]);
    }
    INFO(seed << "\n" << ir::print(all.module));
    const auto bindings = take(ir::bind(all.module, captures, random.problem));
    const ir::Evaluator tangent(all.module, bindings, *all.module.output(ir::kTScore));
    const auto of = [&](const std::string& output) {
      return ir::Evaluator(plain.module, bound, *plain.module.output(output));
    };
    const ir::Evaluator slope = of("d_score");
    for (int64_t i = 0; i < 40; ++i) {
      const int64_t b = i % 2, h = i % 4, q = i * 5 % 13, kv = i * 7 % 17;
      const auto score = float(test::RandomModule::sampleScore(uint64_t(i)));
      double expected = 0.5 * slope.evaluate(score, b, h, q, kv, 1).real, size = std::fabs(expected);
      for (const CaptureGradient& place : plain.captures)
        for (int64_t round = 0; round < place.rounds; ++round) {
          double direction = 0.625;
          if (const auto tensor = tensorOf.find(place.capture); tensor != tensorOf.end()) {
            const TensorView& view = tensor->second;
            int64_t offset = 0;
            for (size_t axis = 0; axis < place.indices.size(); ++axis) {
              const int64_t index = of(place.indices[axis]).evaluate(score, b, h, q, kv, 1, round).integer;
              offset += std::clamp<int64_t>(index, 0, view.shape[axis] - 1) * view.stride[axis];
            }
            direction = view.elements() ? readElement(view.data, view.dtype, offset).real : 0;
          }
          const double part = of(place.output).evaluate(score, b, h, q, kv, 1, round).real * direction;
          expected += part, size += std::fabs(part);
        }
      const double got = tangent.evaluate(score, b, h, q, kv, 0, 0, 0.5f).real;
      if (!(size < 1e6) || !std::isfinite(got)) continue;
      ++compared;
      INFO("score " << score << " at " << q << ", " << kv);
      CHECK(std::fabs(got - expected) <= 1e-4 * std::max(1.0, size));
    }
  }
  CHECK(compared > 3000);
}

TEST_CASE("stop_gradient stops tangents", "[tangents]") {
  const Gradients all = moved(traced("score + 5 * (score * x).detach()", "x: float\n"));
  Captures captures;
  captures.set("x", 2.0).set("x_tangent", 3.0);
  CHECK(at(all.module, captures, "t_score", 0.5f, 1, 7, 0) == 7);
}

TEST_CASE("a capture that is named as a tangent is refused", "[tangents]") {
  const auto made = differentiate(traced("score + x + x_tangent", "x: float\nx_tangent: float\n"), {}, {}, true);
  REQUIRE(!made);
  CHECK(made.error().message == "a capture is named x_tangent, which is that of the tangent of x");
}
