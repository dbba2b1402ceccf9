#include "drawn_captures.h"

#include "ir/bind.h"
#include "ir/interpreter.h"
#include "launch/mask_shape.h"

#include <catch2/catch.hpp>

#include <set>

using namespace attnc;
using namespace attnc::test;

namespace {

constexpr char kEmpty = '.', kPartial = 'p', kFull = 'F';

/// One character a block, row-major over [batch, heads, qBlocks, kvBlocks], from the lists.
std::string mapOf(const BlockMask& mask) {
  const BlockMaskShape& shape = mask.shape();
  BlockMaskView view = mask.view();
  std::string map(size_t(shape.batch * shape.heads * shape.qBlocks() * shape.kvBlocks()), kEmpty);
  for (int64_t row = 0; row < shape.batch * shape.heads * shape.qBlocks(); ++row) {
    auto mark = [&](const int32_t* counts, const int32_t* indices, char kind) {
      for (int32_t i = 0; i < counts[row]; ++i) {
        int64_t block = indices[row * view.indexStride + i];
        REQUIRE(block >= 0);
        REQUIRE(block < shape.kvBlocks());
        char& cell = map[size_t(row * shape.kvBlocks() + block)];
        REQUIRE(cell == kEmpty);
        cell = kind;
      }
    };
    mark(view.partialCount, view.partialIndex, kPartial);
    mark(view.fullCount, view.fullIndex, kFull);
  }
  return map;
}

/// The same map from the lists by column, which are to ascend.
std::string mapOfColumns(const BlockMask& mask) {
  const BlockMaskShape& shape = mask.shape();
  const BlockMaskColumns columns = mask.view().columns;
  std::string map(size_t(shape.batch * shape.heads * shape.qBlocks() * shape.kvBlocks()), kEmpty);
  for (int64_t column = 0; column < shape.batch * shape.heads * shape.kvBlocks(); ++column) {
    auto mark = [&](const int32_t* counts, const int32_t* indices, char kind) {
      const int32_t* list = indices + column * columns.indexStride;
      CHECK(std::is_sorted(list, list + counts[column]));
      for (int32_t i = 0; i < counts[column]; ++i) {
        REQUIRE(list[i] >= 0);
        REQUIRE(list[i] < shape.qBlocks());
        const int64_t row = column / shape.kvBlocks() * shape.qBlocks() + list[i];
        char& cell = map[size_t(row * shape.kvBlocks() + column % shape.kvBlocks())];
        REQUIRE(cell == kEmpty);
        cell = kind;
      }
    };
    mark(columns.partialCount, columns.partialIndex, kPartial);
    mark(columns.fullCount, columns.fullIndex, kFull);
  }
  return map;
}

/// The same, by evaluating mask_mod at every coordinate.
std::string denseMap(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                     const BlockMaskShape& shape) {
  auto bindings = take(ir::bind(mod.module(), captures, problem));
  ir::Interpreter interpreter(mod.module(), bindings);
  std::string map;
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t h = 0; h < shape.heads; ++h)
      for (int64_t i = 0; i < shape.qBlocks(); ++i)
        for (int64_t j = 0; j < shape.kvBlocks(); ++j) {
          int64_t live = 0;
          for (int64_t q = i * shape.qBlock; q < std::min((i + 1) * shape.qBlock, shape.qLen); ++q)
            for (int64_t kv = j * shape.kvBlock; kv < std::min((j + 1) * shape.kvBlock, shape.kvLen); ++kv)
              live += interpreter.mask(b, h, q, kv);
          map += live == 0 ? kEmpty : live == int64_t(shape.qBlock) * shape.kvBlock ? kFull : kPartial;
        }
  return map;
}

Mod parse(std::string_view text) { return take(Mod::parse(text)); }

BlockMask build(const Mod& mod, const Captures& captures, const ProblemShape& problem, const BlockMaskShape& shape) {
  return take(BlockMask::build(mod, captures, problem, shape));
}

