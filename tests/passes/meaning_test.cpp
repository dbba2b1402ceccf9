// Every pass keeps the meaning of random modules, which hold what hand-written ones rarely do.
#include "analysis/low_rank.h"
#include "helpers/random_module.h"
#include "helpers/same_meaning.h"
#include "ir/hash.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "passes/pipeline.h"

#include <catch2/catch.hpp>

using namespace attnc;
using namespace attnc::passes;

namespace {

constexpr uint64_t kSeeds = 400;

test::RandomModuleOptions optionsOf(uint64_t seed) {
  return {.operations = int(10 + seed % 60),
          .floats = seed % 3 != 0,
          .transcendental = seed % 2 == 0,
          .longRows = seed % 4 == 3,
          .lowRank = seed % 3 != 0 && seed % 5 == 1};
}

void checkPass(std::string_view name, const Pins& pins = {}) {
  const Pass* pass = findPass(name);
  REQUIRE(pass);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    test::RandomModule random(seed, optionsOf(seed));
    ir::Module after = random.module;
    if (!pins.empty() && optionsOf(seed).longRows) continue; // the pins are for short rows
    REQUIRE(pass->run(after, {pins}));
    INFO("seed " << seed << "\n--- before\n" << ir::print(random.module) << "--- after\n" << ir::print(after));
    REQUIRE_FALSE(ir::verify(after));
    test::requireSameMeaning(random.module, after, random.captures, random.problem);
  }
}

/// Requires what kernels rely on: `after` says of the score plus the products of its factors what `before` says of the
/// score. A factor depends only on its own side.
void requireSameWithTerm(const ir::Module& before, const ir::Module& after, int64_t rank,
                         const test::RandomModule& of) {
  using ir::ParamKind;
  const ir::Value q = *after.output(ir::kQFactor), kv = *after.output(ir::kKvFactor);
  const std::vector<ir::ParamSet> params = ir::paramsOf(after);
  REQUIRE(ir::ParamSet{ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::Round}.containsAll(params[q.id]));
  REQUIRE(ir::ParamSet{ParamKind::B, ParamKind::H, ParamKind::KvIdx, ParamKind::Round}.containsAll(params[kv.id]));
  auto bindingsBefore = take(ir::bind(before, of.captures, of.problem)),
       bindingsAfter = take(ir::bind(after, of.captures, of.problem));
  const ir::Interpreter whole(before, bindingsBefore), rest(after, bindingsAfter);
  const ir::Evaluator ofQ(after, bindingsAfter, q), ofKv(after, bindingsAfter, kv);
  std::mt19937_64 random(7);
  const auto below = [&](int64_t extent) { return int64_t(random() % uint64_t(extent)); };
  for (uint64_t i = 0; i < 60; ++i) {
    const int64_t b = below(of.problem.batch), h = below(of.problem.qHeads), row = below(of.problem.qLen),
                  column = below(of.problem.kvLen);
    const double score = test::RandomModule::sampleScore(i);
    // Addends of a large score round in another order, and a sum that begins with 0 has no -0.
    if ((std::isfinite(score) && std::fabs(score) > 1000) || (score == 0 && std::signbit(score))) continue;
    double term = 0;
    for (int64_t r = 0; r < rank; ++r)
      term += ofQ.evaluate(0, b, h, row, 0, 0, r).real * ofKv.evaluate(0, b, h, 0, column, 0, r).real;
    const double expected = test::effectiveScore(whole, score, b, h, row, column),
                 actual = test::effectiveScore(rest, float(score + term), b, h, row, column);
    INFO("b " << b << " h " << h << " q " << row << " kv " << column << " score " << score << " term " << term << ": "
              << expected << " became " << actual);
    const bool isMaskedNan = std::isnan(expected) && !rest.mask(b, h, row, column);
    REQUIRE((isMaskedNan || expected == actual || test::sameNumber(expected, actual)));
  }
}

} // namespace

TEST_CASE("derive-low-rank keeps the meaning of random modules, before and after the pipeline") {
  int found = 0, without = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    for (bool isPiped : {false, true}) {
      test::RandomModuleOptions options = optionsOf(seed);
      options.lowRank = options.floats && seed % 8;
      test::RandomModule random(seed + 60000, options);
      ir::Module before = random.module;
      if (isPiped) REQUIRE(runPipeline(before, {.verify = true}));
      const analysis::LowRank low = analysis::lowRank(before);
      ir::Module after = before;
      REQUIRE(findPass("derive-low-rank")->run(after, {}));
      INFO("seed " << seed << "\n--- before\n" << ir::print(before) << "--- after\n" << ir::print(after));
      REQUIRE_FALSE(ir::verify(after));
      low.term ? ++found : ++without;
      if (low.term)
        requireSameWithTerm(random.module, after, low.term->rank, random);
      else
        REQUIRE(ir::print(after) == ir::print(before));
    }
  CHECK(found > 200);
  CHECK(without > 200);
}

