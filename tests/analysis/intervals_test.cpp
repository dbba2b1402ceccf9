// Interval analysis: sound on random modules, sharp on the index expressions of real mods.
#include "analysis/gather_proofs.h"
#include "analysis/intervals.h"
#include "analysis/tile_verdict.h"
#include "helpers/random_module.h"
#include "helpers/take.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/loops.h"
#include "ir/printer.h"
#include "ir/reader.h"
#include "passes/pipeline.h"

#include <catch2/catch.hpp>

using namespace attnc;
using namespace attnc::analysis;

namespace {

ir::Module moduleOf(std::string_view text) { return take(ir::read(text)); }

bool holds(const Range& range, Number value) {
  if (range.isInteger()) return range.contains(value.integer);
  if (std::isnan(value.real)) return range.mayBeNan;
  return range.realLo <= value.real && value.real <= range.realHi;
}

int64_t valueOf(const LinearForm& form, const ir::Bindings& bindings) {
  int64_t result = form.constant;
  for (const auto& term : form.terms) result += term.coefficient * bindings.dims[term.dim];
  return result;
}

/// The proof of the only gather of `output mask(b, h, q_idx, kv_idx) -> t[index] > 0`, with the lines that compute %i.
GatherProof proofOf(const char* tensor, std::string_view lines, const ir::Pins& pins = {}) {
  std::string text = std::string(tensor) + "\n" + std::string(lines) +
                     "\n%l = load i32 t[%i]\n%m = lt i32 0, %l\noutput mask(b, h, q_idx, kv_idx) -> %m";
  ir::Module module = moduleOf(text);
  auto proofs = proveGathers(module, pins);
  REQUIRE(proofs.size() == 1);
  passes::PipelineOptions options{.verify = true, .pins = pins};
  REQUIRE(passes::runPipeline(module, options));
  auto again = proveGathers(module, pins); // what is proved of the text also holds for the result of the passes
  INFO(text << "\n" << ir::print(module) << proofs[0].why);
  CHECK((!proofs[0].proven || again.empty() || again[0].proven));
  return proofs[0];
}

const char kKv[] = "tensor t: i32[KV_LEN]", kQ[] = "tensor t: i32[Q_LEN]", kHkv[] = "tensor t: i32[HKV]";
const char kFour[] = "tensor t: i32[4]";

} // namespace

TEST_CASE("ranges and symbolic bounds hold for every value of random modules") {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    test::RandomModule random(seed, {.operations = 50, .floats = seed % 2 == 0, .longRows = seed % 4 == 3});
    const int64_t qLen = random.problem.qLen, kvLen = random.problem.kvLen;
    auto bindings = take(ir::bind(random.module, random.captures, random.problem));
    Intervals intervals(random.module);
    const std::vector<ir::LoopSet> open = ir::openLoops(random.module);
    INFO("seed " << seed << "\n" << ir::print(random.module));
    for (uint32_t id = 0; id < random.module.size(); ++id) {
      if (open[id]) continue; // has a value only in a round of its sum
      const Bounds& bounds = intervals.of({id});
      ir::Evaluator evaluator(random.module, bindings, {id});
      for (uint64_t i = 0; i < 24; ++i) {
        Number value =
            evaluator.evaluate(float(test::RandomModule::sampleScore(i)), int64_t(i % 2), int64_t(i % 4),
                               i % 7 ? int64_t(i * 5) % qLen : qLen - 1, i % 5 ? int64_t(i * 7) % kvLen : kvLen - 1);
        bool sound = holds(bounds.range, value);
        for (const LinearForm& form : bounds.upper) sound = sound && value.integer <= valueOf(form, bindings);
        for (const LinearForm& form : bounds.lower) sound = sound && valueOf(form, bindings) <= value.integer;
        if (sound) continue;
        FAIL("node " << id << " is " << value.integer << " as an integer, " << value.real << " as a real");
      }
    }
  }
}

