// Every rule of simplify gives what its line says, and both mean the same for edge values of all operands.
#include "helpers/same_meaning.h"
#include "helpers/simplify_rules.h"
#include "ir/printer.h"
#include "passes/pass.h"

#include <catch2/catch.hpp>

#include <climits>

using namespace attnc;
using namespace attnc::passes;
using test::kRules, test::moduleText, test::Rule, test::typeOf;

namespace {

std::string simplified(const ir::Module& module) {
  ir::Module result = module;
  REQUIRE(findPass("simplify")->run(result, {}));
  return ir::print(result);
}

} // namespace

TEST_CASE("every rule of simplify does what its line says, and keeps the meaning at edge values") {
  const int64_t integers[] = {0, 1, -1, 7, 8, -3, 65536, INT_MAX, INT_MIN, INT_MAX - 1, INT_MIN + 1};
  const double reals[] = {0.0, -0.0, 1.5, -3.25, 1e30, -1e-40, INFINITY, -INFINITY, NAN, -1e9, 3e38};
  for (const Rule& rule : kRules) {
    INFO(rule.before << "   =>   " << rule.after);
    ir::Type type = typeOf(rule.before);
    auto before = take(ir::read(moduleText(rule.before, type)));
    bool unchanged = std::string_view(rule.after) == "=";
    auto after = take(ir::read(moduleText(unchanged ? rule.before : rule.after, type)));
    // What stands around the value may simplify as well, but alike on both sides.
    CHECK(simplified(before) == simplified(after));
    if (unchanged || type == ir::Type::F32 || type == ir::Type::Bool) CHECK(simplified(before) == ir::print(after));
    std::mt19937_64 random(1);
    for (int round = 0; round < 60; ++round) {
      int64_t l = int64_t(random()), m = integers[random() % 11];
      Captures captures;
      captures.set("L", TensorView::contiguous(&l, DType::I64, {}))
          .set("M", TensorView::contiguous(&m, DType::I64, {}));
      captures.set("x", integers[random() % 11]).set("y", integers[random() % 11]).set("z", 5);
      captures.set("a", reals[random() % 11]).set("c", reals[random() % 11]);
      captures.set("p", random() % 2 == 0).set("r", random() % 2 == 0);
      test::requireSameMeaning(before, after, captures, {.qLen = 11, .kvLen = 12}, 5);
    }
  }
}
