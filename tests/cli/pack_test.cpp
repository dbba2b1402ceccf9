// `attnc pack`, and serving only from a pack, as users of the command meet them.
#include "command.h"
#include "variable.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>

using namespace attnc::test;
using Catch::Contains;
using nlohmann::json;

namespace {

constexpr const char* kMod = "slopes: f32[H]\n"
                             "def score_mod(score, b, h, q_idx, kv_idx):\n"
                             "    return score + slopes[h] * (kv_idx - q_idx)\n"
                             "def mask_mod(b, h, q_idx, kv_idx):\n"
                             "    return q_idx >= kv_idx\n";

/// A machine that has packs, and neither NVRTC nor a cache.
struct Bare {
  Folder folder;
  Variable cache{"ATTNC_CACHE_DIR", (folder / "cache").c_str()}, nvrtc{"ATTNC_NVRTC", "/no/such/libnvrtc.so.13"},
      noCompile{"ATTNC_NO_COMPILE", "1"}, packs;
  explicit Bare(const std::string& packs) : packs("ATTNC_PACK", packs.c_str()) {}
};

Outcome emit(const std::string& path, const std::string& options) {
  return attnc::test::attnc("emit " + path + " --stage cubin --arch sm_80 --head-dim 64 " + options);
}

} // namespace

NVRTC_TEST_CASE("what is packed is served with neither NVRTC nor a cache, and nothing else is") {
  const Folder folder;
  const std::string mod = folder / "alibi.py", pack = folder / "kernels.attnc";
  writeFile(mod, kMod);
  const Outcome packed =
      attnc::test::attnc("pack " + mod + " --arch sm_80 --head-dim 64 --kernel auto,backward -o " + pack);
  REQUIRE(packed.exitCode == 0);
  CHECK_THAT(packed.out, Contains(pack + ": "));
  const std::string options[] = {"", "--kernel decode", "--kernel backward --launch 2"};
  std::vector<std::string> cubins;
  for (const std::string& kernel : options) cubins.push_back(emit(mod, kernel).out);
  {
    const Bare bare(pack);
    for (size_t i = 0; i < cubins.size(); ++i) {
      const Outcome outcome = emit(mod, options[i]);
      INFO(outcome.err);
      CHECK(outcome.exitCode == 0);
      CHECK((outcome.out == cubins[i])); // not to be printed
    }
    CHECK_FALSE(std::filesystem::exists(bare.folder / "cache"));
    const Outcome missing = emit(mod, "--dtype fp16");
    CHECK(missing.exitCode == 3);
    CHECK(missing.out.empty());
    CHECK_THAT(missing.err, Contains("kind=forward family=sm80 dtype=f16 head-dim=64") && Contains("(key ") &&
                                Contains("attnc pack"));
  }
  const Outcome listed = attnc::test::attnc("cache ls " + pack + " --json");
  REQUIRE(listed.exitCode == 0);
  std::set<std::string> kinds;
  const json rows = json::parse(listed.out)["kernels"];
  for (const json& row : rows) {
    kinds.insert(row["kind"].get<std::string>());
    CHECK(row["arch"] == "sm_80");
    CHECK(row["headDim"] == 64);
    CHECK(row["key"].get<std::string>().size() == 64);
  }
  CHECK(kinds == std::set<std::string>{"backward", "decode", "forward"});
  CHECK(attnc::test::attnc("cache verify " + pack).exitCode == 0);
}