TEST_CASE("gathers that are proved are inside in random modules, and counter-examples are real") {
  int proven = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    test::RandomModule random(seed, {.operations = 60, .floats = false});
    auto bindings = take(ir::bind(random.module, random.captures, random.problem));
    const std::vector<ir::LoopSet> open = ir::openLoops(random.module);
    for (const GatherProof& proof : proveGathers(random.module)) {
      if (!proof.proven || open[random.module[proof.load].operands[proof.axis].id]) continue;
      ++proven;
      const ir::Node& load = random.module[proof.load];
      ir::Evaluator evaluator(random.module, bindings, load.operands[proof.axis]);
      int64_t size = bindings.tensors[load.attr].shape[proof.axis];
      for (uint64_t i = 0; i < 60; ++i) {
        int64_t at =
            evaluator.evaluate(0, int64_t(i % 2), int64_t(i % 4), int64_t(i * 5 % 13), int64_t(i * 7 % 17)).integer;
        INFO("seed " << seed << " " << proof.why << "\n" << ir::print(random.module));
        REQUIRE((at >= 0 && at < size));
      }
    }
  }
  CHECK(proven > 40);
}

TEST_CASE("index expressions of usual mods are proved") {
  CHECK(proofOf(kKv, "%i = add i32 %kv_idx, 0").proven);
  CHECK(proofOf(kKv, "%n = sub i32 #KV_LEN, 1\n%i = sub i32 %n, %kv_idx").proven);
  CHECK(proofOf(kQ, "%i = floor_div i32 %q_idx, 2").proven);
  CHECK(proofOf(kQ, "%i = shr i32 %q_idx, 3").proven);
  CHECK(proofOf("tensor t: i32[H]", "%i = add i32 %h, 0").proven);
  CHECK(proofOf(kHkv, "%i = mod i32 %h, #HKV").proven);
  CHECK(proofOf(kHkv, "%g = floor_div i32 #H, #HKV\n%i = floor_div i32 %h, %g").proven);
  CHECK(proofOf(kFour, "%i = mod i32 %kv_idx, 4").proven);
  CHECK(proofOf(kFour, "%i = and i32 %kv_idx, 3").proven);
  CHECK(proofOf(kFour, "%d = sub i32 %q_idx, %kv_idx\n%e = max i32 %d, 0\n%i = min i32 %e, 3").proven);
  CHECK(proofOf(kKv, "%d = add i32 %kv_idx, 1\n%n = sub i32 #KV_LEN, 1\n%i = min i32 %d, %n").proven);
  CHECK(proofOf(kKv, "%d = sub i32 %kv_idx, 1\n%i = max i32 %d, 0").proven);
  CHECK(proofOf(kKv, "%w = cast i64 %kv_idx\n%i = add i64 %w, 0L").proven);
  CHECK(proofOf("tensor t: i32[4]", "%c = cast i32 true\n%i = add i32 %c, 2").proven);
}

TEST_CASE("the wrap of a negative index and a guarded index are proved through the condition of the select") {
  CHECK(proofOf(kKv, "%n = lt i32 %kv_idx, 0\n%w = add i32 %kv_idx, #KV_LEN\n%i = select i32 %n, %w, %kv_idx").proven);
  const char* backwards = "%d = sub i32 %kv_idx, #KV_LEN\n%n = lt i32 %d, 0\n%w = add i32 %d, #KV_LEN\n"
                          "%i = select i32 %n, %w, %d";
  CHECK(proofOf(kKv, backwards).proven);
  CHECK(proofOf(kKv, "%a = lt i32 %q_idx, #KV_LEN\n%i = select i32 %a, %q_idx, 0\n%k = add i32 %kv_idx, 0").proven ==
        false);
  CHECK(proofOf(kFour, "%x = lt i32 %q_idx, 4\n%y = le i32 %kv_idx, %q_idx\n%c = and bool %x, %y\n"
                       "%i = select i32 %c, %kv_idx, 3")
            .proven == false); // kv <= q < 4 needs a chain of facts
  CHECK(proofOf(kFour,
                "%x = lt i32 %q_idx, 4\n%y = le i32 %kv_idx, 9\n%c = and bool %x, %y\n%i = select i32 %c, %q_idx, 3")
            .proven);
}

