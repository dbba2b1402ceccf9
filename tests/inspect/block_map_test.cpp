// Maps of blocks against the lists of block masks, and the work of tiles against closed formulas.
#include "api/drawn_captures.h"
#include "attnc/explain.h"
#include "helpers/plan_parts.h"
#include "inspect/block_map.h"
#include "inspect/operations.h"
#include "inspect/tile_work.h"
#include "ir/bind.h"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace attnc;

namespace {

Mod parse(std::string_view text) { return take(Mod::parse(text)); }

/// Returns the state of each block by the lists: [batch * heads][qBlocks * kvBlocks].
std::vector<std::vector<BlockState>> statesOf(const BlockMaskView& lists) {
  const BlockMaskShape& shape = lists.shape;
  const int64_t qBlocks = shape.qBlocks(), kvBlocks = shape.kvBlocks();
  std::vector<std::vector<BlockState>> all(size_t(shape.batch * shape.heads),
                                           std::vector<BlockState>(size_t(qBlocks * kvBlocks), BlockState::Empty));
  for (int64_t row = 0; row < shape.batch * shape.heads * qBlocks; ++row) {
    const auto mark = [&](const int32_t* count, const int32_t* index, BlockState state) {
      for (int32_t i = 0; i < count[row]; ++i)
        all[size_t(row / qBlocks)][size_t(row % qBlocks * kvBlocks + index[row * lists.indexStride + i])] = state;
    };
    mark(lists.partialCount, lists.partialIndex, BlockState::Partial);
    mark(lists.fullCount, lists.fullIndex, BlockState::Full);
  }
  return all;
}

} // namespace

TEST_CASE("maps say what the lists of the block mask say, for every head", "[inspect]") {
  const ProblemShape problem{2, 3, 3, 1000, 1400};
  for (const char* text :
       {"q_idx >= kv_idx", "(q_idx >= kv_idx) & (q_idx - kv_idx <= 300 + 100 * h)",
        "(q_idx // 200 == kv_idx // 200) | (b == 1)", "(q_idx * 7 + kv_idx * 3) % 1000 < 20", "True"}) {
    INFO(text);
    const Mod mod = parse(text);
    const BlockMaskShape shape = smallestMask(mod, problem, 64, 128);
    auto lists = BlockMask::build(mod, {}, problem, shape);
    auto maps = mapBlocks(mod, {}, problem, shape);
    REQUIRE((lists && maps));
    const auto states = statesOf(lists->view());
    size_t heads = 0;
    for (const BlockMap& map : *maps) {
      CHECK((map.rows == shape.qBlocks() && map.columns == shape.kvBlocks()));
      CHECK((map.qStep == 64 && map.kvStep == 128));
      for (const auto& [b, h] : map.heads) CHECK(map.cells == states[size_t(b * shape.heads + h)]);
      heads += map.heads.size();
    }
    CHECK(heads == states.size());
  }
}

TEST_CASE("cells of several blocks say what their blocks have in common", "[inspect]") {
  const ProblemShape problem{1, 1, 1, 128 * 300, 128 * 300}; // four blocks a cell along each axis
  auto maps = mapBlocks(parse("q_idx >= kv_idx"), {}, problem, {.qLen = problem.qLen, .kvLen = problem.kvLen});
  REQUIRE((maps && maps->size() == 1));
  const BlockMap& map = maps->front();
  CHECK((map.rows == 75 && map.columns == 75 && map.qStep == 512));
  for (int64_t row = 0; row < 75; ++row)
    for (int64_t column = 0; column < 75; ++column)
      CHECK(map.cells[size_t(row * 75 + column)] == (row == column  ? BlockState::Mixed
                                                     : row < column ? BlockState::Empty
                                                                    : BlockState::Full));
}

