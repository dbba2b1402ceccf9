// `attnc shard`: the plan as text, as JSON and as a picture, and what is refused.
#include "command.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace attnc;
using attnc::test::Outcome;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

std::string shard(const std::string& arguments) { return test::printed("shard " + arguments); }

const std::string kCausal = "--expr 'q_idx >= kv_idx' ";

} // namespace

TEST_CASE("shard tells who owns what, balance, bytes and efficiency") {
  const std::string text = shard(kCausal + "--world 4 --shape 1,16,4,32768,32768");
  CHECK_THAT(text, Contains("Q_LEN 32768 x KV_LEN 32768 on 4 ranks; layout zigzag, "));
  CHECK_THAT(text, Contains("0:4096 28672:32768\n") && Contains("12288:20480\n"));
  CHECK_THAT(text, Contains("\nbalance     the busiest rank has 1.0") && Contains("\nefficiency  0."));
  CHECK_THAT(text, Contains(" with 650 TFLOP/s and 350 GB/s a rank\n"));
  const std::string slow = shard(kCausal + "--world 4 --shape 1,16,4,32768,32768 --bandwidth 1 --flops 900");
  CHECK_THAT(slow, Contains(" with 900 TFLOP/s and 1 GB/s a rank\n") && Contains("efficiency  0.0"));
  CHECK_THAT(shard(kCausal + "--world 100 --shape 1000"), Contains("84 more ranks: --json tells all\n"));
  CHECK_THAT(shard(kCausal + "--world 3 --shape 2"), Contains("  none\n"));
}

TEST_CASE("shard divides heads among the ranks of teams") {
  const std::string options = kCausal + "--world 8 --head-groups 4 --shape 1,16,4,32768,32768 ";
  CHECK_THAT(shard(options), Contains("on 8 ranks in teams of 4 that divide the heads; layout zigzag") &&
                                 Contains("in all, with heads and their rows, of live keys only"));
  const Json json = Json::parse(shard(options + "--json"));
  CHECK(json["headGroups"] == 4);
  CHECK(json["ranks"].size() == 8);
  const std::string svg = shard(options + "--layout contiguous -o -");
  CHECK_THAT(svg, Contains("ranks 4 to 7: 16384 rows, 74.9 % of the pairs; of their keys, 16384 travel"));
}

TEST_CASE("shard --json has the whole plan") {
  const Json json = Json::parse(shard(kCausal + "--world 3 --shape 1000 --layout contiguous --stages 2 --json"));
  CHECK(json["layout"] == "contiguous");
  REQUIRE(json["ranks"].size() == 3);
  CHECK(json["ranks"][1]["rows"] == Json::parse("[[333, 666]]"));
  CHECK(json["ranks"][0]["keysReceived"] == 51); // up to the end of the block of 128 keys that rank 0 ends in
  int64_t keys = 0;
  for (const Json& piece : json["ranks"][2]["pieces"]) {
    CHECK((piece["stage"] == 0) == (piece["from"] == 2));
    keys += piece["keys"][1].get<int64_t>() - piece["keys"][0].get<int64_t>();
  }
  CHECK(keys == 1000);
}

TEST_CASE("shard -o draws the blocks in the colours of their ranks") {
  const std::string svg = shard(kCausal + "--world 4 --shape 4096 --layout contiguous -o -");
  CHECK_THAT(svg, Contains("<svg") && Contains("rank 3: 1024 rows") && !Contains("rank 4"));
  // Own keys of rank 0 are one triangle; keys of others only travel to later ranks.
  CHECK_THAT(svg, Contains("fill=\"#0072b2\"") && !Contains("<path fill=\"#9ecae8\""));
  CHECK_THAT(svg, Contains("<path fill=\"#f5c19a\""));
  CHECK_THAT(shard(kCausal + "--world 9 --shape 4096 -o -"), Contains("and 1 more ranks, in the same colours"));
}

TEST_CASE("shard refuses what is no plan") {
  for (const auto& [arguments, message] : std::vector<std::pair<std::string, std::string>>{
           {"--world 0", "--world"},
           {"--layout ring", "'ring' is none of auto, contiguous, zigzag, greedy"},
           {"--stages 33", "--stages"},
           {"--bandwidth 0", "--bandwidth"},
           {"-o plan.png", "plan.png"},
           {"--json -o -", "stdout would carry a picture and its facts"}}) {
    const Outcome outcome = test::attnc("shard " + kCausal + arguments);
    CAPTURE(arguments);
    CHECK(outcome.exitCode == 2);
    CHECK_THAT(outcome.err, Contains(message));
  }
}
