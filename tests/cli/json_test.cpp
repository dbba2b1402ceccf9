// --json of `check` and `explain`: the same facts as their text, for programs.
#include "command.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using attnc::test::Outcome;
using Catch::Contains;
using Json = nlohmann::json;

namespace {
const std::string kLibrary = ATTNC_SOURCE_DIR "/dsl/mods/";
}

TEST_CASE("check gives JSON: of a mod what it is, of a wrong one where and why") {
  Outcome outcome = attnc::test::attnc("check --json " + kLibrary + "relative_bias.py");
  REQUIRE(outcome.exitCode == 0);
  CHECK(outcome.err.empty());
  const Json json = Json::parse(outcome.out);
  CHECK(json["ok"] == true);
  CHECK(json["functions"] == Json{"score_mod"});
  CHECK(json["captures"] ==
        Json::parse(R"([{"name": "bias", "kind": "tensor", "dtype": "f32", "shape": ["H", "257"]}])"));
  CHECK(json["operations"]["score_mod"]["element"] == 6);
  CHECK(json["operations"]["score_mod"]["perElement"]["load"] == 1);
  REQUIRE(json["gathers"].size() == 2);
  CHECK(json["gathers"][1]["capture"] == "bias");
  CHECK(json["gathers"][1]["index"] == 1);
  CHECK(json["gathers"][1]["line"] == 15);
  CHECK(json["gathers"][1]["proven"] == true);
  CHECK(json["scoreGradient"] == "some");
  CHECK_THAT(attnc::test::attnc("check " + kLibrary + "relative_bias.py").out,
             Contains(json["hash"].get<std::string>()));

  Outcome wrong = attnc::test::attnc("check --json --expr 'q_idx >= kvidx'");
  CHECK(wrong.exitCode == 1);
  CHECK_THAT(wrong.err, Contains("`kvidx` is not defined"));
  const Json why = Json::parse(wrong.out);
  CHECK(why["ok"] == false);
  const Json& found = why["error"]["diagnostics"].at(0);
  CHECK(found["line"] == 1);
  CHECK(found["column"] == 10);
  CHECK(found["id"] == "undefined-name");
  CHECK(found["hint"] == "did you mean `kv_idx`?");
  // Bytes that are no UTF-8 make no broken JSON.
  CHECK(Json::parse(attnc::test::shell("printf 'x\\377 y' | $ATTNC check --json -").out)["ok"] == false);
}

TEST_CASE("check gives JSON of warnings, and of which functions were taken") {
  const Outcome outcome =
      attnc::test::shell("printf 'n: int\\ndef f(b, h, q, k): return q < 4 & k < 4\\n' | $ATTNC check --json -");
  REQUIRE(outcome.exitCode == 0);
  const Json json = Json::parse(outcome.out);
  REQUIRE(json["warnings"].size() == 2);
  CHECK(json["warnings"][0]["id"] == "unused-capture");
  CHECK(json["warnings"][0]["severity"] == "warning");
  CHECK(json["warnings"][1] ==
        Json::parse(R"({"id": "comparison-precedence", "file": "<stdin>", "line": 2, "column": 27,
      "message": "`&` binds tighter than comparisons: this reads `q < (4 & k) < 4`", "severity": "warning",
      "hint": "write `(q < 4) & (k < 4)`"})"));
  CHECK(json["choices"] ==
        Json::parse(R"([{"function": "mask_mod", "name": "f", "line": 2, "why": "it takes 4 arguments",
      "others": []}])"));
  const Outcome strict = attnc::test::attnc("check --json --werror --expr 'q_idx < 4 & kv_idx < 4'");
  CHECK(strict.exitCode == 1);
  CHECK(Json::parse(strict.out)["error"]["diagnostics"][0]["id"] == "comparison-precedence");
  // Wrong usage has none, as --help says.
  const Outcome none = attnc::test::attnc("check --json");
  CHECK(none.exitCode == 2);
  CHECK(none.out.empty());
  CHECK_THAT(attnc::test::attnc("check --help").out, Contains("exit code 2"));
}

