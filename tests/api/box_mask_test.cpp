// Block masks whose blocks are boxes of a grid: when prepare() accepts them, and what their lists hold. Needs no GPU.
#include "tests/api/settled.h"

#include "api/mod_impl.h"
#include "families/grids/grid_plan.h"
#include "helpers/plan_parts.h"
#include "inspect/grid_census.h"
#include "ir/bind.h"
#include "ir/interpreter.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <numeric>
#include <random>

using namespace attnc;
using namespace attnc::test;

namespace {

/// Of 1000 queries and 3000 keys.
Mod imageMod(const std::string& mask, const std::string& captures = "") {
  return mod((captures +
              "from attnc import grid\nrows = grid(20, 50)\ncolumns = grid(60, 50)\n"
              "def mask_mod(b, h, q_idx, kv_idx):\n"
              "  (qy, qx), (ky, kx) = rows.coords(q_idx), columns.coords(kv_idx)\n  return " +
              mask + "\n")
                 .c_str());
}

const Mod& crissCross() {
  static const Mod m = imageMod("(qy == ky // 3) | (qx == kx)");
  return m;
}

Captures noCaptures;

/// Live pairs of two boxes, by asking for each.
struct Pairs {
  int64_t live = 0, all = 0;
};
Pairs pairsOf(const ir::Interpreter& interpreter, int64_t b, int64_t h, const std::vector<int64_t>& queries,
              const std::vector<int64_t>& keys) {
  Pairs pairs;
  for (int64_t q : queries)
    for (int64_t kv : keys) ++pairs.all, pairs.live += interpreter.mask(b, h, q, kv);
  return pairs;
}

} // namespace

TEST_CASE("a lattice of boxes names each token of its grid once", "[api][box-mask]") {
  std::mt19937 random{5};
  const auto draw = [&](int most) { return 1 + int(random() % unsigned(most)); };
  for (int round = 0; round < 100; ++round) {
    const BoxLattice lattice{{draw(4), draw(9), draw(20)}, {draw(3), draw(5), draw(16)}};
    std::vector<int> named(size_t(lattice.tokens()), 0);
    for (int64_t box = 0; box < lattice.boxes(); ++box) {
      const std::vector<int64_t> tokens = lattice.tokensIn(box);
      REQUIRE_FALSE(tokens.empty());
      CHECK(std::is_sorted(tokens.begin(), tokens.end()));
      CHECK(tokens.size() <= size_t(lattice.tokensOfBox()));
      for (int64_t token : tokens) {
        REQUIRE(token < lattice.tokens());
        ++named[size_t(token)];
        CHECK(lattice.boxOf(token) == box);
      }
    }
    CHECK(std::count(named.begin(), named.end(), 1) == lattice.tokens());
  }
}

