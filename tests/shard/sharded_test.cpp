// Attention of ranks by a plan of shards, on the CPU: results and gradients are those of one process.
#include "api/drawn_captures.h"
#include "shard/world.h"

#include <barrier>

using namespace attnc;
using namespace attnc::test;

namespace {

ShardPlan planOf(const Mod& mod, const Captures& captures, const ProblemShape& shape, int world,
                 ShardLayout layout = ShardLayout::Auto, int headGroups = 1) {
  ShardOptions options{.layout = layout, .stages = 3, .headGroups = headGroups};
  options.block = 64;
  return take(ShardPlan::make({{&mod, &captures}}, shape, world, options));
}

Mod parsed(const std::string& text) { return take(Mod::parse(text)); }

void checkTraining(const Whole& whole, const ShardPlan& plan, int mask = 0) {
  auto found = take(difference(whole, plan, mask));
  CHECK(found.results < 5e-6);
  CHECK(found.gradients < 1e-5);
}

/// Checks both passes, and launches that are prepared for inference.
void check(const Whole& whole, const ShardPlan& plan, int mask = 0) {
  auto inferred = take(inferredDifference(whole, plan, mask));
  CHECK(inferred.results < 5e-6);
  checkTraining(whole, plan, mask);
}

void check(const std::string& text, const ProblemShape& shape, int world, ShardLayout layout = ShardLayout::Auto,
           int headGroups = 1) {
  CAPTURE(text, shape.qLen, shape.kvLen, world, shardLayoutName(layout), headGroups);
  const Mod mod = parsed(text);
  const DrawnCaptures drawn(mod, shape, 9, 1);
  Whole whole(shape, mod, drawn.captures);
  take(whole.compute());
  check(whole, planOf(mod, drawn.captures, shape, world, layout, headGroups));
}

const std::string kBiased = "bias: f32[KV_LEN]\nslopes: f32[H]\ngain: float\n"
                            "def score_mod(score, b, h, q_idx, kv_idx):\n"
                            "    return score * gain + slopes[h] * (kv_idx - q_idx) / H + bias[KV_LEN - 1 - kv_idx]\n"
                            "def mask_mod(b, h, q_idx, kv_idx):\n    return ";

} // namespace

TEST_CASE("ranks compute what one process does, for each mod of the library") {
  const ProblemShape shape{2, 4, 2, 203, 203};
  const std::pair<int, int> worlds[] = {{2, 1}, {2, 2}, {3, 1}, {4, 2}, {7, 1}}; // and groups of heads
  size_t next = 0, ran = 0;
  for (const std::string& path : libraryMods()) {
    CAPTURE(path);
    auto mod = take(Mod::load(path));
    if (mod.hasWeightMod()) continue; // ranks merge their results by lse
    const DrawnCaptures drawn(mod, shape, 9, 1);
    Whole whole(shape, mod, drawn.captures);
    if (!whole.compute()) continue; // the mod wants other lengths
    ++ran;
    const auto [world, groups] = worlds[next++ % std::size(worlds)];
    checkTraining(whole, planOf(mod, drawn.captures, shape, world, ShardLayout::Auto, groups));
  }
  CHECK(ran > 30);
}

TEST_CASE("ranks compute what one process does, in every layout and for any length") {
  for (const std::string mask : {"q_idx >= kv_idx", "(q_idx >= kv_idx) & (q_idx - kv_idx < 40)", "kv_idx > q_idx + 60",
                                 "q_idx < kv_idx - 1000", "(q_idx + Q_LEN) % 7 != 3", "(h == 1) | (kv_idx < 5)"})
    for (const auto& [qLen, kvLen] :
         {std::pair<int64_t, int64_t>{197, 197}, {3, 3}, {1, 130}, {130, 70}, {0, 60}, {60, 0}})
      for (const int world : {1, 2, 5})
        for (const ShardLayout layout : {ShardLayout::Contiguous, ShardLayout::ZigZag, ShardLayout::Greedy}) {
          if (layout != ShardLayout::Contiguous && qLen != 197) continue;
          check(kBiased + mask, {2, 2, 1, qLen, kvLen}, world, layout);
        }
}

