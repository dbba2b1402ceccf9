// Launches for which an index leaves its tensor.
#include "analysis/example_search.h"
#include "helpers/traced.h"

using namespace attnc;
using namespace attnc::analysis;

namespace {

constexpr uint64_t kEnough = 1 << 20;

/// What a search says of the only gather of a mod.
std::string saidOf(const std::string& declarations, const std::string& index, const ir::Pins& pins = {},
                   uint64_t allowed = kEnough) {
  const ir::Module module = test::scoreMod(declarations, "score + bias[" + index + "]");
  for (uint32_t id = 0; id < module.size(); ++id)
    if (const ir::Node& node = module[{id}];
        node.op == ir::Op::Load && module.tensors[size_t(node.attr)].name == "bias") {
      ExampleSearch search(module, pins);
      return search.run(node.operands[0], module.tensors[size_t(node.attr)].shape[0], allowed);
    }
  FAIL("no gather");
  return {};
}

} // namespace

TEST_CASE("an example is a launch and a place", "[example-search]") {
  CHECK(saidOf("bias: f32[KV_LEN]", "q_idx") == "Q_LEN = 9, q_idx = 8 gives index 8, extent KV_LEN = 8");
  CHECK_THAT(saidOf("bias: f32[8]", "q_idx - kv_idx"), Catch::Contains("gives index"));
  CHECK_THAT(saidOf("bias: f32[KV_LEN]", "q_idx", {{"KV_LEN", 3}}),
             Catch::Contains("gives index 3, extent KV_LEN = 3"));
}

TEST_CASE("without an example the answer says on what the index depends", "[example-search]") {
  CHECK_THAT(saidOf("n: int\nbias: f32[8]", "n"), Catch::Contains("n"));
  CHECK_THAT(saidOf("ids: i32[Q_LEN]\nbias: f32[8]", "ids[q_idx]"), Catch::Contains("ids"));
  CHECK_THAT(saidOf("bias: f32[KV_LEN]", "kv_idx"), !Catch::Contains("gives index"));
}

TEST_CASE("a search without a budget finds nothing", "[example-search]") {
  const std::string index = "(q_idx * q_idx + kv_idx) % 8191 - kv_idx";
  CHECK_THAT(saidOf("bias: f32[8]", index), Catch::Contains("gives index"));
  CHECK_THAT(saidOf("bias: f32[8]", index, {}, 0), !Catch::Contains("gives index"));
}
