// Verdicts of tiles, against mask_mod at each of their scores.
#include "analysis/tile_verdict.h"
#include "analysis/traced.h"
#include "ir/bind.h"
#include "ir/interpreter.h"

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
  const auto between = [](int64_t lo, int64_t hi) { return Range::integers(ir::Type::I32, lo, hi); };
  CHECK(told.judge(tile, between(0, 10)) == Verdict::AlwaysTrue);
  CHECK(told.judge(tile, between(20, 30)) == Verdict::AlwaysFalse);
  CHECK(told.judge(tile, between(0, 11)) == Verdict::Undecided);
}