TEST_CASE("ranks count the sink of a row once, also of rows without keys") {
  const std::string sinks = "sink: f32[H]\ntilt: f32[Q_LEN]\n"
                            "def sink_mod(b, h, q_idx):\n    return sink[h] + tilt[q_idx]\n"
                            "def mask_mod(b, h, q_idx, kv_idx):\n    return ";
  for (const std::string mask : {"q_idx >= kv_idx", "kv_idx > q_idx + 60", "q_idx < kv_idx - 1000"})
    for (const int world : {1, 3}) check(sinks + mask, {2, 2, 1, 197, 197}, world);
}

TEST_CASE("teams exchange heads for rows, for any length") {
  for (const std::string mask : {"q_idx >= kv_idx", "q_idx < kv_idx - 1000", "(h == H - 1) | (kv_idx < 5 * HKV)"})
    for (const auto& [qLen, kvLen] : {std::pair<int64_t, int64_t>{131, 131}, {3, 3}, {1, 130}, {130, 70}, {0, 60}})
      for (const auto& [world, groups] : {std::pair(2, 2), {4, 2}, {4, 4}, {6, 2}}) {
        check(kBiased + mask, {2, 8, 4, qLen, kvLen}, world, ShardLayout::Auto, groups);
      }
}

TEST_CASE("scores of -1e9 count as little for ranks as for one process") {
  const ProblemShape shape{1, 2, 2, 197, 197};
  const std::string kFar = "slopes: f32[H]\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
                           "    return where(LIVES, score + slopes[h] * kv_idx / 64, -1e9)\n";
  for (const std::string lives : {"q_idx >= kv_idx", "kv_idx < 120", "kv_idx > 150"})
    for (const auto& [world, groups] : {std::pair(2, 1), {3, 1}, {2, 2}}) {
      std::string text = kFar;
      check(text.replace(text.find("LIVES"), 5, lives), shape, world, ShardLayout::ZigZag, groups);
    }
}

TEST_CASE("gradients of rows whose scores are all -1e9 are those of two equal stages") {
  const ProblemShape shape{1, 1, 1, 128, 128};
  const Mod mod = parsed("def score_mod(score, b, h, q_idx, kv_idx):\n    return score * 0 - 1e9\n");
  const Captures none;
  Whole whole(shape, mod, none);
  take(whole.compute());
  check(whole, planOf(mod, none, shape, 2, ShardLayout::Contiguous)); // of equal numbers of keys
}

