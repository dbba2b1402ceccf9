// What prepare() settles where sequences have lengths and offsets. Needs no GPU.
#include "helpers/plans.h"
#include "tests/api/settled.h"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace attnc;
using namespace attnc::test;

TEST_CASE("sequences with lengths and offsets are settled by what is given", "[api]") {
  const TensorView ofBatch = TensorView::contiguous(nullptr, DType::I32, {2});
  Case c;
  const auto optionsOf = [&](const Mod& m) { return settled(m, c).kernel.options(); };
  const Mod causal = mod("q_idx >= kv_idx");
  SECTION("nothing") {
    CHECK_FALSE(optionsOf(causal).features.has(Feature::Lengths));
    CHECK(optionsOf(causal).offsets == QueryOffsets::None);
    c.options.offsets = QueryOffsets::FromLengths;
    CHECK(optionsOf(causal).offsets == QueryOffsets::FromLengths);
  }
  SECTION("lengths: the last query stands at the last key") {
    c.operands.kvLengths = ofBatch;
    CHECK(optionsOf(causal).features.has(Feature::Lengths));
    CHECK(optionsOf(causal).offsets == QueryOffsets::FromLengths);
    CHECK(settled(causal, c).kernel.kvLoop() == KvLoop::Bounds);
    c.options.offsets = QueryOffsets::None;
    CHECK(optionsOf(causal).offsets == QueryOffsets::None);
  }
  SECTION("offsets") {
    c.operands.qOffsets = ofBatch;
    CHECK_FALSE(optionsOf(causal).features.has(Feature::Lengths));
    CHECK(optionsOf(causal).offsets == QueryOffsets::Tensor);
  }
  SECTION("a block mask of rows that move is built by each launch") {
    const Mod document = mod(kDocument);
    c.operands.kvLengths = ofBatch;
    Preparation p = settled(document, c);
    CHECK(p.kernel.kvLoop() == KvLoop::Listed);
    REQUIRE(p.blockMask);
    CHECK(p.blockMask->batch == 2);
    CHECK(p.kernel.options().blockSparse);
    REQUIRE(p.kernels().size() == 2);
    CHECK(p.kernels()[1].options().features == Features{Feature::Lengths});
    CHECK(p.kernels()[1].options().offsets == QueryOffsets::FromLengths);
    c.options.offsets = QueryOffsets::None;
    p = settled(document, c);
    CHECK(p.kernel.kvLoop() == KvLoop::BlockMask);
    CHECK(p.kernels()[1].options().features.empty());
    c.options.offsets.reset();
    c.options.tile = p.kernel.tile();
    CHECK(settled(document, c).kernel.kvLoop() == KvLoop::Listed);
    c.options.tile.clear();
    c.options.buildBlockMask = false;
    const std::vector<std::string> all = settled(document, c).kernel.tiles(), listed = p.kernel.tiles();
    c.options.buildBlockMask = true;
    int others = 0; // tiles that kernels with lists have not
    for (const std::string& tile : all) {
      c.options.tile = tile;
      const bool isListed = std::find(listed.begin(), listed.end(), tile) != listed.end();
      others += !isListed;
      CHECK(settled(document, c).kernel.kvLoop() == (isListed ? KvLoop::Listed : KvLoop::AllTiles));
      CHECK(settled(document, c).kernel.tile() == tile);
    }
    CHECK(others > 0);
    c.options.tile.clear();
    const auto resize = [&](int64_t queries, int64_t keys) {
      c.operands.q = tensor(2, 8, queries, 64), c.outputs.out = tensor(2, 8, queries, 32);
      c.operands.k = tensor(2, 2, keys, 64), c.operands.v = tensor(2, 2, keys, 32);
    };
    resize(1000, 511); // there is little to skip
    CHECK(settled(document, c).kernel.kvLoop() == KvLoop::AllTiles);
    resize(1000, 8192 + 128); // 16 rows of blocks, of 65 blocks each
    CHECK(settled(document, c).kernel.kvLoop() == KvLoop::Listed);
    resize(800, 8192 + 128); // 14
    CHECK(settled(document, c).kernel.kvLoop() == KvLoop::AllTiles);
    resize(800, 8192); // of 64
    CHECK(settled(document, c).kernel.kvLoop() == KvLoop::Listed);
    c.options.buildBlockMask = false;
    CHECK(settled(document, c).kernel.kvLoop() == KvLoop::AllTiles);
    CHECK_FALSE(settled(document, c).blockMask);
  }
  SECTION("what does not fit") {
    c.operands.kvLengths = TensorView::contiguous(nullptr, DType::F32, {2});
    CHECK(errorOf(causal, c) == "kv_lengths is f32 [2], expected i32 [2]");
    c.operands.kvLengths.reset();
    c.options.offsets = QueryOffsets::Tensor;
    CHECK(errorOf(causal, c) == "the kernel was compiled for q_offsets, which is not given");
    c.options.offsets.reset();
    c.operands.qOffsets = ofBatch;
    const Mod taken =
        mod("attnc_q_offset: int\ndef mask_mod(b, h, q_idx, kv_idx):\n    return kv_idx < attnc_q_offset\n");
    CHECK(errorOf(taken, c) == "the mod captures 'attnc_q_offset', a name that attnc needs for itself");
  }
}

