// Counts of blocks: equal to those of the lists where the budget goes far enough, near them where it does not, and
// within the budget always.
#include "api/drawn_captures.h"
#include "helpers/random_mask.h"
#include "inspect/mask_census.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "launch/mask_shape.h"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace attnc;
using namespace attnc::test;

namespace {

Mod parse(std::string_view text) { return take(Mod::parse(text)); }

MaskCensus census(const Mod& mod, const Captures& captures, const ProblemShape& problem, const BlockMaskShape& shape,
                  const CensusBudget& budget = {}) {
  auto bindings = take(ir::bind(mod.module(), captures, problem));
  return takeCensus(mod.module(), bindings, shape, budget);
}

/// Elements in the live blocks of a mask, without what lies past the lengths.
double livePairs(const BlockMaskView& mask) {
  const BlockMaskShape& shape = mask.shape;
  double pairs = 0;
  for (int64_t row = 0; row < shape.batch * shape.heads * shape.qBlocks(); ++row) {
    int64_t rows = std::min<int64_t>(shape.qBlock, shape.qLen - row % shape.qBlocks() * shape.qBlock);
    auto add = [&](const int32_t* index, int32_t count) {
      for (int32_t i = 0; i < count; ++i)
        pairs += double(rows) * double(std::min<int64_t>(shape.kvBlock, shape.kvLen - index[i] * shape.kvBlock));
    };
    add(mask.partialIndex + row * mask.indexStride, mask.partialCount[row]);
    add(mask.fullIndex + row * mask.indexStride, mask.fullCount[row]);
  }
  return pairs;
}

void checkEqual(const MaskCensus& counted, const BlockMask& lists) {
  const BlockMaskShape& shape = lists.shape();
  CHECK(counted.blocks == double(shape.batch * shape.heads * shape.qBlocks() * shape.kvBlocks()));
  CHECK(counted.live == double(lists.liveBlocks()));
  CHECK(counted.full == double(lists.fullBlocks()));
  CHECK(counted.pairs == livePairs(lists.view()));
  CHECK(counted.estimated == 0);
}

/// Documents of this length.
struct Documents {
  std::vector<int32_t> ids;
  Captures captures;
  Documents(int64_t length, int64_t document) : ids(size_t(length)) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t(int64_t(i) / document);
    captures.set("doc", TensorView::contiguous(ids.data(), DType::I32, {length}));
  }
};

const char kDocument[] = "doc: i32[KV_LEN]\n"
                         "def mask_mod(b, h, q, kv):\n    return (doc[q] == doc[kv]) & (q >= kv)\n";
/// One element of some thirty thousand lives, a block has 16384: whether one lives there has no structure.
const char kNoise[] = "def mask_mod(b, h, q, kv):\n    return ((q * 7919 + kv * 104729) % 30011) < 1\n";

} // namespace

TEST_CASE("the census counts what the lists of a block mask hold, for every library mod") {
  const std::pair<int64_t, int64_t> lengths[] = {{1, 1}, {63, 65}, {128, 256}, {300, 517}, {1025, 129}, {256, 0}};
  for (const std::string& path : libraryMods()) {
    auto mod = take(Mod::load(path));
    for (auto [qLen, kvLen] : lengths)
      for (auto [qBlock, kvBlock] : {std::pair(128, 128), std::pair(64, 256)}) {
        ProblemShape problem{.batch = 3, .qHeads = 4, .kvHeads = 2, .qLen = qLen, .kvLen = kvLen};
        DrawnCaptures drawn(mod, problem, 40, 7);
        BlockMaskShape shape = plan::smallestMask(mod.module(), problem, qBlock, kvBlock);
        INFO(path << ", " << qLen << " x " << kvLen << " in " << qBlock << " x " << kvBlock);
        auto lists = take(BlockMask::build(mod, drawn.captures, problem, shape));
        checkEqual(census(mod, drawn.captures, problem, shape), lists);
      }
  }
}