/// Two rows of two blocks of a 128 x 128 mask; tests break one thing each.
struct Lists {
  std::vector<int32_t> partialCount{1, 1}, partialIndex{1, 0, 0, 0}, fullCount{1, 0}, fullIndex{0, 0, 0, 0};
  BlockMaskView view{.shape = {.batch = 1, .heads = 1, .qLen = 100, .kvLen = 128, .qBlock = 64, .kvBlock = 64},
                     .partialCount = partialCount.data(),
                     .partialIndex = partialIndex.data(),
                     .fullCount = fullCount.data(),
                     .fullIndex = fullIndex.data(),
                     .indexStride = 2};
};

} // namespace

TEST_CASE("the lists say what mask_mod says at every coordinate, for every library mod") {
  const std::pair<int64_t, int64_t> lengths[] = {{1, 1}, {63, 65}, {128, 256}, {300, 517}, {513, 129}, {256, 0}};
  const std::pair<int, int> blocks[] = {{64, 64}, {128, 128}, {64, 256}, {256, 64}};
  for (const std::string& path : libraryMods()) {
    auto mod = take(Mod::load(path));
    for (auto [qLen, kvLen] : lengths) {
      ProblemShape problem{.batch = 2, .qHeads = 2, .kvHeads = 1, .qLen = qLen, .kvLen = kvLen};
      DrawnCaptures drawn(mod, problem, 200, uint32_t(qLen));
      for (auto [qBlock, kvBlock] : blocks) {
        INFO(path << " " << qLen << " x " << kvLen << " in " << qBlock << " x " << kvBlock);
        BlockMaskShape shape = plan::smallestMask(mod.module(), problem, qBlock, kvBlock);
        BlockMask mask = build(mod, drawn.captures, problem, shape);
        REQUIRE(mapOf(mask) == denseMap(mod, drawn.captures, problem, shape));
      }
    }
  }
}

TEST_CASE("masks that tell batches and heads apart have lists for each") {
  Mod mod = parse("shift: i32[B]\ndef mask_mod(b, h, q, kv): return (kv <= q + shift[b]) & (kv % 4 >= h)\n");
  std::vector<int32_t> shift{-150, 90};
  Captures captures;
  captures.set("shift", TensorView::contiguous(shift.data(), DType::I32, {2}));
  ProblemShape problem{.batch = 2, .qHeads = 3, .kvHeads = 1, .qLen = 200, .kvLen = 300};
  BlockMaskShape shape = plan::smallestMask(mod.module(), problem, 64, 64);
  CHECK(shape.batch == 2);
  CHECK(shape.heads == 3);
  CHECK(mapOf(build(mod, captures, problem, shape)) == denseMap(mod, captures, problem, shape));

  for (bool oneBatch : {true, false}) {
    BlockMaskShape tooSmall = shape;
    (oneBatch ? tooSmall.batch : tooSmall.heads) = 1;
    CHECK_THAT(refusalOf(BlockMask::build(mod, captures, problem, tooSmall)).message,
               Catch::Contains(oneBatch ? "depends on b" : "depends on h"));
  }
  shape.batch = 3;
  CHECK_FALSE(BlockMask::build(mod, captures, problem, shape));
}

TEST_CASE("a mod without mask_mod gives full blocks, and partial ones at ragged ends") {
  ProblemShape problem{.qLen = 130, .kvLen = 256};
  BlockMask mask = build(Mod::identity(), {}, problem, {.qLen = 130, .kvLen = 256});
  CHECK(mapOf(mask) == "FFpp");
  CHECK(mask.liveBlocks() == 4);
  CHECK(mask.fullBlocks() == 2);
  CHECK(mask.sparsity() == 0);
}

