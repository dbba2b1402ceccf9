// `attnc doctor`, `attnc new` and `attnc gallery`.
#include "command.h"
#include "variable.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <sstream>

using namespace attnc::test;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";

/// A machine without a GPU, with a cache of its own.
struct Machine {
  Folder folder;
  Variable cache{"ATTNC_CACHE_DIR", (folder / "cache").c_str()}, gpus{"CUDA_VISIBLE_DEVICES", ""},
      mode{"ATTNC_CACHE_MODE", nullptr}, packs{"ATTNC_PACK", nullptr}, defaultPack{"ATTNC_DEFAULT_PACK", "0"};
};

/// Whether a finding of doctor has a text.
bool finds(const Json& json, const std::string& kind, const std::string& text) {
  for (const Json& finding : json["findings"])
    if (finding["kind"] == kind && finding["what"].get<std::string>().find(text) != std::string::npos) return true;
  return false;
}

Json doctor() { return Json::parse(attnc::test::attnc("doctor --json").out); }

} // namespace

TEST_CASE("doctor tells of the machine, and what will be slow or not work") {
  const Machine machine;
  const Outcome text = attnc::test::attnc("doctor");
  const bool hasNvrtc = text.out.find("\nNVRTC       none") == std::string::npos;
  CHECK(text.exitCode == (hasNvrtc ? 0 : 3));
  for (const char* part : {"attnc       ", "\nGPU         none: ", "\nNVRTC       ", "\nLLVM        ", "\ncache       ",
                           "ATTNC_CACHE_DIR=", "not made yet", "\nresult      "})
    CHECK_THAT(text.out, Contains(part));
  Json json = doctor();
  CHECK(json["ok"] == hasNvrtc);
  CHECK(json["gpus"].empty());
  CHECK(json["cache"]["exists"] == false);
  CHECK(json["cache"]["writable"] == true);
  CHECK(json["variables"]["ATTNC_CACHE_DIR"] == machine.folder / "cache");
  CHECK(finds(json, "note", "there is no GPU"));
  CHECK_FALSE(finds(json, "slow", "cache"));
  {
    const Variable readOnly("ATTNC_CACHE_MODE", "ro");
    CHECK(finds(doctor(), "slow", "ATTNC_CACHE_MODE is ro"));
  }
  std::filesystem::create_directory(machine.folder / "cache");
  std::filesystem::permissions(machine.folder / "cache", std::filesystem::perms(0777));
  CHECK(finds(doctor(), "slow", "is not used: it is writable by others"));
  std::filesystem::permissions(machine.folder / "cache", std::filesystem::perms(0700));
  CHECK(doctor()["cache"]["used"] == true);
  const Variable none("ATTNC_NVRTC", "/no/such/libnvrtc.so.13"), packs("ATTNC_PACK", "/no/such/pack");
  json = doctor();
  CHECK(json["ok"] == false);
  CHECK(finds(json, "broken", "nothing can be compiled"));
  CHECK(finds(json, "broken", "/no/such/pack"));
  CHECK(attnc::test::attnc("doctor").exitCode == 3);
}

