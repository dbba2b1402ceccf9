// Attention of ranks by a plan of shards, on the CPU: results are those of one process.
#include "api/drawn_captures.h"
#include "shard/engine.h"

#include "attnc/reference.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

using namespace attnc;
using namespace attnc::test;

namespace {

constexpr int64_t kD = 8, kDV = 4;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

/// Floats of memory [B, rows, heads, columns], viewed as [B, heads, rows, columns].
struct Rows {
  std::vector<float> values;
  TensorView view;

  Rows(int64_t batch, int64_t heads, int64_t rows, int64_t columns)
      : values(size_t(batch * heads * rows * columns), NAN) {
    view = TensorView::contiguous(values.data(), DType::F32, {batch, heads, rows, columns});
    view.stride = {rows * heads * columns, columns, heads * columns, 1};
  }
  Rows(const Rows&) = delete;

  void draw(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (float& value : values) value = float(int64_t(random() % 2001) - 1000) / 500;
  }

  /// Takes tokens of another tensor.
  void take(const Rows& from, const std::vector<ShardInterval>& tokens) {
    const int64_t row = view.shape[1] * view.shape[3];
    for (int64_t b = 0, to = 0; b < view.shape[0]; ++b)
      for (const ShardInterval& interval : tokens)
        for (int64_t token = interval.begin; token < interval.end; ++token, ++to)
          std::copy_n(from.values.data() + (b * from.view.shape[2] + token) * row, row, values.data() + to * row);
  }
};

struct Whole {
  ProblemShape shape;
  Rows q, k, v, out;
  std::vector<float> lse;

  Whole(const ProblemShape& shape, uint64_t seed)
      : shape(shape), q(shape.batch, shape.qHeads, shape.qLen, kD), k(shape.batch, shape.kvHeads, shape.kvLen, kD),
        v(shape.batch, shape.kvHeads, shape.kvLen, kDV), out(shape.batch, shape.qHeads, shape.qLen, kDV),
        lse(size_t(shape.batch * shape.qHeads * shape.qLen), NAN) {
    q.draw(seed), k.draw(seed + 1), v.draw(seed + 2);
  }

  Status compute(const Mod& mod, const Captures& captures) {
    const TensorView ofLse = TensorView::contiguous(lse.data(), DType::F32, {shape.batch, shape.qHeads, shape.qLen});
    return computeOnCpu(mod, {.q = q.view, .k = k.view, .v = v.view, .captures = &captures},
                        {.out = out.view, .lse = ofLse});
  }
};

/// Memory at a multiple of kWorkspaceAlignment, with a pattern that is NaN as floats.
struct Workspace {
  std::vector<char> memory;
  void* data;
  explicit Workspace(size_t bytes) : memory(bytes + kWorkspaceAlignment, char(0xff)) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    data = memory.data() + (kWorkspaceAlignment - address % kWorkspaceAlignment) % kWorkspaceAlignment;
  }
};

/// Computes with all ranks, twice with one workspace, and returns the largest difference from the whole's results.
Expected<double> difference(const Whole& whole, const Mod& mod, const Captures& captures, const ShardPlan& plan,
                            int mask = 0) {
  Post post;
  std::vector<double> most(size_t(plan.world), 0);
  const ProblemShape& shape = whole.shape;
  const Status done = onRanks(plan.world, [&](int rank) -> Status {
    const ShardTokens& own = plan.ranks[size_t(rank)];
    const int64_t keys = own.keyCount();
    Rows q(shape.batch, shape.qHeads, own.rowCount(), kD), k(shape.batch, shape.kvHeads, keys, kD),
        v(shape.batch, shape.kvHeads, keys, kDV), out(shape.batch, shape.qHeads, own.rowCount(), kDV),
        wanted(shape.batch, shape.qHeads, own.rowCount(), kDV);
    q.take(whole.q, own.rows), k.take(whole.k, own.keys), v.take(whole.v, own.keys), wanted.take(whole.out, own.rows);
    std::vector<float> lse(size_t(shape.batch * shape.qHeads * own.rowCount()), NAN);
    const Operands operands{.q = q.view, .k = k.view, .v = v.view, .captures = &captures};
    const Outputs outputs{
        .out = out.view,
        .lse = TensorView::contiguous(lse.data(), DType::F32, {shape.batch, shape.qHeads, own.rowCount()})};
    auto sharded = ShardedAttention::prepare(nullptr, mod, plan, mask, rank, operands, outputs);
    if (!sharded) return sharded.error();
    Workspace workspace(sharded->workspaceBytes());
    const ShardEngine engine = post.engineOf(rank);
    if (Status ready = sharded->initialise(operands, workspace.data, nullptr); !ready) return ready;
    for (int launch = 0; launch < 2; ++launch) {
      Status launched = sharded->launch(operands, outputs, engine, workspace.data, nullptr, nullptr);
      if (!launched) return launched;
    }
    double& largest = most[size_t(rank)];
    const auto see = [&](double found, double expected) {
      const double error = found == expected ? 0 : std::abs(found - expected) / std::max(1.0, std::abs(expected));
      if (!(error <= largest)) largest = std::isnan(error) ? 1e9 : error;
    };
    for (size_t i = 0; i < out.values.size(); ++i) see(out.values[i], wanted.values[i]);
    for (int64_t head = 0, i = 0; head < shape.batch * shape.qHeads; ++head)
      for (int64_t row = 0; row < own.rowCount(); ++row, ++i)
        see(lse[size_t(i)], whole.lse[size_t(head * shape.qLen + own.tokenOfRow(row))]);
    return {};
  });
  if (!done) return done.error();
  CHECK(post.isEmpty());
  return *std::max_element(most.begin(), most.end());
}