TEST_CASE("masks that know captured data by batch entry, head, row and column are counted") {
  const char* texts[] = {
      "limit: i32\ndef mask_mod(b, h, q, kv): return kv < limit\n",
      "ends: i32[B]\nflag: bool[H]\ndef mask_mod(b, h, q, kv): return (kv < ends[b]) | (flag[h] & (q >= kv))\n",
      "live: bool[Q_LEN]\ndef mask_mod(b, h, q, kv): return live[q]\n",
      "live: bool[KV_LEN]\ndef mask_mod(b, h, q, kv): return live[kv] & (kv < 400)\n",
      "doc: i32[B, KV_LEN]\ndef mask_mod(b, h, q, kv): return doc[b, q] == doc[b, kv]\n",
      "at: f32[Q_LEN]\ndef mask_mod(b, h, q, kv): return at[q] * 100 < kv\n",
      "to: i64[Q_LEN]\ndef mask_mod(b, h, q, kv): return abs(to[q] * 9 - kv) < 20\n",
      "on: bool[H, 12, 12]\ndef mask_mod(b, h, q, kv): return on[h, q // 64, kv // 64]\n"};
  for (const char* text : texts) {
    INFO(text);
    Mod mod = parse(text);
    ProblemShape problem{.batch = 2, .qHeads = 3, .kvHeads = 1, .qLen = 700, .kvLen = 650};
    DrawnCaptures drawn(mod, problem, 60, 11);
    BlockMaskShape shape = plan::smallestMask(mod.module(), problem, 64, 64);
    auto lists = take(BlockMask::build(mod, drawn.captures, problem, shape));
    checkEqual(census(mod, drawn.captures, problem, shape), lists);
  }
}

TEST_CASE("random masks are counted") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomMask random(seed);
    auto bindings = take(ir::bind(random.module, random.captures, random.problem));
    BlockMaskShape shape = plan::smallestMask(random.module, random.problem, 64, 64);
    ir::Interpreter interpreter(random.module, bindings);
    double live = 0;
    for (int64_t b = 0; b < shape.batch; ++b)
      for (int64_t h = 0; h < shape.heads; ++h)
        for (int64_t q = 0; q < shape.qLen; q += 64)
          for (int64_t kv = 0; kv < shape.kvLen; kv += 64) {
            bool any = false;
            for (int64_t i = q; i < std::min(q + 64, shape.qLen); ++i)
              for (int64_t j = kv; j < std::min(kv + 64, shape.kvLen); ++j) any |= interpreter.mask(b, h, i, j);
            live += any;
          }
    INFO("seed " << seed);
    CHECK(takeCensus(random.module, bindings, shape).live == live);
  }
}

TEST_CASE("a million positions are counted exactly, by intervals alone") {
  constexpr int64_t kLength = 1 << 20, kBlocks = kLength / 128;
  ProblemShape problem{.batch = 1, .qHeads = 8, .kvHeads = 8, .qLen = kLength, .kvLen = kLength};
  const BlockMaskShape shape{.qLen = kLength, .kvLen = kLength};

  MaskCensus causal = census(parse("q_idx >= kv_idx"), {}, problem, shape);
  CHECK(causal.estimated == 0);
  CHECK(causal.live == double(kBlocks) * (kBlocks + 1) / 2);
  CHECK(causal.live - causal.full == double(kBlocks));
  CHECK(causal.operations < 10'000'000);

  constexpr int64_t kDocumentBlocks = 32;
  Documents documents(kLength, kDocumentBlocks * 128);
  MaskCensus own = census(parse(kDocument), documents.captures, problem, shape);
  CHECK(own.estimated == 0);
  CHECK(own.live == double(kBlocks) * (kDocumentBlocks + 1) / 2);
  CHECK(own.live - own.full == double(kBlocks));
  CHECK(own.operations < 40'000'000);
}