TEST_CASE("layers with different masks run by one plan") {
  const ProblemShape shape{1, 2, 2, 300, 300};
  const Mod far = parsed("q_idx >= kv_idx"), near = parsed("(q_idx >= kv_idx) & (q_idx - kv_idx < 50)");
  const Captures none;
  ShardOptions options;
  options.block = 64;
  auto plan = take(ShardPlan::make({{&far, &none, 1}, {&near, &none, 5}}, shape, 4, options));
  for (int mask = 0; mask < 2; ++mask) {
    Whole whole(shape, mask ? near : far, none);
    REQUIRE(whole.compute());
    check(whole, plan, mask);
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
  const ProblemShape problem{batch, 2, 2, 131, 80};
  const DrawnCaptures drawn(mod, problem, 9, 1);
  Whole whole({1, 2, 2, starts[0].back(), starts[1].back()}, mod, drawn.captures);
  Operands operands;
  operands.cuSeqlensQ = TensorView::contiguous(starts[0].data(), DType::I32, {batch + 1});
  operands.cuSeqlensKv = TensorView::contiguous(starts[1].data(), DType::I32, {batch + 1});
  // Without them the last queries would stand at the last keys.
  std::vector<int32_t> offsets(lengths.size(), 0);
  operands.qOffsets = TensorView::contiguous(offsets.data(), DType::I32, {batch});
  operands.maxQLen = problem.qLen, operands.maxKvLen = problem.kvLen;
  if (const Status done = whole.compute(operands); !done) FAIL(done.error().message);
  for (const auto& [world, groups] : {std::pair(1, 1), {2, 1}, {3, 1}, {7, 1}, {2, 2}, {6, 2}})
    for (const ShardLayout layout : {ShardLayout::Contiguous, ShardLayout::ZigZag}) {
      CAPTURE(world, groups, shardLayoutName(layout));
      ShardOptions options{.layout = layout, .stages = 2, .headGroups = groups};
      options.block = 64;
      options.lengths = lengths;
      auto plan = take(ShardPlan::make({{&mod, &drawn.captures}}, problem, world, options));
      check(whole, plan);
    }
}

TEST_CASE("results of 16 bits are rounded by each stage, and once in the end") {
  const ProblemShape shape{1, 2, 2, 150, 150};
  const Mod mod = parsed("bias: f32[H, KV_LEN]\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
                         "    return score + bias[h, kv_idx]\n"
                         "def mask_mod(b, h, q_idx, kv_idx):\n    return q_idx >= kv_idx\n");
  const DrawnCaptures drawn(mod, shape, 9, 1);
  for (const DType dtype : {DType::BF16, DType::F16})
    for (const int groups : {1, 2}) {
      CAPTURE(dtypeName(dtype), groups);
      Whole whole(shape, mod, drawn.captures, dtype);
      REQUIRE(whole.compute());
      auto found = take(difference(whole, planOf(mod, drawn.captures, shape, 4, ShardLayout::ZigZag, groups)));
      const double ulp = dtype == DType::BF16 ? 1.0 / 128 : 1.0 / 1024;
      CHECK(found.results < ulp);
      CHECK(found.gradients < ulp);
    }
}

TEST_CASE("a rank refuses what does not fit its plan") {
  const ProblemShape shape{1, 2, 2, 128, 128};
  const Mod mod = parsed("q_idx >= kv_idx");
  const Captures none;
  const ShardPlan plan = planOf(mod, none, shape, 2);
  const auto [kD, kDV] = HeadDims();
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
  other.k = TensorView::contiguous(k.memory.data(), DType::F32, {1, 2, 64, kD});
  CHECK_THAT(refusal(other, outputs), Catch::Contains("rows of k travel"));
  other = operands;
  other.kvLengths = q.view;
  CHECK_THAT(refusal(other, outputs), Catch::Contains("takes no"));
  const Mod reserved = parsed("attnc_first_row: int\ndef mask_mod(b, h, q_idx, kv_idx):\n    return q_idx > "
                              "attnc_first_row\n");
  CHECK_THAT(refusal(operands, outputs, 0, 0, &reserved), Catch::Contains("attnc_first_row"));
  const ShardPlan teams = *ShardPlan::make({{&mod}}, {1, 2, 2, 128, 128}, 2, {.headGroups = 2});
  const auto refusalOfTeam = [&](const Operands& given) {
    auto made = ShardedAttention::prepare(nullptr, mod, teams, 0, 0, given, outputs);
    return made ? std::string() : made.error().message;
  };
  CHECK(refusalOfTeam(operands).empty());
  other = operands;
  other.q.shape[1] = 3;
  CHECK_THAT(refusalOfTeam(other), Catch::Contains("2 groups of heads do not divide H = 3 and HKV = 2"));
  other = operands;
  other.q = TensorView::contiguous(q.memory.data(), DType::F32, {1, 2, 64, kD});
  CHECK_THAT(refusalOfTeam(other), Catch::Contains("rows of q travel"));
  const ShardPlan packed = *ShardPlan::make({{&mod}}, {2, 2, 2, 64, 64}, 2, {.lengths = {{64, 64}, {64, 64}}});
  other = operands;
  other.q = TensorView::contiguous(q.memory.data(), DType::F32, {2, 2, 32, kD});
  CHECK_THAT(refusalOf(ShardedAttention::prepare(nullptr, mod, packed, 0, 0, other, outputs)).message,
             Catch::Contains("q has batch 2, and the plan is of a packed batch"));

  auto sharded = take(ShardedAttention::prepare(nullptr, mod, plan, 0, 0, operands, outputs));
  Workspace workspace(sharded.workspaceBytes());
  const auto launched = [&](const Operands& given, const ShardEngine& engine, void* memory) {
    const Status done = sharded.launch(given, outputs, engine, memory, nullptr, nullptr);
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

TEST_CASE("training refuses what does not fit") {
  const ProblemShape shape{1, 2, 2, 128, 128};
  const Mod mod = parsed(kBiased + "q_idx >= kv_idx");
  const DrawnCaptures drawn(mod, shape, 9, 1);
  Whole whole(shape, mod, drawn.captures);
  const ShardPlan plan = planOf(mod, drawn.captures, shape, 2);
  RankTensors mine(whole, plan.ranks[0]);
  const auto prepared = [&](const BackwardOperands& operands, const Outputs& outputs,
                            const BackwardOutputs& gradients) {
    return ShardedAttention::prepareTraining(nullptr, mod, plan, 0, 0, operands, outputs, gradients);
  };
  const auto refusal = [&](const BackwardOperands& operands, const Outputs& outputs, const BackwardOutputs& gradients) {
    auto made = prepared(operands, outputs, gradients);
    return made ? std::string() : made.error().message;
  };
  const BackwardOperands operands = mine.operands(drawn.captures);
  const BackwardOutputs gradients = mine.gradients();
  CHECK(refusal(operands, mine.outputs(), gradients).empty());
  CHECK_THAT(refusal(operands, {.out = mine.out.view}, gradients), Catch::Contains("training needs lse"));
  BackwardOutputs other = gradients;
  other.dK.reset();
  CHECK_THAT(refusal(operands, mine.outputs(), other), Catch::Contains("dq, dk and dv are all needed"));
  BackwardOperands others = operands;
  others.dOut.shape[2] = 63;
  CHECK_THAT(refusal(others, mine.outputs(), gradients), Catch::Contains("dout is [1, 2, 63, 4]"));
  others = operands;
  others.v.dtype = DType::F16;
  CHECK_THAT(refusal(others, mine.outputs(), gradients), Catch::Contains("different dtypes"));
  Captures captures = *gradients.captures;
  other = gradients;
  other.captures = &captures;
  const auto withSlopes = [&](TensorView view) {
    captures.set("slopes", view);
    return refusal(operands, mine.outputs(), other);
  };
  float memory[8];
  CHECK_THAT(withSlopes(TensorView::contiguous(memory, DType::BF16, {2})), Catch::Contains("no contiguous f32"));
  CHECK_THAT(withSlopes(TensorView::contiguous(memory, DType::F32, {3})), Catch::Contains("another shape than slopes"));
  TensorView strided = TensorView::contiguous(memory, DType::F32, {2});
  strided.stride[0] = 2;
  CHECK_THAT(withSlopes(strided), Catch::Contains("no contiguous f32"));
  captures = {};
  captures.set("nobody", TensorView::contiguous(memory, DType::F32, {2}));
  CHECK_THAT(refusal(operands, mine.outputs(), other), Catch::Contains("a gradient of nobody"));

  auto sharded = take(prepared(operands, mine.outputs(), gradients));
  Workspace workspace(sharded.workspaceBytes()), kept(sharded.keptBytes());
  const ShardEngine broken{
      .exchange = [](auto&, auto&, Stream) -> Status { return Error::environment("a peer died"); }};
  const auto launched = [&](const BackwardOutputs& to, void* memory) {
    const Status done = sharded.launchBackward(operands, to, broken, workspace.data, nullptr, nullptr, memory);
    return done ? std::string() : done.error().message;
  };
  CHECK(launched(gradients, kept.data) == "a peer died");
  CHECK_THAT(launched(gradients, nullptr), Catch::Contains("kept memory is null"));
  other = gradients;
  other.captures = nullptr;
  CHECK_THAT(launched(other, kept.data), Catch::Contains("gradients of other captures"));
  auto inferring = take(ShardedAttention::prepare(nullptr, mod, plan, 0, 0, operands, mine.outputs()));
  CHECK(inferring.keptBytes() == 0);
  const Status done = inferring.launchBackward(operands, gradients, broken, workspace.data, nullptr, nullptr, nullptr);
  CHECK_THAT(done.error().message, Catch::Contains("only the forward pass is prepared"));
}

TEST_CASE("if a rank dies, the others get their engine's error, and no gradient is written") {
  const ProblemShape shape{1, 8, 4, 150, 150};
  const Mod mod = parsed(kBiased + "q_idx >= kv_idx");
  const DrawnCaptures drawn(mod, shape, 9, 1);
  const Whole whole(shape, mod, drawn.captures);
  const int world = 4;
  for (const int groups : {1, 2, 4}) {
    const ShardPlan plan = planOf(mod, drawn.captures, shape, world, ShardLayout::ZigZag, groups);
    bool hasDied = true;
    for (int calls = 0; hasDied; ++calls) { // of the engine, after which rank 1 dies
      CAPTURE(groups, calls);
      REQUIRE(calls < 100);
      hasDied = false;
      Post post;
      std::vector<bool> isUntouched(world, true), hasFailed(world, false);
      std::mutex mutex;
      std::barrier forwardEnd(world);
      const Status done = onRanks(world, [&](int rank) -> Status {
        RankTensors mine(whole, plan.ranks[size_t(rank)]);
        const BackwardOperands operands = mine.operands(drawn.captures);
        auto sharded =
            ShardedAttention::prepareTraining(nullptr, mod, plan, 0, rank, operands, mine.outputs(), mine.gradients());
        if (!sharded) return sharded.error();
        Workspace workspace(sharded->workspaceBytes()), kept(sharded->keptBytes());
        if (Status ready = sharded->initialise(operands, workspace.data, nullptr); !ready) return ready;
        ShardEngine engine = post.engineOf(rank);
        Status launched =
            sharded->launch(operands, mine.outputs(), engine, workspace.data, nullptr, nullptr, kept.data);
        forwardEnd.arrive_and_wait();
        if (!launched) return launched;
        int left = calls; // outlives the engine's calls
        if (rank == 1) {
          const auto mayLive = [&left, &post]() -> Status {
            if (left-- > 0) return {};
            post.close();
            return Error::environment("died");
          };
          engine.exchange = [mayLive, exchange = engine.exchange](auto& sends, auto& receives, Stream on) -> Status {
            Status lives = mayLive();
            return lives ? exchange(sends, receives, on) : std::move(lives);
          };
          engine.wait = [mayLive, wait = engine.wait]() -> Status {
            Status lives = mayLive();
            return lives ? wait() : std::move(lives);
          };
        }
        const Status backward =
            sharded->launchBackward(operands, mine.gradients(), engine, workspace.data, nullptr, nullptr, kept.data);
        const std::lock_guard lock(mutex);
        if (backward) return {};
        hasDied = true;
        hasFailed[size_t(rank)] = true;
        for (const Rows* rows : {&mine.dQ, &mine.dK, &mine.dV})
          for (const char byte : rows->memory)
            isUntouched[size_t(rank)] = isUntouched[size_t(rank)] && byte == char(0xff);
        for (const auto& [name, values] : mine.dCaptures.values)
          for (const float value : values) isUntouched[size_t(rank)] = isUntouched[size_t(rank)] && std::isnan(value);
        return {};
      });
      if (!done) FAIL(done.error().message);
      for (int rank = 0; rank < world; ++rank) CHECK(isUntouched[size_t(rank)]);
      CHECK(hasFailed[1] == hasDied);
      if (calls == 0) CHECK(hasFailed == std::vector<bool>(world, true)); // all need the rank
    }
  }
}