ShardPlan planOf(const Mod& mod, const Captures& captures, const ProblemShape& shape, int world,
                 ShardLayout layout = ShardLayout::Auto) {
  ShardOptions options{.layout = layout, .stages = 3};
  options.block = 64;
  auto plan = ShardPlan::make({{&mod, &captures}}, shape, world, options);
  if (!plan) FAIL(plan.error().message);
  return *std::move(plan);
}

Mod parsed(const std::string& text) {
  auto mod = Mod::parse(text);
  if (!mod) FAIL(mod.error().message);
  return *std::move(mod);
}

} // namespace

TEST_CASE("ranks compute what one process does, for each mod of the library") {
  const ProblemShape shape{2, 4, 2, 203, 203};
  int worlds[] = {2, 3, 7}, next = 0, ran = 0;
  for (const std::string& path : libraryMods()) {
    CAPTURE(path);
    auto mod = Mod::load(path);
    REQUIRE(mod);
    const DrawnCaptures drawn(*mod, shape, 9, 1);
    Whole whole(shape, 5);
    if (!whole.compute(*mod, drawn.captures)) continue; // the mod wants other lengths
    ++ran;
    const ShardPlan plan = planOf(*mod, drawn.captures, shape, worlds[next++ % 3]);
    auto found = difference(whole, *mod, drawn.captures, plan);
    if (!found) FAIL(found.error().message);
    CHECK(*found < 5e-6);
  }
  CHECK(ran > 30);
}

TEST_CASE("ranks compute what one process does, in every layout and for any length") {
  const std::string kText = "bias: f32[KV_LEN]\nslopes: f32[H]\n"
                            "def score_mod(score, b, h, q_idx, kv_idx):\n"
                            "    return score + slopes[h] * (kv_idx - q_idx) + bias[KV_LEN - 1 - kv_idx]\n"
                            "def mask_mod(b, h, q_idx, kv_idx):\n    return ";
  for (const std::string mask : {"q_idx >= kv_idx", "(q_idx >= kv_idx) & (q_idx - kv_idx < 40)", "kv_idx > q_idx + 60",
                                 "q_idx < kv_idx - 1000", "(q_idx + Q_LEN) % 7 != 3", "(h == 1) | (kv_idx < 5)"})
    for (const auto& [qLen, kvLen] :
         {std::pair<int64_t, int64_t>{197, 197}, {3, 3}, {1, 130}, {130, 70}, {0, 60}, {60, 0}})
      for (const int world : {1, 2, 5})
        for (const ShardLayout layout : {ShardLayout::Contiguous, ShardLayout::ZigZag, ShardLayout::Greedy}) {
          if (layout != ShardLayout::Contiguous && qLen != 197) continue;
          CAPTURE(mask, qLen, kvLen, world, shardLayoutName(layout));
          const ProblemShape shape{2, 2, 1, qLen, kvLen};
          const Mod mod = parsed(kText + mask);
          const DrawnCaptures drawn(mod, shape, 9, 1);
          Whole whole(shape, 5);
          if (Status done = whole.compute(mod, drawn.captures); !done) FAIL(done.error().message);
          auto found = difference(whole, mod, drawn.captures, planOf(mod, drawn.captures, shape, world, layout));
          if (!found) FAIL(found.error().message);
          CHECK(*found < 5e-6);
        }
}