TEST_CASE("a long causal mask takes no dense matrix and counts as FlexAttention does") {
  ProblemShape problem{.qLen = 1 << 17, .kvLen = 1 << 17};
  BlockMask mask = build(parse("q_idx >= kv_idx"), {}, problem, {.qLen = 1 << 17, .kvLen = 1 << 17});
  int64_t n = 1024;
  CHECK(mask.liveBlocks() == n * (n + 1) / 2);
  CHECK(mask.fullBlocks() == n * (n - 1) / 2);
  CHECK(mask.sparsity() == Approx(100 * (1 - double(n + 1) / double(2 * n))));
}

TEST_CASE("a build with what does not fit is refused") {
  Mod mod = parse("window: int\ndef mask_mod(b, h, q, kv): return q - kv < window\n");
  ProblemShape problem{.qLen = 128, .kvLen = 128};
  Captures captures;
  CHECK_THAT(refusalOf(BlockMask::build(mod, captures, problem, {.qLen = 128, .kvLen = 128})).message,
             Catch::Contains("window"));
  captures.set("window", 3);
  CHECK(BlockMask::build(mod, captures, problem, {.qLen = 128, .kvLen = 128}));
  CHECK_FALSE(BlockMask::build(mod, captures, problem, {.qLen = 129, .kvLen = 128}));
  CHECK_FALSE(BlockMask::build(mod, captures, problem, {.qLen = 128, .kvLen = 127}));
  CHECK_FALSE(BlockMask::build(mod, captures, problem, {.qLen = 128, .kvLen = 128, .qBlock = 32}));
  CHECK_FALSE(BlockMask::build(mod, captures, problem, {.batch = 0, .qLen = 128, .kvLen = 128}));
}

TEST_CASE("lists by column name the blocks that those by row do") {
  const Mod mod =
      parse("def mask_mod(b, h, q, kv): return (q >= kv) & (kv % 8 >= b + h) & (q // 64 != 2) & (kv // 64 != 1)\n");
  for (auto [qLen, kvLen] : {std::pair<int64_t, int64_t>{300, 200}, {64, 500}, {500, 64}, {0, 100}, {100, 0}})
    for (auto [qBlock, kvBlock] : {std::pair{64, 64}, {128, 64}, {64, 256}}) {
      INFO(qLen << " x " << kvLen << " in " << qBlock << " x " << kvBlock);
      const ProblemShape problem{.batch = 3, .qHeads = 2, .kvHeads = 1, .qLen = qLen, .kvLen = kvLen};
      const BlockMask mask = build(mod, {}, problem, {3, 2, qLen, kvLen, qBlock, kvBlock});
      CHECK_FALSE(mask.view().columns.partialCount);
      const BlockMask both = mask.withColumns();
      CHECK(mapOf(both) == mapOf(mask));
      CHECK(mapOfColumns(both) == mapOf(mask));
      CHECK(mapOfColumns(both.withColumns()) == mapOf(mask));
    }
}