TEST_CASE("prepare() lists boxes where no axis bounds what a query sees", "[api][box-mask]") {
  Case c;
  const Preparation p = settled(crissCross(), c);
  CHECK(p.kernel.options().family == Family::Grid);
  CHECK(p.kernel.kvLoop() == KvLoop::BoxMask);
  CHECK(p.kernel.passedOver().empty());
  CHECK(p.kernel.options().blockSparse);
  CHECK(p.kernel.options().maskByBoxes);
  REQUIRE(p.blockMask);
  REQUIRE(p.blockMask->boxes);
  CHECK(p.blockMask->batch == 1);
  CHECK(p.blockMask->heads == 1);
  const BlockMaskShape::Boxes& boxes = *p.blockMask->boxes;
  CHECK(boxes.queries.extents == std::array<int64_t, 3>{1, 20, 50});
  CHECK(boxes.keys.extents == std::array<int64_t, 3>{1, 60, 50});
  CHECK(boxes.queries.tokensOfBox() == 128);
  CHECK(p.workspaceBytes >= BlockMask::storageBytes(*p.blockMask));
  REQUIRE(p.kernels().size() == 2);
  CHECK(p.kernels()[1].options().kind == KernelKind::BlockMask);
  CHECK(p.kernels()[1].options().maskByBoxes);
  CHECK(p.kernels()[1].sources()->front().templateName == "box_mask.cu");

  SECTION("heads that differ have lists of their own") {
    const Preparation own = settled(imageMod("(qy == ky // 3) | (qx == kx + h)"), c);
    CHECK(own.kernel.kvLoop() == KvLoop::BoxMask);
    CHECK(own.blockMask->heads == 8);
  }
  SECTION("on other GPUs, too") {
    c.options.arch = "sm_80";
    const Preparation other = settled(crissCross(), c);
    CHECK(other.kernel.options().family == Family::Grid);
    CHECK(other.kernel.kvLoop() == KvLoop::BoxMask);
    CHECK(other.blockMask->boxes);
  }
  SECTION("a tile that is asked for makes the boxes") {
    const auto tiles = take(test::tilesOf(Compiler(), crissCross(), p.kernel.options()));
    REQUIRE(tiles.size() > 3);
    CHECK(tiles.front() == p.kernel.tile());
    c.options.tile = tiles.back();
    const Preparation asked = settled(crissCross(), c);
    CHECK(asked.kernel.tile() == tiles.back());
    CHECK_FALSE(*asked.blockMask->boxes == boxes);
  }
  SECTION("tokens of other lengths, head dims and masks that are not wanted go by other kernels") {
    c.operands.k = tensor(2, 2, 3001, 64), c.operands.v = tensor(2, 2, 3001, 32);
    const Preparation beside = settled(crissCross(), c);
    CHECK(beside.kernel.options().family == Family::Sm90);
    CHECK(beside.kernel.kvLoop() == KvLoop::BlockMask);
    CHECK_FALSE(beside.kernel.options().maskByBoxes);
    CHECK_FALSE(beside.blockMask->boxes);
    CHECK(beside.kernel.passedOver() == "a grid of 60 x 50 has 3000 tokens, KV_LEN is 3001");
    c.options.buildBlockMask = false;
    CHECK(settled(crissCross(), c).kernel.kvLoop() == KvLoop::AllTiles);
    Case wide;
    wide.operands.q = tensor(2, 8, 1000, 192), wide.operands.k = tensor(2, 2, 3000, 192);
    CHECK(settled(crissCross(), wide).kernel.passedOver() == "grid takes head dims up to 128");
    CHECK(settled(crissCross(), wide).kernel.kvLoop() == KvLoop::BlockMask);
  }
  SECTION("training goes by blocks of tokens in both passes") {
    const Preparation both = trained(crissCross(), c);
    CHECK(both.kernel.kvLoop() == KvLoop::BlockMask);
    CHECK(both.backward->kvLoop() == KvLoop::BlockMask);
    CHECK_FALSE(both.blockMask->boxes);
    const char* const why = "grid goes by lists of boxes where no axis is bounded, in forward passes on declared grids";
    CHECK(both.kernel.passedOver() == why);
    CHECK(both.backward->passedOver() == why);
  }
}

TEST_CASE("masks that bound what a query sees, and grids that are found, list no boxes", "[api][box-mask]") {
  Case c;
  CHECK(settled(mod(kNeighborhood), c).kernel.kvLoop() == KvLoop::Boxes);
  CHECK(settled(imageMod("(abs(ky - qy) <= 2) & ((kx == qx) | (ky == qy))"), c).kernel.kvLoop() == KvLoop::Boxes);
  // Coordinates along only one axis: blocks of consecutive tokens are as good.
  CHECK(settled(imageMod("(ky % 7 == qy % 3) | (ky == qy)"), c).kernel.kvLoop() == KvLoop::BlockMask);
  const Mod found = mod("def mask_mod(b, h, q, k):\n  return (q // 50 == k // 50) | (q % 50 == k % 50)\n");
  CHECK(settled(found, c).kernel.kvLoop() == KvLoop::BlockMask);
  CHECK_FALSE(settled(found, c).kernel.options().maskByBoxes);
  c.options.family = Family::Grid;
  CHECK(settled(found, c).kernel.kvLoop() == KvLoop::BoxMask);
}

