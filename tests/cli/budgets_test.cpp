// Budgets of `attnc check`, what `attnc explain OLD NEW` says, and predicted times next to those of bench/predict.py.
#include "command.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <fstream>
#include <regex>

using namespace attnc;
using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";
const std::string kCausal = "check " + kMods + "causal.py --arch sm_90a --shape 2,16,16,8192,8192 ";

/// Runs the command. Unset: there is no NVRTC.
std::optional<Outcome> ran(const std::string& arguments) {
  Outcome outcome = test::attnc(arguments);
  if (outcome.exitCode == 3 && outcome.err.find("nvrtc") != std::string::npos) {
    WARN("SKIPPED: " << outcome.err);
    return std::nullopt;
  }
  return outcome;
}

} // namespace

TEST_CASE("check holds budgets against what a mod costs, and exits with 1 if one is exceeded") {
  const auto kept = ran(kCausal + "--budget 'h100: 1 ms' --budget 'no block mask' --budget '0 spilled bytes' "
                                  "--budget '0 operations a score' --prove 'kv_idx <= q_idx'");
  if (!kept) return;
  CHECK(kept->exitCode == 0);
  CHECK_THAT(kept->out, Contains("proved      kv_idx <= q_idx") &&
                            Contains("kept        h100: 1 ms: 0.801 ms on H100 rested, median error ") &&
                            Contains(" rows\n") && Contains("kept        no block mask: none is read"));
  const std::string slow = "check --expr 'score + tanh(score)' --arch sm_90a --shape 2,16,16,8192,8192 ";
  const auto exceeded = ran(slow + "--json --budget '0 operations a score' --budget 'H200 rested: 2 ms'");
  CHECK(exceeded->exitCode == 1);
  const auto json = nlohmann::json::parse(exceeded->out);
  REQUIRE(json["budgets"].size() == 2);
  for (const auto& budget : json["budgets"]) CHECK(budget["answer"] == "exceeded");
  CHECK(json["budgets"][1]["value"] > 2.0);
  const auto listed = ran("check " + kMods + "document.py --arch sm_90a --budget 'no block mask'");
  CHECK(listed->exitCode == 1);
  CHECK_THAT(listed->out, Contains("exceeded    no block mask: the kernel reads lists of blocks"));
}

TEST_CASE("check takes the slower clock of a GPU, the backward pass, and a head dim in the shape") {
  const auto both = ran("check --expr 'q_idx >= kv_idx' --json --budget 'h200: 1 ms for 2,16,16,8192,8192' "
                        "--budget 'h200 rested: 1 ms for 2,16,16,8192,8192' "
                        "--budget 'h200 under load backward: 3 ms for 2,32,32,8192,8192,64'");
  if (!both) return;
  CHECK(both->exitCode == 0);
  const auto budgets = nlohmann::json::parse(both->out)["budgets"];
  CHECK(budgets[0]["value"] > budgets[1]["value"]);
  CHECK_THAT(std::string(budgets[0]["found"]), Contains("H200 under load"));
  CHECK(budgets[2]["value"] > 2.7);
  const auto shape = ran("check --expr 'q_idx >= kv_idx' --json --shape 2,32,32,8192,8192,64 "
                         "--budget 'h200 under load backward: 3 ms'");
  CHECK(nlohmann::json::parse(shape->out)["budgets"][0]["value"] == budgets[2]["value"]);
}

TEST_CASE("check exits with 3 for a budget that no measured row decides") {
  for (const auto& [arguments, why] :
       {std::pair("--expr 'score + log1p(abs(score))' --budget 'h200: 9 ms for 2,16,16,8192,8192'",
                  "not measured: `log1p` for each score"),
        {"--expr score --budget 'h200: 1 ms for 2,16,16,8192,8192,96'", "not measured: head dims 96/96"},
        {ATTNC_SOURCE_DIR "/dsl/mods/dropout.py --budget 'h200: 1 ms for 2,16,16,8192,8192'",
         "not measured: mods with a prob_mod"},
        {"--expr 'score + bias[kv_idx]' --capture 'bias: f32[KV_LEN]' --budget 'h200: 1 ms for 2,16,16,8192,8192'",
         "not measured: look-ups in score_mod"},
        {"--expr score --budget 'h100 under load: 9 ms for 2,16,16,8192,8192'", "not measured: H100 under load"},
        {"--expr score --budget 'h100: 9 ms for 1,1,1,256,256'", "not measured: passes of less than"}}) {
    const auto undecided = ran("check " + std::string(arguments));
    if (!undecided) return;
    CHECK(undecided->exitCode == 3);
    CHECK_THAT(undecided->out, Contains("undecided   h") && Contains(why));
  }
}

