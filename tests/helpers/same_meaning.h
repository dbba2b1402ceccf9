// Compares two modules by running them: the oracle of the tests of passes.
#pragma once

#include "helpers/random_module.h"
#include "helpers/take.h"
#include "ir/bind.h"
#include "ir/interpreter.h"

#include <catch2/catch.hpp>

#include <cmath>

namespace attnc::test {

inline bool sameNumber(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

/// Returns the effective score of an element: its score, or -inf if it is masked.
inline double effectiveScore(const ir::Interpreter& mod, double score, int64_t b, int64_t h, int64_t q, int64_t kv) {
  return mod.mask(b, h, q, kv) ? mod.score(score, b, h, q, kv) : -std::numeric_limits<double>::infinity();
}

/// What requireSameMeaning() requires of two modules.
enum class Sameness {
  Exact,     ///< the same outputs, bit for bit
  Attention, ///< the same outputs, but for score and mask the same effective scores, up to the sign of zero; a NaN may
             ///< have become masked (SPEC, section 2)
};

/// Requires that both modules give the same, in the sense of `sameness`, at `samples` coordinates that cover the
/// corners of the problem.
inline void requireSameMeaning(const ir::Module& before, const ir::Module& after, const Captures& captures,
                               const ProblemShape& problem, int samples = 60, Sameness sameness = Sameness::Exact) {
  auto bindingsBefore = take(ir::bind(before, captures, problem)),
       bindingsAfter = take(ir::bind(after, captures, problem));
  ir::Interpreter x(before, bindingsBefore), y(after, bindingsAfter);
  std::vector<std::pair<ir::Evaluator, ir::Evaluator>> others;
  for (const ir::Output& output : before.outputs()) {
    if (output.name == ir::kScore.name || output.name == ir::kMask.name) continue;
    REQUIRE(after.output(output.name));
    others.emplace_back(ir::Evaluator(before, bindingsBefore, output.value),
                        ir::Evaluator(after, bindingsAfter, *after.output(output.name)));
  }
  std::mt19937_64 random(99);
  auto position = [&](int64_t extent) {
    uint64_t draw = random();
    return draw % 4 == 0 ? 0 : draw % 4 == 1 ? extent - 1 : int64_t(random() % uint64_t(extent));
  };
  for (int i = 0; i < samples; ++i) {
    int64_t b = position(problem.batch), h = position(problem.qHeads);
    int64_t q = position(problem.qLen), kv = position(problem.kvLen);
    double score = RandomModule::sampleScore(uint64_t(i));
    double expected = x.score(score, b, h, q, kv), actual = y.score(score, b, h, q, kv);
    for (const auto& [one, two] : others) {
      const Number a = one.evaluate(float(score), b, h, q, kv, 0.75f, i % 7);
      const Number c = two.evaluate(float(score), b, h, q, kv, 0.75f, i % 7);
      REQUIRE(one.type() == two.type());
      REQUIRE((one.type() == ir::Type::F32 ? sameNumber(a.real, c.real) : a.integer == c.integer));
    }
    INFO("b " << b << " h " << h << " q " << q << " kv " << kv << " score " << score << ": " << expected << " became "
              << actual);
    if (sameness == Sameness::Attention) {
      expected = effectiveScore(x, score, b, h, q, kv), actual = effectiveScore(y, score, b, h, q, kv);
      bool isMaskedNan = std::isnan(expected) && !y.mask(b, h, q, kv);
      REQUIRE((isMaskedNan || expected == actual || sameNumber(expected, actual)));
      continue;
    }
    REQUIRE(sameNumber(expected, actual));
    REQUIRE(x.mask(b, h, q, kv) == y.mask(b, h, q, kv));
  }
}

} // namespace attnc::test