TEST_CASE("layers with different masks run by one plan") {
  const ProblemShape shape{1, 2, 2, 300, 300};
  const Mod far = parsed("q_idx >= kv_idx"), near = parsed("(q_idx >= kv_idx) & (q_idx - kv_idx < 50)");
  const Captures none;
  ShardOptions options;
  options.block = 64;
  auto plan = ShardPlan::make({{&far, &none, 1}, {&near, &none, 5}}, shape, 4, options);
  REQUIRE(plan);
  for (int mask = 0; mask < 2; ++mask) {
    Whole whole(shape, 5);
    REQUIRE(whole.compute(mask ? near : far, none));
    auto found = difference(whole, mask ? near : far, none, *plan, mask);
    REQUIRE(found);
    CHECK(*found < 5e-6);
  }
}

TEST_CASE("ranks compute a packed batch, whose sequences may be empty") {
  const std::vector<ShardLengths> lengths = {{70, 70}, {0, 9}, {131, 80}, {1, 1}, {45, 0}, {3, 60}};
  const int64_t batch = int64_t(lengths.size());
  std::vector<int32_t> starts[2] = {{0}, {0}};
  for (const ShardLengths& one : lengths) {
    starts[0].push_back(starts[0].back() + int32_t(one.q));
    starts[1].push_back(starts[1].back() + int32_t(one.kv));
  }
  const Mod mod = parsed("near: i32[B]\nslopes: f32[B, H]\nof_row: f32[Q_LEN]\n"
                         "def score_mod(score, b, h, q_idx, kv_idx):\n"
                         "    return score + slopes[b, h] * (kv_idx - q_idx) + of_row[q_idx] / (B + KV_LEN)\n"
                         "def mask_mod(b, h, q_idx, kv_idx):\n"
                         "    return (q_idx - kv_idx < 9 * near[b]) & (kv_idx < q_idx + 9)\n");
  const ProblemShape problem{batch, 2, 1, 131, 80};
  const DrawnCaptures drawn(mod, problem, 9, 1);
  Whole whole({1, 2, 1, starts[0].back(), starts[1].back()}, 5);
  Operands operands{.q = whole.q.view, .k = whole.k.view, .v = whole.v.view, .captures = &drawn.captures};
  operands.cuSeqlensQ = TensorView::contiguous(starts[0].data(), DType::I32, {batch + 1});
  operands.cuSeqlensKv = TensorView::contiguous(starts[1].data(), DType::I32, {batch + 1});
  // Without them the last queries would stand at the last keys.
  std::vector<int32_t> offsets(lengths.size(), 0);
  operands.qOffsets = TensorView::contiguous(offsets.data(), DType::I32, {batch});
  operands.maxQLen = problem.qLen, operands.maxKvLen = problem.kvLen;
  const Status done = computeOnCpu(
      mod, operands,
      {.out = whole.out.view, .lse = TensorView::contiguous(whole.lse.data(), DType::F32, {1, 2, whole.shape.qLen})});
  if (!done) FAIL(done.error().message);
  for (const int world : {1, 2, 3, 7})
    for (const ShardLayout layout : {ShardLayout::Contiguous, ShardLayout::ZigZag}) {
      CAPTURE(world, shardLayoutName(layout));
      ShardOptions options{.layout = layout, .stages = 2};
      options.block = 64;
      options.lengths = lengths;
      auto plan = ShardPlan::make({{&mod, &drawn.captures}}, problem, world, options);
      if (!plan) FAIL(plan.error().message);
      auto found = difference(whole, mod, drawn.captures, *plan);
      if (!found) FAIL(found.error().message);
      CHECK(*found < 5e-6);
    }
}

TEST_CASE("results of 16 bits are rounded by each stage, and once in the end") {
  const ProblemShape shape{1, 1, 1, 150, 150};
  const Mod mod = parsed("q_idx >= kv_idx");
  const Captures none;
  Whole whole(shape, 5);
  REQUIRE(whole.compute(mod, none));
  const ShardPlan plan = planOf(mod, none, shape, 3, ShardLayout::ZigZag);
  Post post;
  const Status done = onRanks(3, [&](int rank) -> Status {
    const ShardTokens& own = plan.ranks[size_t(rank)];
    const int64_t rows = own.rowCount();
    Rows q(1, 1, rows, kD), k(1, 1, rows, kD), v(1, 1, rows, kDV), wanted(1, 1, rows, kDV);
    q.take(whole.q, own.rows), k.take(whole.k, own.keys), v.take(whole.v, own.keys), wanted.take(whole.out, own.rows);
    std::vector<uint16_t> out(size_t(rows * kDV));
    const Operands operands{.q = q.view, .k = k.view, .v = v.view};
    const Outputs outputs{.out = TensorView::contiguous(out.data(), DType::BF16, {1, 1, rows, kDV})};
    auto sharded = ShardedAttention::prepare(nullptr, mod, plan, 0, rank, operands, outputs);
    if (!sharded) return sharded.error();
    Workspace workspace(sharded->workspaceBytes());
    if (Status ready = sharded->initialise(operands, workspace.data, nullptr); !ready) return ready;
    Status launched = sharded->launch(operands, outputs, post.engineOf(rank), workspace.data, nullptr, nullptr);
    for (size_t i = 0; i < out.size(); ++i)
      if (std::abs(std::bit_cast<float>(uint32_t(out[i]) << 16) - wanted.values[i]) > 1.0 / 64)
        return Error::environment("an element differs");
    return launched;
  });
  if (!done) FAIL(done.error().message);
}