TEST_CASE("check refuses budgets that are none") {
  for (const auto& [budget, why] : {std::pair("fast", "'fast' is no budget"),
                                    {"a100: 1 ms for 2,16,16,8192,8192", "were not measured: 'a100'"},
                                    {"h100: 1 ms", "has no shape"},
                                    {"h100 hot: 1 ms for 1,1,1,8,8", "has 'hot'"},
                                    {"h100: -1 ms for 1,1,1,8,8", "has '-1' for a number"},
                                    {"h100: 1 ms for 1,2,3", "--budget: '1,2,3'"},
                                    {"x spilled bytes", "has 'x' for a number"}}) {
    const Outcome refused = test::attnc(std::string("check --expr score --budget '") + budget + "'");
    CHECK(refused.exitCode == 2);
    CHECK_THAT(refused.err, Contains(why) && Contains("hint: "));
  }
  const Outcome alone = test::attnc("check --expr score --shape 1,1,1,8,8");
  CHECK(alone.exitCode == 2);
  CHECK_THAT(alone.err, Contains("--shape requires --budget"));
  const Outcome without = shell("ATTNC_CACHE_DIR=/nonexistent ATTNC_NVRTC=/nonexistent $ATTNC check --expr "
                                "'score * 0.37' --budget '0 spilled bytes'");
  CHECK(without.exitCode == 3);
  CHECK_THAT(without.err, Contains("install the CUDA 13 toolkit"));
}

TEST_CASE("explain of two files says what changes in cost") {
  const std::string files = "explain " + kMods + "causal.py " + kMods +
                            "sliding_window.py --arch sm_90a "
                            "--set window=1024 --shape 2,16,16,8192,8192 ";
  const auto text = ran(files);
  if (!text) return;
  CHECK(text->exitCode == 0);
  CHECK_THAT(text->out, Contains("causal.py -> ") &&
                            Contains("* live blocks                         66560 -> 17280 (-74 %)") &&
                            Contains("  block mask                          none\n") &&
                            Contains("* ms, H200 under load                 0.870 -> 0.267 (-69 %)"));
  const auto json = nlohmann::json::parse(ran(files + "--json")->out);
  CHECK(json["costs"][0] ==
        nlohmann::json({{"cost", "family"}, {"old", "sm90"}, {"new", "sm90"}, {"isChanged", false}}));
  const auto unknown = ran("explain " + kMods + "causal.py " + kMods + "noop.py --arch sm_80");
  CHECK_THAT(unknown->out, Contains("noop.py: no times, not measured: GPUs of sm_80"));
  CHECK(test::attnc("explain " + kMods + "causal.py " + kMods + "noop.py --html x.html").exitCode == 2);
}

TEST_CASE("times are those that bench/predict.py predicts") {
  std::ifstream file(ATTNC_SOURCE_DIR "/bench/results/predicted.jsonl");
  const std::regex id(R"((forward-(?:causal|softcap)|backward-noop)-b2h(\d+)k\2-q(8192)k\3-d(\d+))");
  int found = 0;
  std::string explained, before;
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    const std::string of = row["id"], tile = row["tile"];
    std::smatch is;
    if (!std::regex_match(of, is, id)) continue;
    if (of + tile != before) {
      const std::string kind = is[1].str().substr(0, is[1].str().find('-'));
      const auto text =
          ran("explain --json --arch sm_90a " + kMods + is[1].str().substr(kind.size() + 1) + ".py --kernel " + kind +
              (kind == "backward" ? " --gradients none" : "") + (is[1] == "forward-softcap" ? " --set cap=30" : "") +
              " --head-dim " + is[4].str() + " --shape 2," + is[2].str() + "," + is[2].str() + ",8192,8192" +
              (tile.empty() ? "" : " --tile " + tile));
      if (!text) return;
      explained = text->out;
      before = of + tile;
    }
    const auto told = nlohmann::json::parse(explained);
    for (const auto& time : told["times"])
      if (time["gpu"] == row["gpu"] && time["clock"] == row["clock"]) {
        INFO(of << " " << tile);
        CHECK(double(time["ms"]) == Approx(double(row["predicted"])).epsilon(2e-4));
        ++found;
      }
  }
  CHECK(found >= 20);
}