TEST_CASE("lists by column of the user's own are copied, and must name the blocks that those by row do") {
  // Rows: F p / p . ; columns: 0 has row 0 full and row 1 partial, 1 has row 0 partial.
  Lists lists;
  std::vector<int32_t> partialCount{1, 1}, partialIndex{1, 9, 0, 9}, fullCount{1, 0}, fullIndex{0, 9, 9, 9};
  lists.view.columns = {partialCount.data(), partialIndex.data(), fullCount.data(), fullIndex.data(), 2};
  auto mask = take(BlockMask::fromLists(lists.view));
  CHECK(mapOfColumns(mask) == "Fpp.");
  CHECK(mapOfColumns(mask) == mapOf(mask));

  const auto errorOf = [&] { return environmentErrorOf(BlockMask::fromLists(lists.view)); };
  SECTION("another block") {
    partialIndex[2] = 1;
    CHECK(errorOf() ==
          "block mask: columns.partialIndex lists other blocks than the rows at batch 0, head 0, kv block 1");
  }
  SECTION("another kind") {
    fullCount[0] = 0, partialCount[0] = 2, partialIndex[1] = 0;
    CHECK(errorOf() ==
          "block mask: columns.partialIndex lists other blocks than the rows at batch 0, head 0, kv block 0");
  }
  SECTION("a count out of range") {
    fullCount[0] = -1;
    CHECK(errorOf() == "block mask: columns.fullIndex lists other blocks than the rows at batch 0, head 0, kv block 0");
  }
  SECTION("lists too short") {
    lists.view.columns.indexStride = 0;
    CHECK(errorOf() ==
          "block mask: columns.partialIndex lists other blocks than the rows at batch 0, head 0, kv block 0");
  }
  SECTION("no full lists") {
    lists.view.columns.fullCount = lists.view.columns.fullIndex = nullptr;
    CHECK(errorOf() == "block mask: columns.fullIndex lists other blocks than the rows at batch 0, head 0, kv block 0");
  }
  SECTION("no indices") {
    lists.view.columns.partialIndex = nullptr;
    CHECK(errorOf() == "block mask: columns.partialCount and columns.partialIndex must not be null");
  }
  SECTION("in any order, of a full pair that is missing in both") {
    lists.view.fullCount = lists.view.fullIndex = nullptr;
    lists.view.columns.fullCount = lists.view.columns.fullIndex = nullptr;
    lists.partialCount = {1, 2}, lists.partialIndex = {0, 9, 1, 0};
    partialCount = {2, 1}, partialIndex = {1, 0, 1, 9};
    auto unordered = take(BlockMask::fromLists(lists.view));
    CHECK(mapOfColumns(unordered) == "p.pp");
  }
}

TEST_CASE("lists of the user's own are copied") {
  Lists lists;
  auto mask = take(BlockMask::fromLists(lists.view));
  lists.partialIndex[0] = 0;
  CHECK(mapOf(mask) == "Fpp.");
  CHECK(mask.sparsity() == 25);

  Lists partialOnly;
  partialOnly.view.fullCount = partialOnly.view.fullIndex = nullptr;
  auto second = take(BlockMask::fromLists(partialOnly.view));
  CHECK(mapOf(second) == ".pp.");

  Lists compact;
  compact.view.indexStride = 1;
  auto third = take(BlockMask::fromLists(compact.view));
  CHECK(mapOf(third) == "Fpp.");
}

TEST_CASE("lists that are none are refused with the place") {
  struct Row {
    const char* message;
    void (*spoil)(Lists&);
  };
  const Row rows[] = {
      {"blocks of 63 x 64", [](Lists& l) { l.view.shape.qBlock = 63; }},
      {"blocks of 64 x 512", [](Lists& l) { l.view.shape.kvBlock = 512; }},
      {"batch 0", [](Lists& l) { l.view.shape.batch = 0; }},
      {"lengths -1", [](Lists& l) { l.view.shape.qLen = -1; }},
      {"lengths 4294967296", [](Lists& l) { l.view.shape.qLen = int64_t(1) << 32; }},
      {"beyond 2^31", [](Lists& l) { l.view.shape.batch = l.view.shape.heads = 1 << 20; }},
      {"indexStride is negative", [](Lists& l) { l.view.indexStride = -1; }},
      {"must not be null", [](Lists& l) { l.view.partialCount = nullptr; }},
      {"must not be null", [](Lists& l) { l.view.partialIndex = nullptr; }},
      {"both", [](Lists& l) { l.view.fullIndex = nullptr; }},
      {"both", [](Lists& l) { l.view.fullCount = nullptr; }},
      {"partialCount is -1 at batch 0, head 0, q block 1", [](Lists& l) { l.partialCount[1] = -1; }},
      {"partialCount is 3 at batch 0, head 0, q block 0", [](Lists& l) { l.partialCount[0] = 3; }},
      {"fullCount is 2", [](Lists& l) { l.view.indexStride = 1, l.fullCount[1] = 2; }},
      {"partialIndex names block 2 at batch 0, head 0, q block 0", [](Lists& l) { l.partialIndex[0] = 2; }},
      {"fullIndex names block -1", [](Lists& l) { l.fullIndex[0] = -1; }},
      {"block 1 is listed twice at batch 0, head 0, q block 0", [](Lists& l) { l.fullIndex[0] = 1; }},
      {"block 0 is listed twice", [](Lists& l) { l.partialCount[1] = 2; }},
  };
  for (const Row& row : rows) {
    INFO(row.message);
    Lists lists;
    row.spoil(lists);
    CHECK_THAT(environmentErrorOf(BlockMask::fromLists(lists.view)), Catch::Contains(row.message));
  }
}