TEST_CASE("an index that can leave its tensor gets a counter-example") {
  auto why = [](const char* tensor, std::string_view lines) {
    GatherProof proof = proofOf(tensor, lines);
    CHECK_FALSE(proof.proven);
    return proof.why;
  };
  CHECK(why(kFour, "%i = sub i32 %q_idx, %kv_idx") == "q_idx = 0, kv_idx = 1 gives index -1, extent 4");
  CHECK(why(kFour, "%i = max i32 %q_idx, %kv_idx") == "q_idx = 0, kv_idx = 4 gives index 4, extent 4");
  CHECK(why(kKv, "%i = add i32 %kv_idx, 1") == "kv_idx = 7 gives index 8, extent KV_LEN = 8");
  CHECK(why(kKv, "%i = add i32 %q_idx, 0") == "inside if Q_LEN <= KV_LEN");
  CHECK(why("tensor t: i32[100]", "%i = add i32 %q_idx, 0") == "q_idx = 127 gives index 127, extent 100");
  CHECK(why(kFour, "%i = add i32 4, 0") == "it always gives index 4, extent 4");
  CHECK(why("scalar w: i32\ntensor t: i32[4]", "%i = add i32 %q_idx, @w") ==
        "the index depends on w, which may be anything");
  CHECK(why("tensor u: i32\ntensor t: i32[4]", "%i = load i32 u") == "the index depends on u, which may be anything");
  CHECK(why("dim N\ntensor t: i32[N]", "%i = mod i32 %q_idx, #N").find("not proved") != std::string::npos);
}

TEST_CASE("a proof tells the bounds in the terms of the extent") {
  CHECK(proofOf(kKv, "%i = add i32 %kv_idx, 0").why == "0 <= index <= KV_LEN - 1");
  CHECK(proofOf(kFour, "%d = sub i32 %q_idx, %kv_idx\n%e = max i32 %d, 0\n%i = min i32 %e, 3").why ==
        "0 <= index <= 3");
}

TEST_CASE("a value of a row is not proved with what only a column assures") {
  // Without columns (KV_LEN = 0) the row hook still runs, and the tensor is empty.
  CHECK_FALSE(proofOf(kKv, "%n = sub i32 #KV_LEN, 1\n%j = min i32 %q_idx, %n\n%i = max i32 %j, 0").proven);
}

TEST_CASE("pinned extents sharpen proofs") {
  const char* lines = "%i = sub i32 63, %kv_idx";
  CHECK_FALSE(proofOf(kKv, lines).proven);
  CHECK(proofOf(kKv, lines, {{"KV_LEN", 64}}).proven);
  CHECK_FALSE(proofOf(kKv, lines, {{"KV_LEN", 65}}).proven);
}

TEST_CASE("linear forms print as formulas") {
  ir::Module module;
  LinearForm form{{{1, -2}, {4, 1}}, -3};
  CHECK(toString(form, module) == "-2 * H + KV_LEN - 3");
  CHECK(toString(LinearForm::number(-3), module) == "-3");
}

// ---- Tiles ----

namespace {

Verdict judge(std::string_view text, const Captures& captures, ScoreRect tile, bool optimise) {
  ir::Module module = moduleOf(text);
  if (optimise) REQUIRE(passes::runPipeline(module, {.verify = true}));
  auto bindings = take(ir::bind(module, captures, {.qLen = 1024, .kvLen = 1024}));
  return TileJudge(module, bindings).judge(tile);
}

} // namespace

TEST_CASE("tiles of a sliding window are empty, full or undecided as they should be") {
  const char* window = "scalar window: i32\n%0 = le i32 %kv_idx, %q_idx\n%1 = sub i32 %q_idx, %kv_idx\n"
                       "%2 = le i32 %1, @window\n%3 = and bool %0, %2\noutput mask(b, h, q_idx, kv_idx) -> %3";
  Captures captures;
  captures.set("window", 256);
  for (bool optimise : {false, true}) {
    auto at = [&](int64_t q, int64_t kv) {
      return judge(window, captures, {0, 0, q, q + 128, kv, kv + 128}, optimise);
    };
    CHECK(at(512, 384) == Verdict::AlwaysTrue);
    CHECK(at(512, 512) == Verdict::Mixed);
    CHECK(at(512, 640) == Verdict::AlwaysFalse);
    CHECK(at(512, 256) == Verdict::Mixed);
    CHECK(at(512, 0) == Verdict::AlwaysFalse);
  }
}