TEST_CASE("doctor tells of the default pack") {
  const Machine machine;
  CHECK_THAT(attnc::test::attnc("doctor").out, Contains("\ndefault     none: "));
  CHECK_FALSE(doctor().contains("defaultPack"));
  const std::string path = machine.folder / "kernels.attncpack";
  const Variable named("ATTNC_DEFAULT_PACK", path.c_str());
  CHECK(finds(doctor(), "slow", "cannot open the pack " + path));
  if (noNvrtc()) return;
  printed("pack --expr 'q_idx >= kv_idx' --head-dim 64 --kernel decode -o " + path);
  const Json json = doctor();
  CHECK(json["defaultPack"]["file"] == path);
  CHECK(json["defaultPack"]["kernels"] > 0);
  CHECK_FALSE(json["defaultPack"].contains("error"));
  CHECK_THAT(attnc::test::attnc("doctor").out, Contains("\ndefault     " + path + ": "));
  CHECK_THAT(printed("cache verify"), Contains(path + ": "));

  // The pack serves the mod under other names, with neither NVRTC nor the cache.
  const std::string mine = machine.folder / "mine.py";
  writeFile(mine, "def mask_mod(batch, head, i, j):\n    return j <= i  # mine\n");
  const Variable forbidden("ATTNC_NO_COMPILE", "1"), off("ATTNC_CACHE_MODE", "off");
  printed("emit " + mine + " --head-dim 64 --kernel decode --stage cubin -o " + machine.folder / "mine.cubin");
  writeFile(path, readFile(path).substr(0, 1000));
  CHECK(finds(doctor(), "slow", "is damaged"));
  CHECK(attnc::test::attnc("emit " + mine + " --head-dim 64 --kernel decode --stage cubin -o -").exitCode == 3);
}

TEST_CASE("new writes a mod and its tensors, and the commands that it prints work") {
  const Folder folder;
  const Json help = Json::parse(printed("new --json " + folder / "first"));
  CHECK(help["next"].size() == 3);
  for (const std::string kind : {"causal", "window", "bias", "alibi", "document", "prefix", "softcap"}) {
    INFO(kind);
    const std::string name = folder / kind;
    const std::string told = printed("new " + name + " --kind " + kind);
    CHECK_THAT(told, Contains(name + ".py") && Contains(name + ".safetensors"));
    size_t count = 0;
    std::istringstream lines(told);
    for (std::string line; std::getline(lines, line);) {
      const size_t at = line.find("attnc ", 12);
      if (line.rfind("wrote", 0) == 0 || at == std::string::npos) continue;
      const bool runs = line.find("attnc run") != std::string::npos;
      if (runs && kind != "window") continue; // the reference takes a while
      const Outcome outcome = attnc::test::attnc(line.substr(at + 6) + (runs ? " --device cpu" : ""));
      INFO(line << "\n" << outcome.err);
      CHECK(outcome.exitCode == 0);
      ++count;
    }
    CHECK(count == (kind == "window" ? 3 : 2));
    const std::string before = readFile(name + ".py");
    CHECK_THAT(before, Contains("\n# "));
    const Outcome again = attnc::test::attnc("new " + name + ".py --kind " + kind);
    CHECK(again.exitCode == 3);
    CHECK_THAT(again.err, Contains("is there already"));
    CHECK(readFile(name + ".py") == before);
  }
  CHECK(attnc::test::attnc("new").exitCode == 2);
  CHECK(attnc::test::attnc("new x --kind sideways").exitCode == 2);
}

TEST_CASE("gallery lists the mods of the library, and gives one") {
  const std::string list = printed("gallery");
  const Json json = Json::parse(printed("gallery --json"));
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kMods)) {
    if (entry.path().extension() != ".py") continue;
    ++count;
    CHECK_THAT("\n" + list, Contains("\n" + entry.path().stem().string() + " "));
  }
  CHECK(json["mods"].size() == count);
  for (const Json& mod : json["mods"]) {
    INFO(mod);
    CHECK(mod["title"].get<std::string>().size() > 15);
    CHECK_THAT(mod["title"].get<std::string>(), !Contains("http") && !Contains("et al"));
  }
  CHECK_THAT(
      list,
      Contains("ALiBi: a penalty linear in the distance, with one slope a head; https://arxiv.org/abs/2108.12409"));
  CHECK(printed("gallery alibi") == readFile(kMods + "alibi.py"));
  const Folder folder;
  CHECK(printed("gallery tree -o " + folder / "t.py").empty());
  CHECK(readFile(folder / "t.py") == readFile(kMods + "tree.py"));
  CHECK(attnc::test::attnc("gallery tree -o " + folder / "t.py").exitCode == 3);
  CHECK_THAT(attnc::test::attnc("gallery alibbi").err, Contains("did you mean alibi?"));
}