TEST_CASE("boxes of a mask that is given are those of the kernel's tile", "[api][box-mask]") {
  Case c;
  const Preparation own = settled(crissCross(), c);
  BlockMaskView mask{.shape = *own.blockMask};
  c.operands.blockMask = &mask;
  const Preparation given = settled(crissCross(), c);
  CHECK(given.kernel.kvLoop() == KvLoop::BoxMask);
  CHECK_FALSE(given.blockMask);
  mask.shape.boxes->keys.box = {1, 2, 8};
  CHECK(errorOf(crissCross(), c).find("block mask: its boxes are ") == 0);
  mask.shape = *own.blockMask;
  mask.shape.boxes->keys.extents = {1, 50, 60};
  CHECK(errorOf(crissCross(), c).find("block mask: its boxes are ") == 0);
  mask.shape.boxes->keys.extents = {1, 50, 61};
  CHECK(errorOf(crissCross(), c) == "block mask: a grid of 1x50x61 has 3050 tokens, KV_LEN is 3000");
  mask.shape = *own.blockMask;
  mask.shape.boxes->queries.box = {1, 16, 17};
  CHECK(errorOf(crissCross(), c) == "block mask: boxes of 1x16x17 on a grid of 1x20x50 are not supported");
  mask.shape = *own.blockMask;
  c.options.family = Family::Sm90;
  CHECK(errorOf(crissCross(), c) == "the sm90 family does not serve this request: it takes no block masks of boxes");
}

TEST_CASE("lists of boxes are what asking for each pair gives", "[api][box-mask]") {
  std::mt19937 random{17};
  const auto draw = [&](int most) { return 1 + int(random() % unsigned(most)); };
  int partial = 0, full = 0, empty = 0;
  for (int round = 0; round < 40; ++round) {
    const std::array<int64_t, 3> queries{draw(3), draw(9), draw(12)}, keys{draw(3), draw(9), draw(12)};
    std::vector<int32_t> table(size_t(2 * 27 * 27));
    for (int32_t& value : table) value = int32_t(random() % 3 == 0);
    const char* const masks[] = {
        "(qy == ky) | (qx == kx)", "live[h, (qz * 3 + qy // 4) * 3 + qx // 4, (kz * 3 + ky // 4) * 3 + kx // 4] > 0",
        "((abs(qy - ky) <= 1) & (abs(qx - kx) <= 2)) | (live[b, kz * 9 + ky, kx] > 0)", "(kx + ky >= qx) | (kz > qy)"};
    const Mod m =
        mod((fmt::format("from attnc import grid\nlive: i32[N, M, L]\nqs = grid({}, {}, {})\nks = grid({}, {}, {})\n",
                         queries[0], queries[1], queries[2], keys[0], keys[1], keys[2]) +
             "def mask_mod(b, h, q_idx, kv_idx):\n"
             "  (qz, qy, qx), (kz, ky, kx) = qs.coords(q_idx), ks.coords(kv_idx)\n  return " +
             masks[round % 4] + "\n")
                .c_str());
    const BlockMaskShape::Boxes boxes{{queries, {draw(2), draw(4), draw(8)}}, {keys, {draw(2), draw(4), draw(8)}}};
    const ProblemShape problem{2, 2, 2, boxes.queries.tokens(), boxes.keys.tokens()};
    Captures captures;
    captures.set("live", TensorView::contiguous(table.data(), DType::I32, {2, 27, 27}));
    BlockMaskShape shape{.batch = 2, .heads = 2, .qLen = problem.qLen, .kvLen = problem.kvLen, .boxes = boxes};
    auto mask = take(BlockMask::build(m, captures, problem, shape));
    CHECK(BlockMask::fromLists(mask.view()));
    CHECK(BlockMask::fromLists(mask.withColumns().view()));
    auto bindings = take(ir::bind(m.module(), captures, problem));
    const ir::Interpreter interpreter(m.module(), bindings);
    const BlockMaskView lists = mask.view();
    for (int64_t row = 0; row < 4 * shape.qBlocks(); ++row) {
      const std::vector<int64_t> own = boxes.queries.tokensIn(row % shape.qBlocks());
      std::vector<int32_t> expected[2]; // partial, full
      for (int64_t box = 0; box < shape.kvBlocks(); ++box) {
        const std::vector<int64_t> seen = boxes.keys.tokensIn(box);
        const Pairs pairs = pairsOf(interpreter, row / shape.qBlocks() / 2, row / shape.qBlocks() % 2, own, seen);
        const bool isWhole =
            int64_t(own.size()) == boxes.queries.tokensOfBox() && int64_t(seen.size()) == boxes.keys.tokensOfBox();
        if (pairs.live) expected[pairs.live == pairs.all && isWhole].push_back(int32_t(box));
        ++(pairs.live == 0 ? empty : pairs.live == pairs.all && isWhole ? full : partial);
      }
      const auto listed = [&](const int32_t* counts, const int32_t* indices) {
        const int32_t* first = indices + row * lists.indexStride;
        return std::vector<int32_t>(first, first + counts[row]);
      };
      CHECK(listed(lists.partialCount, lists.partialIndex) == expected[0]);
      CHECK(listed(lists.fullCount, lists.fullIndex) == expected[1]);
    }
  }
  CHECK((partial > 100 && full > 100 && empty > 100)); // else the test holds little
}

