// --json of commands that report facts: mask, probe, emit, run.
#include "command.h"
#include "variable.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace attnc::test;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";

Json parsed(const std::string& arguments) { return Json::parse(printed(arguments)); }

} // namespace

TEST_CASE("mask tells its blocks as JSON, and writes the picture as well") {
  const Folder folder;
  const std::string mask = "mask --json " + kMods + "sliding_window.py --set window=60 --shape 256 --block 64 ";
  const Json json = parsed(mask);
  CHECK(json["ok"] == true);
  CHECK(json["values"]["window"] == 60);
  CHECK(json["block"] == Json{64, 64});
  CHECK(json["blocks"] == 16);
  CHECK(json["full"] == 0);
  CHECK(json["partial"] == 7);
  CHECK(json["empty"] == 9);
  CHECK(json["likeHeads"] == Json::parse("[[[0, 0]]]"));
  CHECK(json["rows"] == Json{0, 256});
  const Json part = parsed(mask + "--rows 64:128 --columns 0:100");
  CHECK(part["rows"] == Json{64, 128});
  CHECK(part["columns"] == Json{0, 100});
  CHECK(part["blocks"] == 2);
  CHECK(part["partial"] == 2);
  CHECK(part["empty"] == 0);
  CHECK(parsed(mask + "-o " + folder / "m.svg")["output"] == folder / "m.svg");
  CHECK_THAT(readFile(folder / "m.svg"), Contains("<svg"));
  const Outcome both = attnc::test::attnc(mask + "-o -");
  CHECK(both.exitCode == 2);
  CHECK(both.out.empty());
  const Outcome large = attnc::test::attnc("mask --json --shape 4000000 --expr 'q_idx >= kv_idx'");
  CHECK(large.exitCode == 3);
  CHECK(Json::parse(large.out)["ok"] == false);
}

TEST_CASE("probe tells a score as JSON") {
  const Json json = parsed("probe --json " + kMods + "softcap.py --set cap=30 --at 0,0,9,5 --score 41.5");
  CHECK(json["at"] == Json::parse(R"({"b": 0, "h": 0, "q_idx": 9, "kv_idx": 5})"));
  CHECK(json["given"] == 41.5);
  CHECK(json["isLive"] == true);
  CHECK(json["values"]["cap"] == 30);
  CHECK(json["scoreMod"]["result"] == json["score"]);
  CHECK(json["scoreMod"]["values"].size() >= 2);
  CHECK(parsed("probe --json --expr 'q_idx >= kv_idx' --at 0,0,1,2")["isLive"] == false);
  CHECK(Json::parse(attnc::test::attnc("probe --json --expr 'q_idx >= kvidx' --at 0,0,1,2").out)["ok"] == false);
}

TEST_CASE("emit tells what it emitted as JSON, and the stage goes to a file") {
  const Folder folder;
  const std::string emit = "emit --json --expr 'q_idx >= kv_idx' --arch sm_80 --head-dim 64 ";
  const Json source = parsed(emit + "--stage cu -o " + folder / "a.cu");
  CHECK(source["stage"] == "cu");
  CHECK(source["kernel"]["family"] == "sm80");
  CHECK(source["kernel"]["headDim"] == 64);
  CHECK(source["launches"].at(0)["template"] == "forward_sm80.cu");
  CHECK(source["bytes"] == readFile(folder / "a.cu").size());
  CHECK(source["output"] == folder / "a.cu");
  CHECK(attnc::test::attnc(emit + "--stage cu -o -").exitCode == 2);
  CHECK(parsed(emit + "--stage ir").count("launches") == 0);
  CHECK(Json::parse(attnc::test::attnc("emit --json --stage ir --expr 'q_idx >='").out)["ok"] == false);
  if (noNvrtc()) return;
  const Json compiled = parsed(emit + "--stage cubin --kernel-family naive");
  CHECK(compiled["launches"].at(0)["registers"] > 0);
  CHECK(compiled["launches"].at(0)["spillBytes"] == 0);
}

TEST_CASE("run tells device, operands and a digest of the result as JSON") {
  const Folder folder;
  const std::string run = "run --json --device cpu " + kMods + "alibi.py --random 1,2,1,8,8,16 ";
  const Json json = parsed(run + "-o " + folder / "out.safetensors");
  CHECK(json["ok"] == true);
  CHECK(json["problem"]["HKV"] == 1);
  CHECK(json["operands"]["q"] == Json::parse(R"({"shape": [1, 2, 8, 16], "dtype": "bf16"})"));
  CHECK_THAT(json["device"]["name"].get<std::string>(), Contains("CPU"));
  CHECK(json["ms"] > 0);
  CHECK(json["results"]["out"]["shape"] == Json{1, 2, 8, 16});
  CHECK(json["results"]["lse"]["greatest"] >= json["results"]["lse"]["least"]);
  CHECK(json["output"] == folder / "out.safetensors");
  CHECK(parsed(run + "--backward")["results"].count("dq") == 1);
  CHECK(Json::parse(attnc::test::attnc("run --json --in /no/such/file --expr score").out)["ok"] == false);
}
