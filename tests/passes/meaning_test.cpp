// Every pass keeps the meaning of random modules, which hold what hand-written ones rarely do.
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
          .longRows = seed % 4 == 3};
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

} // namespace

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
