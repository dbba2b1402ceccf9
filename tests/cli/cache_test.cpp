// The cache of kernels, and the environment it depends on, as users of the command meet them.
#include "command.h"
#include "variable.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>

using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kEmit = "emit --expr 'q_idx >= kv_idx' --stage cubin --arch sm_80 --head-dim 64";

} // namespace

bool attnc::test::noNvrtc() {
  const Variable off("ATTNC_CACHE_MODE", "off");
  const Outcome outcome = attnc::test::attnc(kEmit);
  if (outcome.exitCode == 0) return false;
  REQUIRE_THAT(outcome.err, Contains("NVRTC"));
  WARN("SKIPPED: NVRTC was not found");
  return true;
}

TEST_CASE("NV_NVVM_VERSION keeps kernels apart, and a value that NVRTC refuses is the environment's fault") {
  const Variable unset("NV_NVVM_VERSION", nullptr);
  if (noNvrtc()) return;
  const Folder folder;
  const Variable cache("ATTNC_CACHE_DIR", (folder / "cache").c_str()), log("ATTNC_LOG", (folder / "log").c_str());
  const auto emitWith = [&](const char* version) {
    const Variable set("NV_NVVM_VERSION", version);
    const Outcome outcome = attnc::test::attnc(kEmit);
    REQUIRE(outcome.exitCode == 0);
    return outcome.out;
  };
  const std::string latest = emitWith("nvvm-latest"), plain = emitWith(nullptr);
  CHECK((latest != plain)); // not to be printed
  const std::string compiles = readFile(folder / "log");
  CHECK((emitWith("nvvm-latest") == latest));
  CHECK((emitWith(nullptr) == plain));
  CHECK(readFile(folder / "log") == compiles); // both from the disk

  const Variable nonsense("NV_NVVM_VERSION", "nonsense");
  for (int i = 0; i < 2; ++i) {
    const Outcome refused = attnc::test::attnc(kEmit);
    CHECK(refused.exitCode == 3);
    CHECK(refused.out.size() == 0);
    CHECK_THAT(refused.err, Contains("NV_NVVM_VERSION"));
    CHECK_THAT(refused.err, !Contains("bug"));
  }
}

NVRTC_TEST_CASE("a cache that cannot be used is told once on stderr, and the command goes on") {
  const Folder folder;
  std::filesystem::create_directory(folder / "cache");
  const Variable cache("ATTNC_CACHE_DIR", (folder / "cache").c_str());
  const auto errorsWith = [](const char* name, const std::string& value, const std::string& options = "") {
    const Variable variable(name, value.c_str());
    const Outcome outcome = attnc::test::attnc(kEmit + options);
    CHECK(outcome.exitCode == 0);
    CHECK(outcome.out.size() > 1000);
    return outcome.err;
  };
  CHECK(errorsWith("ATTNC_CACHE_MODE", "rw") == "");
  CHECK(errorsWith("ATTNC_CACHE_MODE", "readonly") ==
        "attnc: warning: ATTNC_CACHE_MODE is `readonly`, none of rw, ro, off; rw is used\n");
  CHECK(errorsWith("ATTNC_CACHE_MAX_BYTES", "1 GB") ==
        "attnc: warning: ATTNC_CACHE_MAX_BYTES is `1 GB`, not a size such as 500M or 2G; 1G is used\n");
  CHECK(errorsWith("ATTNC_CACHE_MODE", "readonly", " --no-cache") == "");

  std::filesystem::permissions(folder / "cache", std::filesystem::perms::all);
  const std::string unsafe = errorsWith("ATTNC_LOG", folder / "log");
  CHECK(unsafe == "attnc: warning: the kernel cache " + (folder / "cache") +
                      " is not used: it is writable by others (mode 0777); chmod go-w makes it private\n");
  CHECK_THAT(readFile(folder / "log"), Contains("warning: the kernel cache"));
}