TEST_CASE("backward kernels take lengths and offsets", "[api]") {
  const Mod causal = mod("q_idx >= kv_idx");
  Case c;
  BackwardOperands operands{c.operands};
  operands.kvLengths = TensorView::contiguous(nullptr, DType::I32, {2});
  operands.out = operands.dOut = *c.outputs.out;
  operands.lse = TensorView::contiguous(nullptr, DType::F32, {2, 8, 1000});
  const BackwardOutputs gradients{.dQ = operands.q, .dK = operands.k, .dV = operands.v};
  const auto settled = [&] {
    return take(Compiler().settleTraining(causal, operands, c.outputs, gradients, c.options)).backward->options();
  };
  CHECK(settled().features.has(Feature::Lengths));
  CHECK(settled().offsets == QueryOffsets::FromLengths);
  CHECK(settled().family == Family::Sm90);
  c.options.offsets = QueryOffsets::None;
  CHECK(settled().offsets == QueryOffsets::None);
  operands.qTangent = operands.q, operands.kTangent = operands.k, operands.vTangent = operands.v;
  BackwardOutputs tangents = gradients;
  tangents.outTangent = *c.outputs.out, tangents.lseTangent = operands.lse;
  const Error error = refusalOf(Compiler().settleTraining(causal, operands, c.outputs, tangents, c.options));
  CHECK(error.message.find("takes no tangents with KV lengths or offsets of queries") != std::string::npos);
}

TEST_CASE("a mod's rows and positions are told apart from its text on", "[api]") {
  // Of rows it always holds, and is folded when the mod is parsed.
  const Mod inside = mod("(q_idx < Q_LEN) & (q_idx >= kv_idx)");
  const auto textOf = [&](QueryOffsets offsets) {
    auto source =
        take(test::sourcesOf(Compiler(), inside, {.family = Family::Naive, .arch = "sm_80", .offsets = offsets}));
    return source.front().flattened();
  };
  CHECK(textOf(QueryOffsets::None).find("args.d_Q_LEN") == std::string::npos);
  const std::string text = textOf(QueryOffsets::Tensor), mask = text.substr(text.rfind("static bool mask("));
  CHECK(mask.substr(0, mask.find("ScoreFactors")).find("row.") != std::string::npos);
}

TEST_CASE("pins of a mod stay where sequences have offsets", "[api]") {
  Case c;
  c.operands.kvLengths = TensorView::contiguous(nullptr, DType::I32, {2});
  c.options.pins = {{"KV_LEN", 3000}, {"window", 100}};
  const Mod window = mod("window: int\ndef mask_mod(b, h, q_idx, kv_idx):\n    return q_idx - kv_idx <= window\n");
  auto source = take(test::sourcesOf(Compiler(), window, settled(window, c).kernel.options()));
  const std::string text = source.front().flattened();
  CHECK(text.find("args.s_window") == std::string::npos);
  CHECK(text.find("args.d_KV_LEN") == std::string::npos);
  CHECK(text.find("kHasOffsets = true") != std::string::npos);
}