TEST_CASE("what the budget does not reach is estimated, and said to be") {
  ProblemShape problem{.qLen = 8192, .kvLen = 8192};
  const BlockMaskShape shape{.qLen = 8192, .kvLen = 8192};
  Mod noise = parse(kNoise);
  MaskCensus exact = census(noise, {}, problem, shape);
  REQUIRE(exact.estimated == 0);
  REQUIRE(exact.live > 0.2 * exact.blocks);
  REQUIRE(exact.live < 0.95 * exact.blocks);
  // Few regions judged, few blocks evaluated, or both.
  for (const CensusBudget& budget : {CensusBudget{.judging = 200}, CensusBudget{.elements = 1 << 26},
                                     CensusBudget{.judging = 2000, .elements = 1 << 26}}) {
    MaskCensus some = census(noise, {}, problem, shape, budget);
    CHECK(some.estimated > 0);
    CHECK(some.sampled > 0);
    CHECK(some.live == Approx(exact.live).epsilon(0.1));
    CHECK(some.pairs == Approx(exact.pairs).epsilon(0.1));
    CHECK(double(some.operations) < 1.1 * double(budget.judging + budget.elements));
  }
}

TEST_CASE("an operation of a sum counts in each of its rounds") {
  // 1000 rounds of a product and an addition, for every element of one block: 33 million operations.
  Mod mod = parse("table: i32[KV_LEN, 1000]\nwhole: i32[Q_LEN, 1000]\n"
                  "def mask_mod(b, h, q, kv):\n    return (whole[q] * table[kv]).sum() >= 0\n");
  ProblemShape problem{.qLen = 128, .kvLen = 128};
  DrawnCaptures drawn(mod, problem, 3, 5);
  const BlockMaskShape shape{.qLen = 128, .kvLen = 128};
  MaskCensus all = census(mod, drawn.captures, problem, shape);
  CHECK(all.estimated == 0);
  CHECK(all.full == 1);
  CHECK(all.operations > 128 * 128 * 2000);
  for (int64_t most : {int64_t(1'000'000), int64_t(100)}) {
    MaskCensus some = census(mod, drawn.captures, problem, shape, {.elements = most});
    CHECK(some.estimated == 1);
    CHECK(some.operations < most + 1000);
    CHECK(some.live == 1);
  }
}

TEST_CASE("of very many heads some are looked at") {
  Mod mod = parse("ends: i32[H]\ndef mask_mod(b, h, q, kv): return kv < ends[h]\n");
  constexpr int64_t kHeads = 100'000;
  std::vector<int32_t> ends(kHeads);
  for (size_t h = 0; h < ends.size(); ++h) ends[h] = int32_t(h % 1025);
  Captures captures;
  captures.set("ends", TensorView::contiguous(ends.data(), DType::I32, {kHeads}));
  ProblemShape problem{.batch = 1, .qHeads = kHeads, .kvHeads = 1, .qLen = 1024, .kvLen = 1024};
  const BlockMaskShape shape{.batch = 1, .heads = kHeads, .qLen = 1024, .kvLen = 1024};
  MaskCensus some = census(mod, captures, problem, shape);
  CHECK(some.estimated == some.blocks);
  CHECK(some.sampled < 0.1 * some.blocks);
  CHECK(some.live == Approx(some.blocks * 4608 / 1025 / 8).epsilon(0.05)); // sum of ceil(end / 128)
}

TEST_CASE("the largest problems take no more than the budget, and the same every time") {
  constexpr int64_t kMost = ir::kMaxExtent;
  ProblemShape problem{.batch = kMost, .qHeads = kMost, .kvHeads = kMost, .qLen = kMost, .kvLen = kMost};
  const char* texts[] = {"q_idx >= kv_idx", "(q_idx >= kv_idx) & (q_idx - kv_idx <= 1000 + h + b)",
                         "((q_idx * 7919 + kv_idx * 104729) % 10007) < 1 + h", kNoise};
  const CensusBudget budget{.judging = 1 << 20, .elements = 1 << 26, .heads = 64};
  for (const char* text : texts) {
    INFO(text);
    Mod mod = parse(text);
    BlockMaskShape shape = plan::smallestMask(mod.module(), problem, 128, 128);
    MaskCensus first = census(mod, {}, problem, shape, budget), second = census(mod, {}, problem, shape, budget);
    // Each part of the work may run over by one region or one block.
    CHECK(first.operations < 2 * (budget.judging + budget.elements));
    CHECK(first.live >= 0);
    CHECK(first.live <= first.blocks);
    CHECK(first.live == second.live);
    CHECK(first.full == second.full);
    CHECK(first.pairs == second.pairs);
    CHECK(first.operations == second.operations);
  }
}