TEST_CASE("explain gives JSON: the kernel, its launches, and what the mask leaves of the problem") {
  Outcome outcome = attnc::test::attnc(
      "explain --json --no-cache --arch sm_80 --head-dim 64 --shape 2,8,2,1024,1024 --set window=200 " + kLibrary +
      "sliding_window.py");
  if (outcome.exitCode == 3 && outcome.err.find("nvrtc") != std::string::npos) {
    WARN("SKIPPED: " << outcome.err);
    return;
  }
  REQUIRE(outcome.exitCode == 0);
  const Json json = Json::parse(outcome.out);
  CHECK(json["kernel"]["family"] == "sm80");
  CHECK(json["kernel"]["kind"] == "forward");
  CHECK(json["kernel"]["headDim"] == 64);
  REQUIRE(json["kernel"]["launches"].size() == 1);
  CHECK(json["kernel"]["launches"][0]["registers"] > 0);
  CHECK(json["kernel"]["launches"][0]["tile"]["rows"] > 0);
  CHECK(json["problem"] == Json::parse(R"({"B": 2, "H": 8, "HKV": 2, "Q_LEN": 1024, "KV_LEN": 1024})"));
  CHECK(json["values"] == Json::parse(R"({"window": 200})"));
  const Json& blocks = json["blocks"];
  CHECK(blocks["all"] == 64);
  // The diagonal, and two blocks below it: from 1 to 255 and from 129 to 383 behind, of which 200 live.
  CHECK(blocks["full"] == 0);
  CHECK(blocks["partial"] == 8 + 7 + 6);
  CHECK(blocks["empty"] == 64 - 21);
  CHECK(blocks["isEstimate"] == false);
  CHECK(json["flops"]["dense"] == 2.0 * 8 * 1024 * 1024 * 4 * 64);
  CHECK(json["bytes"] == 2.0 * (8 + 2) * 1024 * (64 + 64) * 2);
  CHECK(json["flopsPerByte"] == json["flops"]["live"].get<double>() / json["bytes"].get<double>());
  CHECK(json["perScore"]["full"] == 0);
}

TEST_CASE("check gives JSON of grids and of the box of keys") {
  const Json json =
      Json::parse(attnc::test::printed("check --json " + kLibrary + "neighborhood2d.py -D 'DILATION=(1, 2)'"));
  REQUIRE(json["grids"].size() == 1);
  CHECK(json["grids"][0] ==
        Json::parse(
            R"({"extents": ["128", "128"], "before": "0", "isDeclared": true, "ofQueries": true, "ofKeys": true})"));
  CHECK(json["box"]["isMask"] == false);
  REQUIRE(json["box"]["axes"].size() == 2);
  const Json &y = json["box"]["axes"][0], &x = json["box"]["axes"][1];
  CHECK(y["axis"] == "y");
  CHECK(y["begin"] == "min(max(qy - 6, 0), 115)");
  CHECK_FALSE(y.contains("step"));
  CHECK(x["step"] == "2");
  CHECK_FALSE(Json::parse(attnc::test::printed("check --json " + kLibrary + "causal.py")).contains("grids"));
}

TEST_CASE("explain gives JSON of the boxes that a kernel on a grid visits") {
  Outcome outcome =
      attnc::test::attnc("explain --json --no-cache --arch sm_90a --head-dim 64 --shape 2,4,2,16384,16384 " + kLibrary +
                         "neighborhood2d.py");
  if (outcome.exitCode == 3 && outcome.err.find("nvrtc") != std::string::npos) {
    WARN("SKIPPED: " << outcome.err);
    return;
  }
  REQUIRE(outcome.exitCode == 0);
  const Json json = Json::parse(outcome.out);
  CHECK(json["kernel"]["family"] == "grid");
  CHECK(json["kvLoop"] == "boxes");
  const Json& boxes = json["boxes"];
  REQUIRE(boxes["queryBox"].size() == 3);
  CHECK(boxes["queryBox"][0] == 1);
  CHECK(boxes["livePairs"] == 8.0 * 16384 * 169);
  CHECK(boxes["pairs"] > boxes["livePairs"]);
  CHECK(boxes["steps"] >= boxes["tiles"]);
  CHECK(json["flops"]["live"] == boxes["pairs"].get<double>() * 2 * (64 + 64));
  CHECK(boxes["isEstimate"] == false);
  CHECK(json["perScore"] == Json::parse(R"({"full": 0, "partial": 0, "masksAllBlocks": false})"));
  CHECK(json["gradients"].empty());
}
