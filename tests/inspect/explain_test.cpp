// What is known of settled choices and of mods, as data and as JSON. The command prints it: tests/cli.
#include "attnc/explain.h"
#include "helpers/plan_parts.h"
#include "tests/api/settled.h"

#include <nlohmann/json.hpp>

using namespace attnc;
using namespace attnc::test;

namespace {

/// Explains; nullopt if there is no NVRTC.
std::optional<Explanation> explained(const Preparation& preparation, const Captures& captures = {}) {
  auto result = explain(Compiler({.cacheMode = CompilerOptions::CacheMode::Off}), preparation, captures);
  if (!result && result.error().message.find("nvrtc") != std::string::npos) {
    WARN("SKIPPED: " << result.error().message);
    return std::nullopt;
  }
  if (!result) FAIL(result.error().message);
  return *std::move(result);
}

} // namespace

TEST_CASE("after settling for training, the backward kernel is explained", "[inspect]") {
  const Mod causal = mod("q_idx >= kv_idx");
  Preparation preparation = trained(causal, {});
  preparation.backward = test::changed(*preparation.backward, [](PlanAccess::Impl& plan) {
    plan.tileFrom = TileFrom::Tuned;
    plan.tunedBy = "file and date";
  });
  const auto all = explained(preparation);
  if (!all) return;
  CHECK(all->kernel().options().kind == KernelKind::Backward);
  CHECK(all->kernel().tile() == preparation.backward->tile());
  CHECK(all->kernel().tunedBy() == "file and date");
  CHECK(all->sources.size() == all->compiled.size());
  CHECK(all->perScore.gradient);
  const auto json = nlohmann::json::parse(toJson(*all));
  CHECK(json["kernel"]["kind"] == "backward");
  CHECK(json["tile"]["tunedBy"] == "file and date");
  CHECK(json["perScore"].contains("gradient"));
}

TEST_CASE("pins of the choices are folded in before the mask is counted", "[inspect]") {
  const Mod window = mod("window: int\ndef mask_mod(b, h, q_idx, kv_idx):\n  return q_idx - kv_idx < window\n");
  Case c;
  c.options.pins = {{"window", -2000}}; // queries end at 1000, so keys are seen from 2000 on
  Captures captures;
  captures.set("window", -2000);
  const auto all = explained(settled(window, c), captures);
  if (!all) return;
  CHECK(all->mod.hash() != window.hash());
  CHECK(all->census.estimated == 0);
  CHECK(all->census.live < all->census.blocks / 2);
  CHECK(all->flops.live < all->flops.dense / 2);
}

TEST_CASE("what a mod reads, requires and proves is told", "[inspect]") {
  auto all = take(explain(mod("table: f32[3, N]\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
                              "  return score.detach() + table[q_idx % 3, kv_idx]\n")));
  REQUIRE(all.gathers.size() == 2);
  CHECK(all.gathers[0].capture == "table");
  CHECK(all.gathers[0].rank == 2);
  CHECK(all.gathers[0].line == 3);
  CHECK(all.gathers[0].proven);
  CHECK_FALSE(all.gathers[1].proven);
  CHECK(all.scoreGradient == ScoreGradient::Stopped);
  CHECK_FALSE(all.operations.maskMod);
  const auto json = nlohmann::json::parse(toJson(all));
  CHECK(json["scoreGradient"] == "stopped");
  CHECK(json["gathers"][1]["proven"] == false);
}

TEST_CASE("grids are told by their extents, and have numbers in a launch", "[inspect]") {
  const Mod neighborhood = mod(kNeighborhood);
  auto grids = take(gridsOf(neighborhood));
  CHECK(grids.isDeclared);
  REQUIRE(grids.grids.size() == 2);
  CHECK(grids.grids[0].ofKeys); // of which coordinates are taken first
  CHECK(grids.grids[0].extents == std::vector<std::string>{"60", "50"});
  CHECK(grids.grids[1].ofQueries);
  REQUIRE(grids.box);
  CHECK(grids.box->isMask);
  CHECK(grids.box->axes[1].axis == "x");
  auto launch = take(gridsOf(neighborhood, {}, {.qLen = 1000, .kvLen = 3000}));
  CHECK(launch.keys->extents == std::vector<int64_t>{60, 50});
  CHECK(launch.queries->before == 0);
}

TEST_CASE("what programs ask of a mod before they run it", "[inspect]") {
  const Mod bias = mod("bias: f32[N]\nids: i32[N]\n"
                       "def score_mod(score, b, h, q_idx, kv_idx):\n  return score + bias[q_idx]\n"
                       "def mask_mod(b, h, q_idx, kv_idx):\n  return ids[q_idx] == ids[kv_idx]\n");
  CHECK(capturesOfMask(bias) == std::set<std::string>{"ids"});
  CHECK(*reachedCaptures(bias) == std::set<std::string>{"bias"});
  CHECK(checkGradients(bias, {"bias"}));
  CHECK_FALSE(checkGradients(bias, {"ids"}));
  CHECK_FALSE(checkCaptures(bias, {}, {}));
  std::map<std::string, int64_t> extents;
  chooseExtents(bias, {.qLen = 8, .kvLen = 8}, 64, extents);
  CHECK(extents == std::map<std::string, int64_t>{{"N", 64}});
  const ScoreFacts facts = scoreFactsOf(bias);
  CHECK((facts.readsScore && facts.addsAtMost && !facts.approximates));
  CHECK_FALSE(scoreFactsOf(mod("score * 2")).addsAtMost);
  CHECK_FALSE(scoreFactsOf(mod("score * 2")).readsPlace);
  for (const char* place : {"score + b", "score + h", "score + q_idx", "score + kv_idx"})
    CHECK(scoreFactsOf(mod(place)).readsPlace);
  CHECK_FALSE(scoreFactsOf(mod("def score_mod(score, b, h, q_idx, kv_idx):\n  return q_idx * 0.5\n")).readsScore);
}

TEST_CASE("a census is of blocks of tokens of the problem's lengths", "[inspect]") {
  const ProblemShape problem{.qLen = 256, .kvLen = 512};
  const Mod causal = mod("q_idx >= kv_idx");
  auto census = [&](const BlockMaskShape& shape) { return takeCensus(causal, {}, problem, shape); };
  const BlockMaskShape fits{1, 1, 256, 512, 128, 128};
  REQUIRE(census(fits));
  CHECK(census(fits)->blocks == 8);
  for (const BlockMaskShape& shape : {BlockMaskShape{1, 1, 256, 256, 128, 128},
                                      {1, 1, 512, 512, 128, 128},
                                      {1, 1, 256, 512, 0, 128},
                                      {1, 1, 256, 512, 128, 0},
                                      {0, 1, 256, 512, 128, 128},
                                      {1, 0, 256, 512, 128, 128}})
    CHECK_FALSE(census(shape));
}

TEST_CASE("copies of a mask reader read by themselves", "[inspect]") {
  auto reader = take(MaskReader::create(mod("q_idx >= kv_idx"), {}, {.qLen = 4, .kvLen = 4}));
  const MaskReader copy = reader;
  CHECK(reader.isLive(0, 0, 2, 2));
  CHECK_FALSE(copy.isLive(0, 0, 1, 2));
  CHECK(reader.isLive(0, 0, 2, 1));
  CHECK(copy.scoreOf(0.5f, 0, 0, 2, 1) == 0.5f);
  auto scores = take(MaskReader::create(mod("score * 2 + kv_idx"), {}, {.qLen = 4, .kvLen = 4}));
  CHECK(scores.scoreOf(0.5f, 0, 0, 2, 3) == 4);
}