TEST_CASE("maps are made in bounded time, and say what they do not know", "[inspect]") {
  const ProblemShape problem{1, 1, 1, 1 << 20, 1 << 20};
  const Mod mod = parse("(q_idx * kv_idx) % 1009 == 1");
  auto bindings = take(ir::bind(mod.module(), {}, problem));
  const BlockMaskShape shape{.qLen = problem.qLen, .kvLen = problem.kvLen};
  const auto maps = mapBlocks(mod.module(), bindings, shape, 1 << 16);
  REQUIRE(maps.size() == 1);
  CHECK(std::count(maps[0].cells.begin(), maps[0].cells.end(), BlockState::Unknown) > 0);
  CHECK(rowsOfBlocks(mod.module(), bindings, shape, false, 1 << 16).isEstimate);
}

TEST_CASE("rows of blocks are those of the mask", "[inspect]") {
  const ProblemShape problem{1, 2, 2, 1024, 2048};
  const Mod mod = parse("(kv_idx <= q_idx) & (q_idx - kv_idx < 256 * (h + 1)) | (kv_idx >= 1920)");
  auto bindings = take(ir::bind(mod.module(), {}, problem));
  const BlockMaskShape shape = smallestMask(mod, problem);
  const BlockRows rows = rowsOfBlocks(mod.module(), bindings, shape);
  CHECK_FALSE(rows.isEstimate);
  REQUIRE(rows.rows.size() == 16);
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t q = 0; q < 8; ++q) {
      const BlockRow& row = rows.rows[size_t(h * 8 + q)];
      const int64_t first = std::max<int64_t>(0, q - 2 * (h + 1));
      CHECK((row.first == first && row.last == 15 && row.live == q - first + 2));
    }
}

TEST_CASE("columns of blocks are those of the mask, with their full blocks", "[inspect]") {
  const ProblemShape problem{1, 1, 1, 1024, 1024};
  const Mod mod = parse("(kv_idx <= q_idx) & (q_idx - kv_idx < 512)");
  auto bindings = take(ir::bind(mod.module(), {}, problem));
  const BlockRows columns = rowsOfBlocks(mod.module(), bindings, smallestMask(mod, problem), /*byColumns=*/true);
  REQUIRE(columns.rows.size() == 8);
  for (int64_t kv = 0; kv < 8; ++kv) {
    const BlockRow& column = columns.rows[size_t(kv)];
    const int64_t last = std::min<int64_t>(7, kv + 4), full = std::min<int64_t>(7, kv + 3) - kv;
    CHECK((column.first == kv && column.last == last && column.live == last - kv + 1));
    CHECK(column.full == full);
    if (full) CHECK((column.firstFull == kv + 1 && column.lastFull == kv + full));
  }
}

