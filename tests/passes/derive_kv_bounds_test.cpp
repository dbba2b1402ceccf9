// Bounds of live columns against mask_mod itself, row by row and column by column: for every library mod and for random
// masks, with captures of every size.
#include "analysis/mod_facts.h"
#include "helpers/derived_by.h"
#include "helpers/random_mask.h"
#include "helpers/traced.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/printer.h"
#include "passes/pipeline.h"

#include <catch2/catch.hpp>

#include <fstream>
#include <sstream>

using namespace attnc;
using test::derivedBy;
using test::hasBounds;

namespace {

std::string libraryText(const char* name) {
  std::ifstream in(std::string(ATTNC_SOURCE_DIR "/dsl/mods/") + name + ".py");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// `def mask_mod(...): return <expression>` below declarations.
ir::Module maskOf(const std::string& expression, const std::string& declarations = "") {
  return test::piped(declarations + "\n\ndef mask_mod(b, h, q_idx, kv_idx):\n    return " + expression + "\n");
}

/// Fails where a row's live columns are not exactly those of the bounds, or where an edge turns back; so bounds of a
/// range of rows from its ends are right for all of it. Returns the number of elements compared.
int checkBounds(const ir::Module& derived, const ir::Module& module, const ir::Bindings& bindings,
                const ProblemShape& problem) {
  ir::Interpreter interpreter(module, bindings);
  ir::Evaluator begin(derived, bindings, *derived.output(ir::kKvBegin));
  ir::Evaluator end(derived, bindings, *derived.output(ir::kKvEnd));
  const analysis::KvEdges edges = *analysis::modFacts(derived).kvEdges;
  int compared = 0;
  for (int64_t b = 0; b < problem.batch; ++b)
    for (int64_t h = 0; h < problem.qHeads; ++h) {
      int64_t lastFrom = 0, lastTo = 0;
      for (int64_t q = 0; q < problem.qLen; ++q) {
        int64_t from = begin.evaluate(0, b, h, q, 0).integer, to = end.evaluate(0, b, h, q, 0).integer;
        INFO("b=" << b << " h=" << h << " q=" << q << ": [" << from << ", " << to << ")");
        if (q > 0 && (edges.beginFalls ? from > lastFrom : from < lastFrom)) FAIL("begin turns back");
        if (q > 0 && (edges.endFalls ? to > lastTo : to < lastTo)) FAIL("end turns back");
        lastFrom = from, lastTo = to;
        for (int64_t kv = 0; kv < problem.kvLen; ++kv, ++compared)
          if (interpreter.mask(b, h, q, kv) != (from <= kv && kv < to)) FAIL("column " << kv);
      }
    }
  return compared;
}

const std::vector<int64_t> kScalars = {0,
                                       1,
                                       -1,
                                       2,
                                       5,
                                       17,
                                       40,
                                       -13,
                                       64,
                                       79,
                                       80,
                                       1 << 24,
                                       -(1 << 24),
                                       (1 << 24) + 1,
                                       1 << 30,
                                       INT32_MAX,
                                       INT32_MIN,
                                       INT32_MAX - 1,
                                       INT32_MIN + 1};

/// Compares for all shapes and scalars.
void checkMod(const ir::Module& module) {
  INFO(ir::print(module));
  const ir::Module derived = derivedBy("derive-kv-bounds", module);
  REQUIRE(derived.output(ir::kKvBegin));
  std::vector<int32_t> lengths = {5, 0, INT32_MAX};
  std::vector<float> slopes(4);
  for (ProblemShape problem : {ProblemShape{.batch = 3, .qHeads = 4, .kvHeads = 2, .qLen = 40, .kvLen = 40},
                               ProblemShape{.batch = 3, .qHeads = 4, .kvHeads = 4, .qLen = 7, .kvLen = 80},
                               ProblemShape{.batch = 3, .qHeads = 4, .kvHeads = 1, .qLen = 80, .kvLen = 9}})
    for (int64_t scalar : kScalars) {
      Captures captures;
      for (size_t i = 0; i < module.scalars.size(); ++i) {
        const ir::ScalarCapture& declared = module.scalars[i];
        if (declared.type == ir::Type::F32) captures.set(declared.name, 1.5);
        if (declared.type == ir::Type::I32) captures.set(declared.name, i % 2 ? kScalars[kScalars.size() - i] : scalar);
        if (declared.type == ir::Type::Bool) captures.set(declared.name, bool(scalar & 1));
      }
      for (const ir::TensorCapture& tensor : module.tensors)
        captures.set(tensor.name, tensor.dtype == DType::F32 ? TensorView::contiguous(slopes.data(), DType::F32, {4})
                                                             : TensorView::contiguous(lengths.data(), DType::I32, {3}));
      auto bindings = take(ir::bind(module, captures, problem));
      INFO("scalar " << scalar);
      CHECK(checkBounds(derived, module, bindings, problem) > 0);
    }
}

} // namespace

TEST_CASE("causal masks, windows, prefixes and what is made of them have bounds, and these are exact", "[kv_bounds]") {
  checkMod(test::piped(libraryText("causal")));
  checkMod(test::piped(libraryText("alibi")));
  checkMod(test::piped(libraryText("softcap")));
  checkMod(test::piped(libraryText("softcap_approx")));
  checkMod(test::piped(libraryText("sliding_window")));
  checkMod(test::piped(libraryText("prefix_lm")));
}

TEST_CASE("bounds are exact for many forms of masks", "[kv_bounds]") {
  const char kScalar[] = "n: int", kTwo[] = "n: int\nm: int", kFlag[] = "import torch\n\nflag: bool\nn: int",
             kLengths[] = "n: i32[B]";
  checkMod(maskOf("q_idx > kv_idx"));
  checkMod(maskOf("q_idx < kv_idx"));
  checkMod(maskOf("~(q_idx >= kv_idx)"));
  checkMod(maskOf("q_idx == kv_idx"));
  checkMod(maskOf("kv_idx >= n", kScalar));
  checkMod(maskOf("kv_idx == n", kScalar));
  checkMod(maskOf("q_idx + (KV_LEN - Q_LEN) >= kv_idx"));
  checkMod(maskOf("KV_LEN - 1 - q_idx >= kv_idx"));
  checkMod(maskOf("abs(q_idx - kv_idx) <= n", kScalar));
  checkMod(maskOf("(abs(q_idx - kv_idx) <= n) & (kv_idx < m)", kTwo));
  checkMod(maskOf("(q_idx - kv_idx <= n) & (kv_idx - q_idx <= m)", kTwo));
  checkMod(maskOf("((kv_idx < n) | (q_idx >= kv_idx)) & (q_idx - kv_idx <= m)", kTwo));
  checkMod(maskOf("(kv_idx >= n) | (kv_idx >= q_idx)", kScalar));
  checkMod(maskOf("q_idx // 16 >= kv_idx // 16"));
  checkMod(maskOf("q_idx // 6 == kv_idx // 6"));
  checkMod(maskOf("(q_idx // 16 == kv_idx // 16) & (q_idx >= kv_idx)"));
  checkMod(maskOf("3 * kv_idx <= q_idx"));
  checkMod(maskOf("kv_idx <= 2 * q_idx + n % 5", kScalar));
  checkMod(maskOf("torch.where(flag, q_idx >= kv_idx, kv_idx < n)", kFlag));
  checkMod(maskOf("flag | (q_idx >= kv_idx)", kFlag));
  checkMod(maskOf("((h % 2 == 0) | (q_idx - kv_idx <= n)) & (q_idx >= kv_idx)", kScalar));
  checkMod(maskOf("(q_idx >= kv_idx) & (kv_idx < n[b])", kLengths));
  checkMod(maskOf("(q_idx >= kv_idx) & (q_idx >= n)", kScalar));
  checkMod(maskOf("(q_idx >= kv_idx) & (q_idx < n)", kScalar));
  checkMod(maskOf("(q_idx < n) & (kv_idx < n)", kScalar));
  checkMod(maskOf("q_idx < 0"));
}

TEST_CASE("a mask that is no interval, or that data decide, has no bounds", "[kv_bounds]") {
  const char kScalar[] = "n: int";
  for (const char* name : {"noop", "document", "global_local", "learned_bias", "neighborhood2d", "relative_bias"}) {
    INFO(name);
    CHECK_FALSE(hasBounds(test::piped(libraryText(name))));
  }
  for (const char* expression :
       {"(kv_idx < n) | (kv_idx > q_idx)", "q_idx != kv_idx", "kv_idx % 2 == 0", "(q_idx * n) >= kv_idx",
        "q_idx % 7 >= kv_idx", "(q_idx < n) | (q_idx >= kv_idx)", "(q_idx >= kv_idx) ^ (kv_idx < n)",
        "(kv_idx < 3) | (abs(q_idx - kv_idx) <= n)", "q_idx + kv_idx * n <= 64", "abs(q_idx - n) >= kv_idx"}) {
    INFO(expression);
    CHECK_FALSE(hasBounds(maskOf(expression, kScalar)));
  }
}

TEST_CASE("masks of many conditions take neither long nor a deep stack", "[kv_bounds]") {
  using ir::Op, ir::Type;
  auto orderOf = [](ir::Module& module, int64_t distance) {
    ir::Value row =
        module.make(Op::Add, Type::I32, {module.param(ir::ParamKind::QIdx), module.constInt(Type::I32, distance)});
    return module.make(Op::Le, Type::Bool, {module.param(ir::ParamKind::KvIdx), row});
  };
  ir::Module longChain, shared, small;
  for (auto [module, count] : {std::pair(&longChain, 100000), std::pair(&small, 20)}) {
    ir::Value value = orderOf(*module, 0);
    for (int64_t i = 1; i < count; ++i) value = module->make(Op::And, Type::Bool, {value, orderOf(*module, i)});
    module->setOutput(ir::kMask, value);
  }
  ir::Value value = orderOf(shared, 0);
  for (int64_t i = 1; i < 64; ++i) { // 2^64 ways from the root to the first comparison
    ir::Value either = shared.make(Op::Or, Type::Bool, {value, orderOf(shared, i)});
    value = shared.make(Op::And, Type::Bool, {value, either});
  }
  shared.setOutput(ir::kMask, value);
  CHECK_FALSE(hasBounds(longChain));
  CHECK_FALSE(hasBounds(shared));
  CHECK(hasBounds(small));
}

TEST_CASE("bounds of random masks are exact", "[kv_bounds]") {
  int withBounds = 0;
  constexpr uint64_t kMasks = 2500;
  for (uint64_t seed = 0; seed < kMasks; ++seed) {
    test::RandomMask random(seed);
    if (seed % 2) REQUIRE(passes::runPipeline(random.module)); // as they come from the pipeline, and raw
    const ir::Module derived = derivedBy("derive-kv-bounds", random.module);
    if (!derived.output(ir::kKvBegin)) continue;
    ++withBounds;
    auto bindings = take(ir::bind(random.module, random.captures, random.problem));
    INFO("seed " << seed << "\n" << ir::print(random.module));
    checkBounds(derived, random.module, bindings, random.problem);
  }
  CHECK(withBounds > int(kMasks) / 8);
}