TEST_CASE("the picture shows a head, cut to the limit") {
  ProblemShape problem{.qLen = 192, .kvLen = 192};
  BlockMask mask = build(parse("q_idx >= kv_idx"), {}, problem, {1, 1, 192, 192, 64, 64});
  CHECK(mask.toString() == "░  \n█░ \n██░\n");
  CHECK(mask.toString(0, 0, 2) == "░ \n█░\n");
  CHECK(mask.toString(1, 0).empty());
  CHECK(mask.toString(0, 0, 0).empty());
}

TEST_CASE("a view into an allocation fits it without overlap") {
  BlockMaskShape shape{2, 3, 300, 500, 128, 64};
  size_t bytes = BlockMask::storageBytes(shape);
  CHECK(bytes == 2 * 3 * 3 * (2 + 2 * 8) * sizeof(int32_t));
  std::vector<int32_t> storage(bytes / sizeof(int32_t));
  BlockMaskView view = BlockMask::viewInto(storage.data(), shape);
  CHECK(view.indexStride == 8);
  std::set<int32_t*> addresses;
  for (int64_t i = 0; i < 18; ++i) addresses.insert({view.partialCount + i, view.fullCount + i});
  for (int64_t i = 0; i < 18 * 8; ++i) addresses.insert({view.partialIndex + i, view.fullIndex + i});
  CHECK(addresses.size() == storage.size());
  CHECK(*addresses.begin() == storage.data());
  CHECK(*addresses.rbegin() == storage.data() + storage.size() - 1);
}

TEST_CASE("a view with lists by column has them behind those by row") {
  BlockMaskShape shape{2, 3, 300, 500, 128, 64}; // 3 x 8 blocks
  size_t byRow = BlockMask::storageBytes(shape);
  size_t bytes = BlockMask::storageBytes(shape, BlockMask::Lists::ByRowAndColumn);
  CHECK(bytes == byRow + 2 * 3 * 8 * (2 + 2 * 3) * sizeof(int32_t));
  std::vector<int32_t> storage(bytes / sizeof(int32_t));
  BlockMaskView rows = BlockMask::viewInto(storage.data(), shape);
  BlockMaskView view = BlockMask::viewInto(storage.data(), shape, BlockMask::Lists::ByRowAndColumn);
  CHECK(rows.columns.partialCount == nullptr);
  CHECK(view.partialCount == rows.partialCount);
  CHECK(view.fullIndex == rows.fullIndex);
  CHECK(view.columns.indexStride == 3);
  std::set<int32_t*> addresses;
  for (int64_t i = 0; i < 48; ++i) addresses.insert({view.columns.partialCount + i, view.columns.fullCount + i});
  for (int64_t i = 0; i < 48 * 3; ++i) addresses.insert({view.columns.partialIndex + i, view.columns.fullIndex + i});
  CHECK(addresses.size() == 48 * (2 + 2 * 3));
  CHECK(*addresses.begin() == storage.data() + byRow / sizeof(int32_t));
  CHECK(*addresses.rbegin() == storage.data() + storage.size() - 1);
}
