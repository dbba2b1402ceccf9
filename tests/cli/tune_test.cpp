// `attnc tune` as far as it goes without a GPU: what it refuses, what else asks for a tile or tells of one, and what
// the cache makes of the choices.
#include "command.h"
#include "helpers/plan_parts.h"
#include "show/explanation.h"
#include "variable.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>

using namespace attnc;
using namespace attnc::test;
using Catch::Contains;

namespace {

const char* const kChoice =
    R"({"format": 1, "device": "NVIDIA H200", "arch": "sm_90a", "mod": "abc", "options": "1", "shape": "gqa 4, q 2^13, kv 2^13",
 "kernel": "kind=forward family=sm90", "tile": "128x96x8", "date": "2026-02-03T04:05:06Z", "maker": "attnc 0.1.0",
 "times": [{"tile": "192x128x12", "ms": 0.25}, {"tile": "128x96x8", "ms": 0.125}]})";

} // namespace

TEST_CASE("tune refuses what cannot be measured") {
  const auto refused = [](const std::string& options, int exitCode, const std::string& part) {
    attnc::test::checkRefused("tune " + options, exitCode, part);
  };
  refused("--expr score --shape 1,1,1,8,8 --tile 128x64x8", 2, "tune chooses it");
  refused("--expr score --shape 1,3,2,8,8", 2, "H must be a multiple of HKV");
  refused("--expr score --shape 1,2,2,0,8", 2, "leaves nothing to compute");
  refused("--expr score --shape 1,1,1,8,8 --kernel fordward", 2, "did you mean forward?");
  if (attnc::test::attnc("bench --expr score --shape 1,1,1,8,8").exitCode == 0) {
    refused("--expr score", 2, "tune: no problem is given, or two\nhint: give either --in FILE or --shape");
    refused("--expr 'score +' --shape 1,1,1,8,8", 1, "error");
    return;
  }
  for (const char* options : {"", "--expr score", "missing.py --shape 1,1,1,8,8"})
    refused(options, 3, "attnc: error: tune needs a GPU: ");
  const Outcome asJson = attnc::test::attnc("tune --expr score --shape 1,1,1,8,8 --json");
  CHECK(asJson.exitCode == 3);
  CHECK(nlohmann::json::parse(asJson.out)["ok"] == false);
}

TEST_CASE("a tile is asked for by name, and one that is none is an error with those there are") {
  const Outcome source = attnc::test::attnc("emit --expr score --stage cu --arch sm_90a --head-dim 64 --tile 128x96x8");
  CHECK(source.exitCode == 0);
  CHECK_THAT(source.out, Contains("kBlockN = 96"));
  const Outcome gradients = attnc::test::attnc(
      "emit --expr score --stage cu --arch sm_90a --head-dim 64 --kernel backward --launch 2 --tile 64x128x8");
  CHECK(gradients.exitCode == 0);
  CHECK_THAT(gradients.out, Contains("kBlockM = 64"));
  for (const char* command : {"emit --stage cu --expr score --arch sm_90a --head-dim 64",
                              "explain --expr score --arch sm_90a --head-dim 64"}) {
    const Outcome refused = attnc::test::attnc(std::string(command) + " --tile 3x3x3");
    CHECK(refused.exitCode != 0);
    CHECK(refused.out.empty());
    CHECK_THAT(refused.err, Contains("the sm90 family has no tile `3x3x3` for this request") &&
                                Contains("it has 192x128x12, 192x96x12"));
  }
  for (const char* tile : {"64x32x4", "128x96x8", "64x128x8-turns --backward"}) // of sm80, and of sm90
    printed("run --expr score --random 1,1,1,8,8,64 --device cpu --tile " + std::string(tile));
}

TEST_CASE("explain says which tile a kernel has, and who chose it") {
  const auto kernel = [](TileFrom from, const char* by = "") {
    const Plan plan = *Compiler().plan(Mod::identity(), {.arch = "sm_90a", .headDim = 128, .tile = "128x96x8"});
    return test::changed(plan, [&](PlanAccess::Impl& impl) { impl.tileFrom = from, impl.tunedBy = by; });
  };
  CHECK(cli::tileText(kernel(TileFrom::Model)) == "tile from   the model: 128x96x8\n");
  CHECK(cli::tileText(kernel(TileFrom::Asked)) == "tile from   who asks: 128x96x8\n");
  const char* const by = "/cache/v1/tuned/ab.json, 2026-02-03T04:05:06Z";
  CHECK(cli::tileText(kernel(TileFrom::Tuned, by)) ==
        "tile from   tuning: 128x96x8 (/cache/v1/tuned/ab.json, 2026-02-03T04:05:06Z)\n");
  if (noNvrtc()) return;
  CHECK_THAT(printed("explain --expr score --arch sm_90a --head-dim 64"),
             Contains("\ntile from   the model: 192x128x12\n"));
  const auto json =
      nlohmann::json::parse(printed("explain --expr score --arch sm_90a --head-dim 64 --tile 128x64x8 --json"));
  CHECK(json["tile"] == nlohmann::json{{"tile", "128x64x8"}, {"from", "asked"}});
  const std::string backward = "explain --expr score --arch sm_90a --head-dim 64 --kernel backward --tile ";
  CHECK_THAT(printed(backward + "64x128x8"), Contains("\ntile from   who asks: 64x128x8\n"));
  CHECK(nlohmann::json::parse(printed(backward + "64x128x8 --json"))["tile"] ==
        nlohmann::json{{"tile", "64x128x8"}, {"from", "asked"}});
  CHECK_THAT(attnc::test::attnc(backward + "192x128x12").err, Contains("it has 128x128x8, 64x128x8"));
}

TEST_CASE("cache lists the choices of tune, counts them, finds damage, and clears them") {
  const Folder folder;
  const Variable cache("ATTNC_CACHE_DIR", (folder / "cache").c_str());
  const std::string tuned = folder / "cache/v1/tuned";
  std::filesystem::create_directories(tuned);
  writeFile(tuned + "/ab.json", kChoice);
  CHECK_THAT(printed("cache ls"), Contains("tuned       kind=forward family=sm90 for NVIDIA H200, gqa 4, q 2^13, kv "
                                           "2^13: tile 128x96x8, 2026-02-03T04:05:06Z "
                                           "(v1/tuned/ab.json)\n"));
  const auto listed = nlohmann::json::parse(printed("cache ls --json"));
  REQUIRE(listed["tuned"].size() == 1);
  CHECK(listed["tuned"][0]["tile"] == "128x96x8");
  CHECK(listed["tuned"][0]["times"][1] == nlohmann::json{{"tile", "128x96x8"}, {"ms", 0.125}});
  CHECK_THAT(printed("cache stat"), Contains("\ntuned       1\n"));
  const Outcome verified = attnc::test::attnc("cache verify");
  CHECK(verified.exitCode == 3);
  CHECK_THAT(verified.out, Contains("v1/tuned/ab.json: damaged: it is the choice of another name"));
  CHECK_THAT(printed("cache prune --max-size 0"), !Contains("tuned"));
  CHECK_THAT(printed("cache clear --dry-run"), Contains("would remove 0 kernels, 0 B, 1 tuned choice; "));
  CHECK_THAT(printed("cache clear"), Contains("removed 0 kernels, 0 B, 1 tuned choice; "));
  CHECK_FALSE(std::filesystem::exists(tuned + "/ab.json"));
}