TEST_CASE("the reference goes by lists of boxes", "[api][box-mask]") {
  const Mod m = mod("from attnc import grid\nimage = grid(5, 7)\ndef mask_mod(b, h, q, k):\n"
                    "  (qy, qx), (ky, kx) = image.coords(q), image.coords(k)\n  return (qy == ky) | (qx == kx)\n");
  const ProblemShape problem{1, 1, 1, 35, 35};
  const BlockMaskShape shape{.qLen = 35, .kvLen = 35, .boxes = {{{{1, 5, 7}, {1, 2, 4}}, {{1, 5, 7}, {1, 4, 2}}}}};
  auto mask = take(BlockMask::build(m, noCaptures, problem, shape));
  std::vector<float> values(35 * 8), out(35 * 8), listed(35 * 8);
  std::mt19937 random{3};
  for (float& value : values) value = float(random() % 100) / 50 - 1;
  const auto view = [](std::vector<float>& of) { return TensorView::contiguous(of.data(), DType::F32, {1, 1, 35, 8}); };
  Operands operands{.q = view(values), .k = view(values), .v = view(values)};
  REQUIRE(computeOnCpu(m, operands, {.out = view(out)}));
  BlockMaskView lists = mask.view();
  operands.blockMask = &lists;
  REQUIRE(computeOnCpu(m, operands, {.out = view(listed)}));
  CHECK(listed == out);
  // A box that the lists leave out is not seen.
  std::vector<int32_t> counts(lists.partialCount, lists.partialCount + shape.qBlocks());
  counts[0] -= 1;
  lists.partialCount = counts.data();
  REQUIRE(computeOnCpu(m, operands, {.out = view(listed)}));
  CHECK(listed != out);
}

TEST_CASE("the census of lists of boxes counts what they hold", "[api][box-mask]") {
  for (const char* text : {"(qy == ky // 3) | (qx == kx)", "(ky + kx > qy) | (kx == qx)", "(ky > n) | (kx > qx + n)"}) {
    const Mod m = imageMod(text, "n: int\n");
    Captures captures;
    captures.set("n", int64_t(1000)); // of which no key is beyond
    const ProblemShape problem{2, 3, 3, 1000, 3000};
    auto plan = take(test::choosePlan(
        m, {.family = Family::Grid, .arch = "sm_90a", .headDim = 64, .blockSparse = true, .maskByBoxes = true}));
    auto bindings = take(ir::bind(plan.grid->module, captures, problem)),
         ofMod = take(ir::bind(m.module(), captures, problem));
    const codegen::Config& config = plan.stages.front().config;
    const plan::LaunchOperands::Grids grids = plan::gridsOf(*plan.grid, ofMod);
    const GridCensus census = takeBoxMaskCensus(plan.grid->module, bindings, config, grids, problem);
    BlockMaskShape shape{.qLen = 1000, .kvLen = 3000, .boxes = plan::latticesOf(config, grids)};
    auto mask = take(BlockMask::build(m, captures, problem, shape));
    const ir::Interpreter interpreter(m.module(), ofMod);
    std::vector<int64_t> queries(1000), keys(3000);
    std::iota(queries.begin(), queries.end(), 0), std::iota(keys.begin(), keys.end(), 0);
    INFO(text);
    CHECK_FALSE(census.isEstimate);
    CHECK(census.live == 6 * double(pairsOf(interpreter, 0, 0, queries, keys).live));
    CHECK(census.full == 6 * double(mask.fullBlocks()));
    const bool isEmpty = mask.liveBlocks() == 0; // each tile takes a step all the same
    CHECK(census.steps == 6 * double(isEmpty ? shape.qBlocks() : mask.liveBlocks()));
    CHECK(census.tiles == 6 * double(shape.qBlocks()));
    CHECK(census.visited == census.steps * config.blockM * config.blockN);
  }
}