TEST_CASE("a rank refuses what does not fit its plan") {
  const ProblemShape shape{1, 2, 2, 128, 128};
  const Mod mod = parsed("q_idx >= kv_idx");
  const Captures none;
  const ShardPlan plan = planOf(mod, none, shape, 2);
  Rows q(1, 2, 64, kD), k(1, 2, 64, kD), v(1, 2, 64, kDV), out(1, 2, 64, kDV);
  const Operands operands{.q = q.view, .k = k.view, .v = v.view};
  const Outputs outputs{.out = out.view};
  const auto refusal = [&](const Operands& given, const Outputs& to, int mask = 0, int rank = 0,
                           const Mod* other = nullptr) {
    auto made = ShardedAttention::prepare(nullptr, other ? *other : mod, plan, mask, rank, given, to);
    return made ? std::string() : made.error().message;
  };
  CHECK(refusal(operands, outputs).empty());
  CHECK_THAT(refusal(operands, outputs, 1), Catch::Contains("no mask 1"));
  CHECK_THAT(refusal(operands, outputs, 0, 2), Catch::Contains("no rank 2"));
  CHECK_THAT(refusal(operands, {}), Catch::Contains("outputs are out"));
  Operands other = operands;
  other.q.shape[2] = 63;
  CHECK_THAT(refusal(other, outputs), Catch::Contains("q is [1, 2, 63, 8], the plan wants [1, 2, 64, 8]"));
  other = operands;
  other.k = TensorView::contiguous(k.values.data(), DType::F32, {1, 2, 64, kD});
  CHECK_THAT(refusal(other, outputs), Catch::Contains("rows of k travel"));
  other = operands;
  other.kvLengths = q.view;
  CHECK_THAT(refusal(other, outputs), Catch::Contains("takes no"));
  const Mod reserved = parsed("attnc_first_row: int\ndef mask_mod(b, h, q_idx, kv_idx):\n    return q_idx > "
                              "attnc_first_row\n");
  CHECK_THAT(refusal(operands, outputs, 0, 0, &reserved), Catch::Contains("attnc_first_row"));
  const ShardPlan teams = *ShardPlan::make({{&mod}}, {1, 2, 2, 128, 128}, 2, {.headGroups = 2});
  auto ofTeams = ShardedAttention::prepare(nullptr, mod, teams, 0, 0, operands, outputs);
  REQUIRE_FALSE(ofTeams);
  CHECK_THAT(ofTeams.error().message, Catch::Contains("groups of heads"));
  const ShardPlan packed = *ShardPlan::make({{&mod}}, {2, 2, 2, 64, 64}, 2, {.lengths = {{64, 64}, {64, 64}}});
  other = operands;
  other.q = TensorView::contiguous(q.values.data(), DType::F32, {2, 2, 32, kD});
  auto ofPacked = ShardedAttention::prepare(nullptr, mod, packed, 0, 0, other, outputs);
  REQUIRE_FALSE(ofPacked);
  CHECK_THAT(ofPacked.error().message, Catch::Contains("q has batch 2, and the plan is of a packed batch"));

  auto sharded = ShardedAttention::prepare(nullptr, mod, plan, 0, 0, operands, outputs);
  REQUIRE(sharded);
  Workspace workspace(sharded->workspaceBytes());
  const auto launched = [&](const Operands& given, const ShardEngine& engine, void* memory) {
    const Status done = sharded->launch(given, outputs, engine, memory, nullptr, nullptr);
    return done ? std::string() : done.error().message;
  };
  const ShardEngine broken{
      .exchange = [](auto&, auto&, Stream) -> Status { return Error::environment("a peer died"); }};
  CHECK_THAT(launched(operands, {}, workspace.data), Catch::Contains("no exchange()"));
  CHECK_THAT(launched(operands, broken, nullptr), Catch::Contains("workspace is null"));
  CHECK(launched(operands, broken, workspace.data) == "a peer died");
  other = operands;
  other.k.data = nullptr;
  CHECK_THAT(launched(other, broken, workspace.data), Catch::Contains("k is null"));
}
