// Verdicts of tiles, against mask_mod at each of their scores.
#include "analysis/tile_verdict.h"
#include "helpers/random_mask.h"
#include "helpers/traced.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/printer.h"

using namespace attnc;
using namespace attnc::analysis;
using test::maskMod;

namespace {

constexpr int64_t kLength = 40;

ir::Bindings bound(const ir::Module& module, const Captures& captures) {
  auto bindings =
      ir::bind(module, captures, {.batch = 1, .qHeads = 2, .kvHeads = 1, .qLen = kLength, .kvLen = kLength});
  if (!bindings) FAIL(bindings.error().message);
  return *std::move(bindings);
}

} // namespace

TEST_CASE("no verdict is contradicted by a score, and simple masks are decided", "[tile-verdict]") {
  Captures captures;
  captures.set("n", int64_t(7));
  for (const char* mask :
       {"q_idx >= kv_idx", "(q_idx >= kv_idx) & (q_idx - kv_idx < n)", "(q_idx // 8 == kv_idx // 8) | (kv_idx < n)",
        "torch.where(h == 0, q_idx >= kv_idx, kv_idx > q_idx + n)", "(q_idx + kv_idx) % 3 == 0"}) {
    const ir::Module module = maskMod("n: int", mask);
    INFO(mask);
    const bool hasN = !module.scalars.empty();
    const ir::Bindings bindings = bound(module, hasN ? captures : Captures());
    const ir::Interpreter interpreter(module, bindings);
    const TileJudge judge(module, bindings);
    int decided = 0;
    for (int64_t h : {0, 1})
      for (int64_t q = 0; q < kLength; q += 4)
        for (int64_t kv = 0; kv < kLength; kv += 4) {
          int64_t live = 0;
          for (int64_t i = 0; i < 16; ++i) live += interpreter.mask(0, h, q + i / 4, kv + i % 4);
          const Verdict verdict = judge.judge({0, h, q, q + 4, kv, kv + 4});
          if (verdict == Verdict::AlwaysFalse) CHECK(live == 0);
          if (verdict == Verdict::AlwaysTrue) CHECK(live == 16);
          if (verdict == Verdict::Mixed) CHECK((live > 0 && live < 16));
          decided += verdict != Verdict::Undecided;
        }
    CHECK((decided > 0) == (std::string(mask).find('%') == std::string::npos));
  }
  CHECK(TileJudge(ir::Module(), bound(ir::Module(), {})).judge({}) == Verdict::AlwaysTrue);
}

TEST_CASE("a range that is told decides where data is read", "[tile-verdict]") {
  const ir::Module module = maskMod("seen: i32[KV_LEN]", "q_idx >= seen[kv_idx]");
  std::vector<int32_t> seen(kLength);
  Captures captures;
  captures.set("seen", TensorView::contiguous(seen.data(), DType::I32, {kLength}));
  const ir::Bindings bindings = bound(module, captures);
  ir::Value load;
  for (uint32_t id = 0; id < module.size(); ++id)
    if (module[{id}].op == ir::Op::Load) load = {id};
  const ScoreRect tile{0, 0, 10, 20, 0, 8};
  CHECK(TileJudge(module, bindings).judge(tile) == Verdict::Undecided);
  const TileJudge told(module, bindings, load);
  const auto ifBetween = [&](int64_t lo, int64_t hi) {
    const Range range = Range::integers(ir::Type::I32, lo, hi);
    return told.judge(tile, &range);
  };
  CHECK(ifBetween(0, 10) == Verdict::AlwaysTrue);
  CHECK(ifBetween(20, 30) == Verdict::AlwaysFalse);
  CHECK(ifBetween(0, 11) == Verdict::Mixed);
}

TEST_CASE("a tile is mixed for certain only where the bounds of two ranges meet", "[tile-verdict]") {
  const auto verdictOf = [](const char* mask, ScoreRect tile) {
    const ir::Module module = maskMod("", mask);
    return TileJudge(module, bound(module, {})).judge(tile);
  };
  const ScoreRect tile{0, 0, 10, 20, 8, 16};
  CHECK(verdictOf("q_idx >= kv_idx", tile) == Verdict::Mixed);
  CHECK(verdictOf("(q_idx >= kv_idx) | (kv_idx < 8)", tile) == Verdict::Mixed);
  CHECK(verdictOf("(q_idx < 12) & (kv_idx < 12)", tile) == Verdict::Mixed);
  CHECK(verdictOf("q_idx - kv_idx < 3", tile) == Verdict::Mixed);
  CHECK(verdictOf("q_idx == kv_idx", {0, 0, 10, 20, 19, 30}) == Verdict::Mixed);
  CHECK(verdictOf("q_idx == kv_idx", tile) == Verdict::Undecided);             // no bound is shared
  CHECK(verdictOf("(q_idx < 12) & (q_idx > 12)", tile) == Verdict::Undecided); // always false
  CHECK(verdictOf("(q_idx < 15) | (q_idx > 12)", tile) == Verdict::Undecided);
  CHECK(verdictOf("(q_idx >= kv_idx) & (q_idx <= kv_idx - 1)", tile) == Verdict::Undecided);
  CHECK(verdictOf("q_idx * 2 - q_idx < 15", tile) == Verdict::Undecided);
}

TEST_CASE("verdicts of random masks agree with all their elements", "[tile-verdict]") {
  int mixed = 0;
  std::mt19937_64 draw(5);
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const test::RandomMask random(seed);
    const auto bindings = take(ir::bind(random.module, random.captures, random.problem));
    const TileJudge judge(random.module, bindings);
    const ir::Interpreter interpreter(random.module, bindings);
    const auto part = [&](int64_t length) {
      const int64_t begin = int64_t(draw() % uint64_t(length));
      return std::pair(begin, begin + 1 + int64_t(draw() % uint64_t(length - begin)));
    };
    for (int round = 0; round < 12; ++round) {
      const auto [q, qEnd] = part(random.problem.qLen);
      const auto [kv, kvEnd] = part(random.problem.kvLen);
      const ScoreRect tile{int64_t(draw() % 2), int64_t(draw() % 2), q, qEnd, kv, kvEnd};
      const Verdict verdict = judge.judge(tile);
      if (verdict == Verdict::Undecided) continue;
      int64_t live = 0;
      for (int64_t i = q; i < qEnd; ++i)
        for (int64_t j = kv; j < kvEnd; ++j) live += interpreter.mask(tile.b, tile.h, i, j);
      INFO("seed " << seed << "\n" << ir::print(random.module));
      const int64_t all = (qEnd - q) * (kvEnd - kv);
      REQUIRE(verdict == (live == 0 ? Verdict::AlwaysFalse : live == all ? Verdict::AlwaysTrue : Verdict::Mixed));
      mixed += verdict == Verdict::Mixed;
    }
  }
  CHECK(mixed > 100);
}