TEST_CASE("lattices that are too large are refused, whatever their products", "[api][box-mask]") {
  const Mod m = crissCross();
  const auto refusal = [&](const BoxLattice& keys, int64_t kvLen) {
    BlockMaskShape shape{.qLen = 1000, .kvLen = kvLen};
    shape.boxes = {{{1, 20, 50}, {1, 8, 8}}, keys};
    const auto built = BlockMask::build(m, {}, {1, 1, 1, 1000, kvLen}, shape);
    return built ? std::string() : built.error().message;
  };
  CHECK(refusal({{1, 60, 50}, {1, 8, 8}}, 3000).empty());
  CHECK(refusal({{1, 60, 50}, {1, 8, 8}}, 3001) == "block mask: a grid of 1x60x50 has 3000 tokens, KV_LEN is 3001");
  const std::string box = "block mask: boxes of 1x8x8 on a grid of ";
  CHECK(refusal({{4096, 8192, 1000}, {1, 8, 8}}, int64_t(1) << 25) == box + "4096x8192x1000 are not supported");
  CHECK(refusal({{int64_t(1) << 62, 4, 1}, {1, 8, 8}}, 0).find("not supported") != std::string::npos);
  for (const std::array<int, 3>& wrong : {std::array<int, 3>{INT_MIN, INT_MAX, INT_MAX}, {1, 16, 17}, {0, 8, 8}})
    CHECK(refusal({{1, 60, 50}, wrong}, 3000).find("not supported") != std::string::npos);
}

TEST_CASE("a mask of boxes for a mod that declares no grid is refused with a reason", "[api][box-mask]") {
  const KernelOptions options{.arch = "sm_90a", .headDim = 64, .blockSparse = true, .maskByBoxes = true};
  CHECK(refusalOf(test::sourcesOf(Compiler(), mod("q_idx >= kv_idx"), options)).message ==
        "the mod declares no grid on which blocks of a mask could be boxes");
}

TEST_CASE("lists of boxes that say nothing of a score_mod need a mask_mod on the grid", "[api][box-mask]") {
  const Mod byScore = mod("from attnc import grid\nrows = grid(20, 50)\ncolumns = grid(60, 50)\n"
                          "def score_mod(score, b, h, q_idx, kv_idx):\n"
                          "  (qy, qx), (ky, kx) = rows.coords(q_idx), columns.coords(kv_idx)\n"
                          "  return where((qy == ky // 3) | (qx == kx), score, -inf)\n");
  Case c;
  BlockMaskView mask{.shape = *settled(byScore, c).blockMask};
  REQUIRE(mask.shape.boxes);
  c.operands.blockMask = &mask;
  for (Family family : {Family::Grid, Family::Auto}) {
    c.options.family = family;
    CHECK(errorOf(byScore, c) ==
          "blocks of the mask are boxes for a mask in score_mod, of which its lists say nothing");
  }
  mask.ofWholeMod = true;
  CHECK(settled(byScore, c).kernel.kvLoop() == KvLoop::BoxMask);
}
