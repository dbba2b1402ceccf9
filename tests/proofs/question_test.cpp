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
    using Outcome = proofs::Question::Outcome;
    answers += answer == Outcome::None || answer == Outcome::Found;
    if (answer != Outcome::None) continue;
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

TEST_CASE("each operation of a script gives what the interpreter computes") {
  if (!proofs::Solver::open("")) {
    WARN("SKIPPED: Z3 was not found");
    return;
  }
  using ir::Op, ir::Type;
  auto solver = take(proofs::Solver::open(""));
  const std::vector<int64_t> numbers = {0, 1, -1, 2, -7, 31, 33, 1000, -1000, INT32_MAX, INT32_MIN};
  const auto check = [&](Op op, Type type, int64_t a, int64_t b) {
    INFO(ir::info(op).text << " of " << (type == Type::I64 ? "i64 " : "i32 ") << a << " and " << b);
    ir::Module module;
    module.scalars = {{"x", Type::I32}, {"y", Type::I32}};
    const auto given = [&](unsigned index) {
      const ir::Value scalar = module.scalar(index);
      return type == Type::I64 ? module.make(Op::Cast, type, {scalar}) : scalar;
    };
    const auto constant = [&](int64_t value) { return module.constInt(type, value); };
    llvm::SmallVector<ir::Value, 2> operands = {given(0)}, known = {constant(a)};
    if (ir::info(op).arity == 2) operands.push_back(given(1)), known.push_back(constant(b));
    const bool isComparison = ir::info(op).rule == ir::TypeRule::Compare;
    const Type result = isComparison ? Type::Bool : type;
    const auto is = [&](Op with, ir::Value x, ir::Value y) { return module.make(with, Type::Bool, {x, y}); };
    const ir::Value computed = module.make(op, result, operands), folded = module.make(op, result, known);
    proofs::Launch launch;
    module.setOutput(ir::kMask, module.constBool(true));
    REQUIRE(launch.fill(module, {}, [](size_t) { return Number{.integer = 0}; }));
    const int64_t wanted = ir::Evaluator(module, launch.bound(), folded).evaluate(0, 0, 0, 0, 0).integer;
    const ir::Value number = isComparison ? module.constBool(wanted) : constant(wanted);
    const ir::Value others =
        module.make(Op::Or, Type::Bool, {is(Op::Ne, given(0), constant(a)), is(Op::Ne, given(1), constant(b))});
    module.setOutput(ir::kMask, module.make(Op::Or, Type::Bool, {others, is(Op::Eq, computed, number)}));
    solver.push();
    take(solver.add(proofs::scriptOf(module, {}).text));
    CHECK(take(solver.check(5)) == proofs::Solver::Answer::Unsat);
    solver.pop();
  };
  for (Op op : {Op::Neg, Op::Abs, Op::Add, Op::Sub, Op::Mul, Op::Min, Op::Max, Op::FloorDiv, Op::Mod, Op::And, Op::Or,
                Op::Xor, Op::Not, Op::Shl, Op::Shr, Op::Eq, Op::Ne, Op::Lt, Op::Le})
    for (size_t i = 0; i < numbers.size(); ++i)
      for (size_t j : {i, size_t(0), size_t(2), (i + 4) % numbers.size(), (i + 7) % numbers.size()})
        check(op, i % 3 ? Type::I32 : Type::I64, numbers[i], numbers[j]);
}

TEST_CASE("Z3's answers about random modules are those of the interpreter") {
  if (!proofs::Solver::open("")) {
    WARN("SKIPPED: Z3 was not found");
    return;
  }
  CHECK(decided(1, 40, {.operations = 12, .floats = false}) >= 30);
  CHECK(decided(1, 20, {.operations = 8, .transcendental = false}) >= 10);
}