TEST_CASE("fold-constants keeps the meaning of random modules") { checkPass("fold-constants"); }
TEST_CASE("simplify keeps the meaning of random modules") { checkPass("simplify"); }
TEST_CASE("cse keeps the meaning of random modules") { checkPass("cse"); }
TEST_CASE("dce keeps the meaning of random modules") { checkPass("dce"); }
TEST_CASE("levels keeps the meaning of random modules") { checkPass("levels"); }
TEST_CASE("order-captures keeps the meaning of random modules") { checkPass("order-captures"); }
TEST_CASE("pin keeps the meaning of random modules") { checkPass("pin", {{"KV_LEN", 17}, {"H", 4}, {"N", 5}}); }

TEST_CASE("the pipeline keeps the meaning of random modules, pinned or not, and is a fixed point") {
  for (uint64_t seed = 0; seed < 2 * kSeeds; ++seed) {
    test::RandomModule random(seed + 10000, optionsOf(seed));
    PipelineOptions options{.verify = true};
    if (seed % 2 && !optionsOf(seed).longRows) options.pins = {{"KV_LEN", 17}, {"Q_LEN", 13}, {"H", 4}, {"HKV", 2}};
    ir::Module after = random.module;
    auto ok = runPipeline(after, options);
    INFO("seed " << seed << "\n--- before\n" << ir::print(random.module) << "--- after\n" << ir::print(after));
    REQUIRE(ok);
    test::requireSameMeaning(random.module, after, random.captures, random.problem, 60, test::Sameness::Attention);
  }
}

TEST_CASE("simplifying twice is simplifying once") {
  for (uint64_t seed = 0; seed < 2 * kSeeds; ++seed) {
    test::RandomModule random(seed + 20000, optionsOf(seed));
    ir::Module once = random.module;
    REQUIRE(findPass("simplify")->run(once, {}));
    ir::Module twice = once;
    REQUIRE(findPass("simplify")->run(twice, {}));
    INFO("seed " << seed);
    REQUIRE(ir::print(once) == ir::print(twice));
  }
}

TEST_CASE("running the pipeline again and again settles, and does not grow the module") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    test::RandomModule random(seed + 30000, optionsOf(seed));
    ir::Module module = random.module;
    REQUIRE(runPipeline(module, {.verify = true}));
    size_t size = module.size();
    std::string previous;
    for (int round = 0; round < 8; ++round) {
      previous = ir::print(module);
      REQUIRE(runPipeline(module, {.verify = true}));
    }
    INFO("seed " << seed << "\n" << previous);
    REQUIRE(ir::print(module) == previous);
    REQUIRE(module.size() <= size + size / 2);
  }
}

TEST_CASE("the hash of the result does not depend on the order of the declarations") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    test::RandomModule random(seed + 40000);
    ir::Module used = random.module, swapped;
    REQUIRE(runPipeline(used));
    swapped.dims = random.module.dims;
    swapped.tensors.assign(random.module.tensors.rbegin(), random.module.tensors.rend());
    swapped.scalars.assign(random.module.scalars.rbegin(), random.module.scalars.rend());
    for (uint32_t id = 0; id < random.module.size(); ++id) {
      const ir::Node& node = random.module[{id}];
      int64_t attr = node.attr;
      if (node.op == ir::Op::Load) attr = int64_t(swapped.tensors.size()) - 1 - attr;
      if (node.op == ir::Op::Scalar) attr = int64_t(swapped.scalars.size()) - 1 - attr;
      REQUIRE(swapped.make(node.op, node.type, node.operands, attr).id == id);
    }
    for (const ir::Output& output : random.module.outputs())
      swapped.setOutput(output.name, output.params, output.value);
    REQUIRE(runPipeline(swapped));
    // What is not used stays in the order of the declarations; compare modules that use all.
    auto usesAll = [](const ir::Module& module) {
      std::string text = ir::print(module);
      for (const auto& tensor : module.tensors)
        if (text.find(" " + tensor.name + "[") == std::string::npos && !tensor.shape.empty()) return false;
      for (const auto& scalar : module.scalars)
        if (text.find("@" + scalar.name) == std::string::npos) return false;
      return text.find("load i32 offset") != std::string::npos;
    };
    if (!usesAll(used)) continue;
    INFO(ir::print(used) << ir::print(swapped));
    CHECK(ir::canonicalHash(used) == ir::canonicalHash(swapped));
  }
}