TEST_CASE("tiles end at the last row, and clusters take two heads, as on Hopper", "[inspect]") {
  const ProblemShape problem{1, 4, 2, 1000, 1000};
  const Mod causal = parse("q_idx >= kv_idx");
  const auto workOf = [&](int headDim, const char* tile, int rows, int columns, const Mod& mod) {
    auto bindings = take(ir::bind(mod.module(), {}, problem));
    const auto plan = take(Compiler().plan(mod, {.arch = "sm_90a", .headDim = headDim, .tile = tile}));
    Explanation all{mod, {.kernel = plan, .problem = problem}, {}, {}, {}, {}};
    all.sources = {{.templateName = "forward_sm90.cu", .threads = 384, .tileRows = rows, .tileColumns = columns}};
    all.compiled = {std::make_shared<CompiledKernel>()};
    all.limits = limitsOf("sm_90a");
    return take(tileWorkOf(mod.module(), bindings, all));
  };
  // Rows [-152, 40), [40, 232), ..., [808, 1000): the last tile sees all 8 steps, and masks two of them.
  const TileWork anchored = workOf(64, "192x128x12", 192, 128, causal);
  CHECK(anchored.steps == std::vector<int64_t>{1, 2, 4, 5, 7, 8});
  CHECK(anchored.masked == std::vector<int64_t>{1, 2, 3, 2, 3, 2});
  // With dropout they begin at multiples of 192: rows 16 apart share numbers.
  const Mod dropout = parse("def mask_mod(b, h, q_idx, kv_idx):\n    return q_idx >= kv_idx\n"
                            "def prob_mod(prob, b, h, q_idx, kv_idx):\n"
                            "    return where(random(7, b, h, q_idx, kv_idx) < 0.5, 0.0, prob * 2)\n");
  CHECK(workOf(64, "192x128x12", 192, 128, dropout).steps == std::vector<int64_t>{2, 3, 5, 6, 8, 8});
  const TileWork divided = workOf(128, "128x128x8", 128, 128, causal);
  CHECK(divided.steps == std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(divided.masked == std::vector<int64_t>(8, 1));
  // 8 tiles of 2 pairs of heads on 66 clusters
  const TileWork pairs = workOf(128, "128x128x8-2heads", 128, 128, causal);
  CHECK(pairs.longest == 8);
  CHECK(pairs.mean == Approx(2 * 36 / 66.0));
}

TEST_CASE("tiles of a causal mask are dealt as the launch deals them", "[inspect]") {
  const ProblemShape problem{2, 4, 4, 1024, 1024};
  const Mod mod = parse("q_idx >= kv_idx");
  auto bindings = take(ir::bind(mod.module(), {}, problem));
  auto compiled = std::make_shared<CompiledKernel>();
  compiled->registers = 128;
  compiled->dynamicSharedBytes = 64 * 1024;
  const auto plan = take(Compiler().plan(mod, {.family = Family::Sm80, .arch = "sm_80", .headDim = 128}));
  Explanation all{mod, {.kernel = plan, .problem = problem}, {}, {}, {}, {}};
  all.sources = {{.templateName = "forward_sm80.cu", .threads = 128, .tileRows = 128, .tileColumns = 64}};
  all.compiled = {compiled};
  all.limits = limitsOf("sm_80");
  CHECK((all.limits.multiprocessors == 108 && all.limits.sharedBytesPerCta == 163 * 1024));
  for (auto [loop, last, sum] : {std::tuple(KvLoop::Bounds, 16, 72), {KvLoop::AllTiles, 16, 128}}) {
    all.preparation.kernel = test::changed(plan, [&, loop = loop](PlanAccess::Impl& one) { one.kvLoop = loop; });
    const auto work = take(tileWorkOf(mod.module(), bindings, all));
    CHECK((work.tiles == 8 && work.heads == 8 && work.section == 1 && work.maskHeads == 1));
    CHECK(work.steps.back() == last);
    CHECK(work.steps.front() == (loop == KvLoop::Bounds ? 2 : 16));
    CHECK(work.ctasPerMultiprocessor == 2); // by shared memory
    CHECK(work.longest == 16);              // 64 tiles on 216 slots
    CHECK(work.mean == Approx(8 * sum / 216.0));
  }
  all.limits.multiprocessors = 1;
  CHECK(tileWorkOf(mod.module(), bindings, all)->longest == 8 * 128 / 2);
  all.preparation.kernel =
      test::changed(plan, [](PlanAccess::Impl& one) { one.plan.options.kind = KernelKind::Decode; });
  CHECK_FALSE(tileWorkOf(mod.module(), bindings, all));
}

TEST_CASE("operations stand at their lines, and add up to the counts", "[inspect]") {
  auto mod = take(Mod::load(ATTNC_SOURCE_DIR "/dsl/mods/alibi.py"));
  auto all = take(explain(mod));
  std::map<std::string, std::map<std::string, uint64_t>> levels;
  for (const ModOperation& place : all.places) {
    levels[place.function][place.level] += place.times;
    CHECK(place.line == (place.function == "score_mod" ? 10 : 14));
  }
  const OperationCounts& score = *all.operations.scoreMod;
  CHECK(levels["score_mod"] ==
        std::map<std::string, uint64_t>{
            {"head", score.head}, {"row", score.row}, {"column", score.column}, {"element", score.element}});
  CHECK(levels["mask_mod"]["element"] == all.operations.maskMod->element);
  const auto told = [&](const char* expression, const char* level) {
    return std::any_of(all.places.begin(), all.places.end(), [&](const ModOperation& place) {
      return place.expression == expression && place.level == level;
    });
  };
  CHECK(told("slopes[h]", "head"));
  CHECK(told("f32(q_idx)", "row"));
  CHECK(told("slopes[h] * (kv_idx - q_idx)", "element"));
}
