// Scripts mean what the interpreter computes: random modules, asked for an element where their mask is false.
#include "helpers/random_module.h"
#include "helpers/take.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "proofs/claim.h"
#include "proofs/question.h"

#include <catch2/catch.hpp>

using namespace attnc;
using namespace attnc::test;

namespace {

/// Asks for a false mask of `count` modules. Returns how many answers were decided.
int decided(uint64_t seed, int count, const RandomModuleOptions& options) {
  int answers = 0;
  for (uint64_t end = seed + uint64_t(count); seed < end; ++seed) {
    INFO("seed " << seed);
    RandomModule random(seed, options);
    const std::optional<ir::Value> mask = random.module.output(ir::kMask);
    ir::Module claim = random.module;
    claim.dropOutput(ir::kScore), claim.dropOutput("of_row");
    claim.setOutput(proofs::kLive, ir::kMask.params, *mask);
    auto solver = take(proofs::Solver::open(""));
    proofs::Launch launch;
    proofs::Element at;
    int unconfirmed = 0;
    proofs::Question question(claim, {});
    const auto answer =
        take(question.ask(solver, 1, launch, at, [&](const proofs::Launch& found, const proofs::Element& where) {
          const bool isFalse = proofs::isFalse(claim, found, where);
          unconfirmed += !isFalse;
          return isFalse;
        }));
    if (question.obstacle().find("sum") == std::string::npos) CHECK(unconfirmed == 0);
    if (!answer) continue;
    ++answers;
    if (*answer) continue;
    const auto bindings = take(ir::bind(claim, random.captures, random.problem));
    const ir::Evaluator lives(claim, bindings, *claim.output(ir::kMask));
    const ProblemShape& p = random.problem;
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t h = 0; h < p.qHeads; ++h)
        for (int64_t q = 0; q < p.qLen; ++q)
          for (int64_t kv = 0; kv < p.kvLen; ++kv) REQUIRE(lives.evaluate(0, b, h, q, kv).integer);
  }
  return answers;
}

} // namespace

TEST_CASE("Z3's answers about random modules are those of the interpreter") {
  if (!proofs::Solver::open("")) {
    WARN("SKIPPED: Z3 was not found");
    return;
  }
  CHECK(decided(1, 40, {.operations = 12, .floats = false}) >= 30);
  CHECK(decided(1, 20, {.operations = 8, .transcendental = false}) >= 10);
}