NVRTC_TEST_CASE("what is cached is listed, verified, pruned and cleared") {
  const Folder folder;
  const Variable cache("ATTNC_CACHE_DIR", (folder / "cache").c_str());
  const auto run = [](const std::string& arguments, int exitCode = 0) {
    const Outcome outcome = attnc::test::attnc("cache " + arguments);
    INFO(arguments << ": " << outcome.err);
    CHECK(outcome.exitCode == exitCode);
    return outcome.out;
  };
  const auto rows = [&](const std::string& arguments) { return nlohmann::json::parse(run(arguments + " --json")); };
  CHECK(run("path") == folder / "cache\n");
  CHECK(run("ls") == "");
  CHECK(rows("stat")["kernels"] == 0);
  CHECK_THAT(run("clear"), Contains("removed 0 kernels"));
  CHECK_FALSE(std::filesystem::exists(folder / "cache")); // looking makes nothing

  for (const char* more : {"", " --kernel block-mask", " --kernel decode --dtype fp16 --kv-lengths"})
    REQUIRE(attnc::test::attnc(kEmit + more).exitCode == 0);
  const auto listed = rows("ls")["kernels"];
  REQUIRE(listed.size() == 3);
  for (const auto& row : listed) {
    CHECK(row["arch"] == "sm_80");
    CHECK(row["mod"].get<std::string>().size() == 12);
    CHECK(row["key"].get<std::string>().size() == 64);
    CHECK(row["bytes"] == std::filesystem::file_size(folder / "cache/" + row["file"].get<std::string>()));
    CHECK_THAT(row["lastUsed"].get<std::string>(), Catch::EndsWith("Z"));
    if (row["kind"] == "block-mask") continue;
    CHECK(row["headDim"] == 64);
    CHECK(row["dtype"] == (row["kind"] == "decode" ? "f16" : "bf16"));
    if (row["kind"] == "decode") CHECK(row["with"] == nlohmann::json({"rows-16", "lengths", "offsets-from-lengths"}));
  }
  CHECK_THAT(run("ls"), Contains("last used") && Contains("block_mask.cu"));
  CHECK_THAT(attnc::test::attnc("check --expr 'q_idx >= kv_idx'").out, Contains(listed[0]["mod"].get<std::string>()));
  CHECK_THAT(run("stat"), Contains("3 kernels, ") && Contains("sm_80 decode: 1 kernel"));
  CHECK(run("verify") == folder / "cache: 4 of 4 files sound\n");

  const std::string damaged = listed[0]["file"];
  writeFile(folder / "cache/" + damaged, readFile(folder / "cache/" + damaged).substr(1));
  CHECK_THAT(run("verify", 3), Contains(damaged + ": damaged: ") && Contains("3 of 4 files sound"));
  CHECK(nlohmann::json::parse(run("verify --json", 3))["places"][0]["damaged"][0]["file"] == damaged);

  CHECK(rows("prune --older-than 1h")["removed"].empty());
  CHECK(rows("prune")["removed"].empty()); // far below the cap
  CHECK(rows("clear --dry-run")["removed"].size() == 3);
  CHECK(rows("ls")["kernels"].size() == 3);
  const auto pruned = rows("prune --max-size 150K");
  CHECK(pruned["removed"].size() + rows("ls")["kernels"].size() == 3);
  CHECK(pruned["removed"].size() > 0);
  CHECK(pruned["bytes"] <= 150 * 1024);
  CHECK_THAT(run("clear"), Contains("removed ") && Contains("; 0 kernels, 0 B remain"));
  CHECK(rows("stat")["compilers"] == 0);
  CHECK(attnc::test::attnc(kEmit).exitCode == 0);
  CHECK(rows("ls")["kernels"].size() == 1);

  const Variable readOnly("ATTNC_CACHE_MODE", "ro");
  run("clear", 3);
  CHECK(rows("ls")["kernels"].size() == 1);
}

TEST_CASE("a cache that cannot be looked at, and wrong words, are told") {
  const Folder folder;
  std::filesystem::create_directory(folder / "cache");
  std::filesystem::permissions(folder / "cache", std::filesystem::perms::all);
  const auto refused = [](const std::string& arguments, int exitCode, const std::string& part) {
    attnc::test::checkRefused("cache" + arguments, exitCode, part);
  };
  {
    const Variable cache("ATTNC_CACHE_DIR", (folder / "cache").c_str());
    for (const char* command : {" ls", " stat", " verify", " clear", " prune"})
      refused(command, 3, "it is writable by others (mode 0777)");
    refused("", 2, "there are path, ls, stat, verify, prune, clear");
    refused(" lst", 2, "did you mean ls?");
    refused(" prune --max-size 5X", 2, "'5X' is no size\nhint: a number with K, M or G: 500M, 2G");
    refused(" prune --older-than 3", 2, "'3' is no time\nhint: a number with s, m, h, d or w: 12h, 30d, 2w");
    refused(" clear all", 2, "unexpected argument 'all'");
    refused(" ls none.attnc", 3, "cannot open the pack none.attnc");
  }
  const Variable cache("ATTNC_CACHE_DIR", nullptr), xdg("XDG_CACHE_HOME", nullptr), home("HOME", nullptr);
  refused(" path", 3, "names a directory");
}