TEST_CASE("captured data leave a tile undecided, and no mask_mod means that all live") {
  int32_t ids[1024] = {};
  Captures captures;
  captures.set("t", TensorView::contiguous(ids, DType::I32, {1024}));
  const char* text =
      "tensor t: i32[KV_LEN]\n%0 = load i32 t[%kv_idx]\n%1 = eq i32 %0, 7\noutput mask(b, h, q_idx, kv_idx) -> %1";
  CHECK(judge(text, captures, {0, 0, 0, 128, 0, 128}, true) == Verdict::Undecided);
  CHECK(judge("", {}, {0, 0, 0, 128, 0, 128}, true) == Verdict::AlwaysTrue);
  CHECK(judge("output mask(b, h, q_idx, kv_idx) -> false", {}, {0, 0, 0, 128, 0, 128}, true) == Verdict::AlwaysFalse);
}

TEST_CASE("verdicts of random tiles of random modules agree with all their elements") {
  int decided = 0;
  std::mt19937_64 draw(5);
  for (uint64_t seed = 0; seed < 600; ++seed) {
    test::RandomModule random(seed, {.operations = int(4 + seed % 40), .floats = seed % 3 == 0});
    auto bindings = take(ir::bind(random.module, random.captures, random.problem));
    TileJudge tiles(random.module, bindings);
    ir::Interpreter interpreter(random.module, bindings);
    for (int round = 0; round < 12; ++round) {
      ScoreRect tile{int64_t(draw() % 2), int64_t(draw() % 4), int64_t(draw() % 13), 0, int64_t(draw() % 17), 0};
      tile.qEnd = tile.qBegin + 1 + int64_t(draw() % uint64_t(13 - tile.qBegin));
      tile.kvEnd = tile.kvBegin + 1 + int64_t(draw() % uint64_t(17 - tile.kvBegin));
      Verdict verdict = tiles.judge(tile);
      if (verdict == Verdict::Undecided) continue;
      ++decided;
      INFO("seed " << seed << "\n" << ir::print(random.module));
      int64_t live = 0;
      for (int64_t q = tile.qBegin; q < tile.qEnd; ++q)
        for (int64_t kv = tile.kvBegin; kv < tile.kvEnd; ++kv) live += interpreter.mask(tile.b, tile.h, q, kv);
      const int64_t all = (tile.qEnd - tile.qBegin) * (tile.kvEnd - tile.kvBegin);
      REQUIRE(verdict == (live == 0 ? Verdict::AlwaysFalse : live == all ? Verdict::AlwaysTrue : Verdict::Mixed));
    }
  }
  CHECK(decided > 500);
}

TEST_CASE("the index of a sum and the sum itself have ranges, and gathers by the index are proved") {
  auto module =
      take(ir::read("tensor t: i8[Q_LEN, 20]\ntensor w: f32[19]\n"
                    "%0 = load i32 t[%q_idx, %i0:20]\n%1 = sum i32 %i0:20, %0\n"
                    "%2 = load f32 w[%i0:20]\n%3 = sum f32 %i0:20, %2\n%4 = cast f32 %1\n%5 = add f32 %3, %4\n"
                    "output score(score, b, h, q_idx, kv_idx) -> %5\n"));
  Intervals intervals(module);
  const ir::Value sum = module[module[*module.output(ir::kScore)].operands[1]].operands[0];
  CHECK(intervals.range(sum).lo == -128 * 20);
  CHECK(intervals.range(sum).hi == 127 * 20);
  std::vector<GatherProof> proofs = proveGathers(module);
  REQUIRE(proofs.size() == 3);
  CHECK(proofs[1].why == "0 <= i0 <= 19");
  CHECK_FALSE(proofs[2].proven);
  CHECK(proofs[2].why == "it always gives index 19, extent 19");
}