NVRTC_TEST_CASE("a pack has the tiles of wide and of narrow windows") {
  const Folder folder;
  const std::string mod = folder / "window.py", pack = folder / "kernels.attnc";
  writeFile(mod, "window: int\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                 "    return (q_idx >= kv_idx) & (q_idx - kv_idx < window)\n");
  REQUIRE(attnc::test::attnc("pack " + mod + " --arch sm_90a --head-dim 64 --kernel forward -o " + pack).exitCode == 0);
  const Bare bare(pack);
  const std::string explained = "explain " + mod + " --arch sm_90a --head-dim 64 --shape 2048,2048 --set window=";
  CHECK_THAT(attnc::test::attnc(explained + "128").out, Contains("128x128x8") && Contains("registers"));
  CHECK_THAT(attnc::test::attnc(explained + "2048").out, Contains("192x128x12") && Contains("registers"));
}

NVRTC_TEST_CASE("a pack has kernels of latent attention, whose v lies in k") {
  const Folder folder;
  const std::string pack = folder / "kernels.attnc", of = "--expr score --arch sm_90a --head-dim 576 --v-in-k 512 ";
  for (const char* kernel : {"--kernel decode ", ""}) { // there are no others
    REQUIRE(attnc::test::attnc("pack " + of + kernel + "--kv-lengths --page-size 64 -o " + pack).exitCode == 0);
    const Bare bare(pack);
    const Outcome explained = attnc::test::attnc("explain " + of + "--shape 4,64,1,1,4096 --kv-lengths --page-size 64");
    CHECK_THAT(explained.out, Contains("decode_wide_sm90.cu") && Contains("registers"));
  }
}

NVRTC_TEST_CASE("a pack has kernels whose v is all of k") {
  const Folder folder;
  const std::string pack = folder / "kernels.attnc", of = "--expr score --arch sm_90a --head-dim 512 --v-in-k 512 ";
  REQUIRE(attnc::test::attnc("pack " + of + "--kernel decode -o " + pack).exitCode == 0);
  const json listed = json::parse(attnc::test::attnc("cache ls --json " + pack).out);
  REQUIRE_FALSE(listed["kernels"].empty());
  for (const json& row : listed["kernels"]) CHECK_THAT(row["with"].dump(), Contains("\"v-in-k\""));
}

NVRTC_TEST_CASE("a pack of ragged batches serves launches with lists, and without") {
  const Folder folder;
  const std::string pack = folder / "kernels.attnc", common = " --arch sm_90a --head-dim 64 --kernel forward --ragged";
  const auto programsOf = [&](const std::string& options) {
    REQUIRE(attnc::test::attnc("pack " + options + common + " -o " + pack).exitCode == 0);
    std::set<std::string> programs;
    const json listed = json::parse(attnc::test::attnc("cache ls --json " + pack).out);
    for (const json& row : listed["kernels"]) {
      std::string program = row["kind"].get<std::string>();
      for (const json& with : row["with"]) program += " " + with.get<std::string>();
      programs.insert(program);
    }
    return programs;
  };
  CHECK(programsOf("--expr '(q_idx + kv_idx) % 3 == 0'") ==
        std::set<std::string>{"block-mask", "forward ragged", "forward blocks-128x128 blocks-of-whole-mod ragged"});
  CHECK(programsOf("--expr 'q_idx >= kv_idx' --block-sparse") ==
        std::set<std::string>{"forward blocks-128x128 ragged"});
}

NVRTC_TEST_CASE("a pack of a mod with outputs serves launches that ask for them, and others") {
  const Folder folder;
  const std::string mod = folder / "sums.py", pack = folder / "kernels.attnc",
                    of = mod + " --arch sm_80 --head-dim 64 ";
  writeFile(mod, "def weight(prob, score, b, h, q_idx, kv_idx):\n    return prob\n"
                 "sums: f32[B, H, KV_LEN] = reduce_sum(weight)\n");
  const auto served = [&](const std::string& options) {
    const Bare bare(pack);
    return attnc::test::attnc("explain " + of + "--kernel backward " + options).exitCode == 0;
  };
  for (const auto& [gradients, hasSums] : {std::pair("", true), {"--gradients none ", false}}) {
    REQUIRE(attnc::test::attnc("pack " + of + "--kernel backward -o " + pack + " " + gradients).exitCode == 0);
    CHECK(served("--gradients sums") == hasSums);
    CHECK(served("--gradients none"));
  }
  REQUIRE(attnc::test::attnc("pack " + of + "--kernel forward -o " + pack).exitCode == 0);
  CHECK_THAT(attnc::test::attnc("cache ls --json " + pack).out, Contains("reductions_sm80.cu"));
}

NVRTC_TEST_CASE("a pack of kernels of e4m3 has those that round to it") {
  const Folder folder;
  const std::string pack = folder / "kernels.attnc", of = "pack --expr score --arch sm_90a --head-dim 64 --dtype ";
  for (const auto& [dtype, has] : {std::pair("e4m3", true), {"bf16", false}}) {
    REQUIRE(attnc::test::attnc(of + dtype + " --kernel forward -o " + pack).exitCode == 0);
    std::set<std::string> found;
    const json listed = json::parse(attnc::test::attnc("cache ls --json " + pack).out);
    for (const json& row : listed["kernels"])
      if (row["kind"] == "quantise") found.insert(row["dtype"].get<std::string>() + row["with"].dump());
    CHECK(found == (has ? std::set<std::string>{"bf16[]", "bf16[\"rotary\"]"} : std::set<std::string>{}));
  }
}

NVRTC_TEST_CASE("several packs serve together; one that is damaged or of another version is told") {
  const Folder folder;
  writeFile(folder / "mod.py", kMod);
  const std::string mod = folder / "mod.py", a = folder / "a", b = folder / "b";
  REQUIRE(attnc::test::attnc("pack " + mod + " --arch sm_80 --head-dim 64 --kernel forward -o " + a).exitCode == 0);
  REQUIRE(attnc::test::attnc("pack --expr 'score * 2' --arch sm_80 --head-dim 64 --kernel forward -o " + b).exitCode ==
          0);
  {
    const Bare bare(a + ":" + b);
    CHECK(emit(mod, "").exitCode == 0);
    CHECK(emit("--expr 'score * 2'", "").exitCode == 0);
  }
  const std::string bytes = readFile(a);
  std::string changed = bytes;
  changed.back() = char(changed.back() ^ 1);
  writeFile(a, changed);
  const Outcome verified = attnc::test::attnc("cache verify " + a + " " + b);
  CHECK(verified.exitCode == 3);
  CHECK_THAT(verified.out, Contains("damaged: its checksum does not fit") && Contains(b + ": 1 of 1 files sound"));
  {
    const Bare bare(a);
    const Outcome refused = emit(mod, "");
    CHECK(refused.exitCode == 3);
    CHECK_THAT(refused.err, Contains("warning: the pack " + a + " is damaged"));
  }
  writeFile(a, "no pack");
  const Bare bare(a);
  const Outcome refused = emit(mod, "");
  CHECK(refused.exitCode == 3);
  CHECK_THAT(refused.err, Contains("the pack " + a + " is no pack"));
  CHECK_THAT(attnc::test::attnc("cache stat").err, Contains("is no pack"));
}

TEST_CASE("a pack that cannot be made leaves what was there") {
  const Folder folder;
  writeFile(folder / "mod.py", kMod);
  writeFile(folder / "out", "before");
  const std::string mod = folder / "mod.py", to = " -o " + (folder / "out");
  const auto refused = [&](const std::string& options, int exitCode, const std::string& part) {
    const Outcome outcome = attnc::test::attnc("pack " + options);
    CHECK(outcome.exitCode == exitCode);
    CHECK_THAT(outcome.err, Contains(part));
    CHECK(outcome.out.empty());
    CHECK(readFile(folder / "out") == "before");
    CHECK(folder.files() == 2);
  };
  refused(mod, 2, "--output is required");
  refused(to, 2, "give a mod");
  refused(folder / "none.py" + to, 3, "cannot read");
  refused("--expr 'score +'" + to, 1, "error");
  refused(mod + to + " --arch sm_12", 2, "no architecture");
  refused(mod + to + " --head-dim 64,12", 2, "head dim '12'");
  refused(mod + to + " --kernel deocde", 2, "did you mean decode");
  refused(mod + to + " --dtype fp32 --kernel decode", 2, "decode kernels take no f32");
  for (const char* kernel : {"forward", "forward --page-size 16", "backward"})
    refused(mod + to + " --fp8-kv --kernel " + kernel, 2, "k and v are e4m3");
  refused(mod + to + " --fp8-kv --arch sm_80", 2, "sm80 takes k and v of e4m3 on GPUs from sm_89 on");
  refused(mod + to + " --shape 1,2,3", 2, "B,H,HKV,Q_LEN,KV_LEN");
  refused(mod + to + " --gradients slopes", 2, "--gradients");
  refused(mod + " -o " + mod, 2, "would be lost");
  const Variable none("ATTNC_NO_COMPILE", "1"), off("ATTNC_CACHE_MODE", "off");
  refused(mod + to, 3, "ATTNC_NO_COMPILE");
}

NVRTC_TEST_CASE("a pack of a mod on a grid serves launches on the grid, and launches with tokens beside it") {
  const Folder folder;
  const std::string pack = folder / "kernels.attnc", mods = ATTNC_SOURCE_DIR "/dsl/mods/";
  for (const std::string& mod :
       {mods + "neighborhood2d.py", mods + "neighborhood2d.py --capture 'HEIGHT: int' --capture 'WIDTH: int'"}) {
    INFO(mod);
    const Outcome packed =
        attnc::test::attnc("pack " + mod + " --arch sm_90a --head-dim 64 --kernel forward -o " + pack);
    INFO(packed.err);
    REQUIRE(packed.exitCode == 0);
    const std::string sets = mod.find("capture") == std::string::npos ? "" : " --set HEIGHT=128 --set WIDTH=128";
    const Bare bare(pack);
    for (auto [shape, family] : {std::pair("1,1,1,16384,16384", "family grid"), {"1,1,1,16384,16500", "family sm90"}}) {
      const Outcome outcome =
          attnc::test::attnc("explain " + mod + sets + " --arch sm_90a --head-dim 64 --shape " + shape);
      INFO(outcome.err);
      CHECK(outcome.exitCode == 0);
      CHECK_THAT(outcome.out, Contains(family));
    }
  }
  { // by lists of boxes, and of blocks of tokens in a row
    const std::string crissCross = mods + "criss_cross.py";
    const Outcome packed = attnc::test::attnc("pack " + crissCross + " --arch sm_90a --head-dim 64 -o " + pack);
    INFO(packed.err);
    REQUIRE(packed.exitCode == 0);
    const Bare bare(pack);
    for (auto [shape, loop] :
         {std::pair("1,1,1,4096,4096", "block mask of boxes"), {"1,1,1,4096,4097", "block mask: lists"}}) {
      const Outcome outcome =
          attnc::test::attnc("explain " + crissCross + " --arch sm_90a --head-dim 64 --shape " + shape);
      INFO(outcome.err);
      CHECK(outcome.exitCode == 0);
      CHECK_THAT(outcome.out, Contains(loop));
    }
  }
  // Tokens after the image also lie outside the grid; a problem too short for the image has none on it.
  const std::string joint = mods + "joint_image.py";
  const Outcome packed =
      attnc::test::attnc("pack " + joint + " --arch sm_90a --head-dim 64 --kernel forward -o " + pack);
  INFO(packed.err);
  REQUIRE(packed.exitCode == 0);
  const Bare bare(pack);
  for (auto [shape, family] : {std::pair("1,1,1,4608,4608", "family grid"),
                               {"1,1,1,4700,4608", "family grid"},
                               {"1,1,1,4608,4608 --kernel-family sm90", "family sm90"},
                               {"1,1,1,4600,4608", "family sm90"}}) {
    const Outcome outcome = attnc::test::attnc("explain " + joint + " --arch sm_90a --head-dim 64 --shape " + shape);
    INFO(outcome.err);
    CHECK(outcome.exitCode == 0);
    CHECK_THAT(outcome.out, Contains(family));
  }
}
