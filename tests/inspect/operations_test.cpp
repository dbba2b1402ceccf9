// Operations by level, and those that a kernel takes for each score.
#include "api/mod_impl.h"
#include "helpers/plan_parts.h"
#include "inspect/operations.h"

#include <catch2/catch.hpp>

using namespace attnc;

namespace {

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";

using Operations = std::map<std::string, uint64_t>;

} // namespace

TEST_CASE("operations are counted once, at their level, however many functions need them", "[inspect]") {
  ir::Module module;
  auto i32 = [&](ir::Op op, ir::Value x, ir::Value y) { return module.make(op, ir::Type::I32, {x, y}); };
  const ir::Value q = module.param(ir::ParamKind::QIdx), kv = module.param(ir::ParamKind::KvIdx);
  const ir::Value three = module.constInt(ir::Type::I32, 3);
  const ir::Value distance = i32(ir::Op::Sub, i32(ir::Op::Mul, q, three), kv); // a row's and a score's operation
  i32(ir::Op::Add, distance, three);                                           // needed by nobody
  module.setOutput(ir::kScore, module.make(ir::Op::Cast, ir::Type::F32, {distance}));
  module.setOutput(ir::kMask, module.make(ir::Op::Eq, ir::Type::Bool, {distance, three}));
  const ModOperations operations = operationsOf(module);
  CHECK_FALSE(operations.dScore);
  for (const OperationCounts& counts : {*operations.scoreMod, *operations.maskMod}) {
    CHECK(counts.row == 1);
    CHECK(counts.element == 2);
    CHECK(counts.launch + counts.head + counts.column == 0);
  }
  const Operations score{{"cast", 1}, {"sub", 1}}, both{{"cast", 1}, {"eq", 1}, {"sub", 1}};
  const ScoreCost listed = scoreCostOf(module, KvLoop::BlockMask), all = scoreCostOf(module, KvLoop::AllTiles),
                  bounded = scoreCostOf(module, KvLoop::Bounds);
  CHECK(listed.full.perElement == score);
  CHECK(listed.partial.perElement == both);
  CHECK(listed.partial.element == 3);
  CHECK((listed.select == MaskSelect::Mask && !listed.masksAllBlocks));
  CHECK(all.full.perElement == both);
  CHECK((all.select == MaskSelect::Mask && all.masksAllBlocks));
  CHECK(bounded.partial.perElement == score);
  CHECK(bounded.select == MaskSelect::Bounds);
  CHECK_FALSE(bounded.gradient);
}

TEST_CASE("stop_gradient is no operation of a kernel", "[inspect]") {
  ir::Module module;
  const ir::Value score = module.param(ir::ParamKind::Score);
  module.setOutput(ir::kScore, module.make(ir::Op::StopGradient, ir::Type::F32, {score}));
  CHECK(operationsOf(module).scoreMod->element == 0);
}

TEST_CASE("what a kernel takes out of score_mod is not counted per score", "[inspect]") {
  const auto perScore = [](const std::string& name, Family family) {
    auto mod = take(Mod::load(kMods + name));
    auto plan = take(test::choosePlan(mod, {.family = family, .arch = "sm_90a"}));
    auto kernelMod = take(kernelModOf(mod, plan.stages.front().algebra));
    return scoreCostOf(kernelMod->module, KvLoop::BlockMask).full.perElement;
  };
  CHECK(perScore("softcap.py", Family::Naive) == Operations{{"div", 1}, {"mul", 1}, {"tanh", 1}});
  CHECK(perScore("softcap.py", Family::Sm80) == Operations{{"tanh", 1}});
  CHECK(perScore("softcap.py", Family::Sm90) == Operations{{"tanh", 1}});
  CHECK(perScore("alibi.py", Family::Naive) == Operations{{"add", 1}, {"mul", 1}, {"sub", 1}});
  CHECK(perScore("latent_rope.py", Family::Naive) == Operations{{"add", 1}, {"load", 128}, {"mul", 65}, {"sum", 64}});
  CHECK(perScore("alibi.py", Family::Sm90) == Operations{{"add", 1}});
  CHECK(perScore("noop.py", Family::Sm90) == perScore("noop.py", Family::Sm80));
}
