// Exit codes and messages, and emit and check.
#include "command.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>

using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";
const std::string kCausal = "--expr 'q_idx >= kv_idx' ";

std::vector<std::string> libraryMods() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kMods))
    if (entry.path().extension() == ".py") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  REQUIRE(paths.size() >= 12);
  return paths;
}

struct Row {
  std::string arguments, message;
};

/// All end with this exit code, nothing on stdout, and the message on stderr.
void expectFailures(int exitCode, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    INFO("attnc " << row.arguments);
    Outcome outcome = attnc::test::attnc(row.arguments);
    CHECK(outcome.exitCode == exitCode);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, Contains(row.message));
  }
}

} // namespace

TEST_CASE("help and version go to stdout and succeed") {
  Outcome version = attnc::test::attnc("--version");
  CHECK(version.exitCode == 0);
  CHECK_THAT(version.out, Catch::StartsWith("attnc 0."));
  for (const char* command : {"", "check ", "emit ", "explain ", "run "}) {
    Outcome help = attnc::test::attnc(std::string(command) + "--help");
    CHECK(help.exitCode == 0);
    CHECK_THAT(help.out, Contains("Example"));
    CHECK(help.err.empty());
  }
}

TEST_CASE("a wrong mod is exit code 1 with the place") {
  Folder folder;
  writeFile(folder / "m.py", "def mask_mod(b, h, q, kv):\n    return q >= kw\n");
  writeFile(folder / "m.ir", "score_mod -> %7\n");
  expectFailures(1, {{"check --expr 'q_idx >='", "<expr>:1:"},
                     {"check " + folder / "m.py", "m.py:2:"},
                     {"check " + folder / "m.ir", "m.ir:1:"},
                     {"emit --stage ir " + folder / "m.py", "m.py:2:"},
                     {"run --random 1,1,1,8,8,8 " + folder / "m.py", "m.py:2:"},
                     {"check " + kMods + "alibi.py -D SLOPE=3", "SLOPE"}});
}

TEST_CASE("wrong usage is exit code 2") {
  const std::string run = "run " + kCausal;
  expectFailures(2, {{"", "subcommand"},
                     {"frobnicate", "subcommand"},
                     {"check", "MOD"},
                     {"check " + kMods + "alibi.py --expr score", "MOD"},
                     {"check --frobnicate", "--frobnicate"},
                     {"check -D WINDOW " + kMods + "alibi.py", "NAME=VALUE"},
                     {"emit " + kCausal, "--stage"},
                     {"emit --stage sass " + kCausal, "sass"},
                     {"emit --stage cu --head-dim 7 " + kCausal, "multiple of 8"},
                     {"emit --stage cu --head-dim 264 " + kCausal, "multiple of 8"},
                     {"emit --stage cu --head-dim-v many " + kCausal, "multiple of 8"},
                     {"emit --stage cu --dtype fp64 " + kCausal, "fp64"},
                     {"emit --stage cu --kernel sideways " + kCausal, "sideways"},
                     {"emit --stage cu --kernel-family sm70 " + kCausal, "sm70"},
                     {"emit --stage cu --pin KV_LEN=long " + kCausal, "KV_LEN=long"},
                     {run, "--in FILE or --random"},
                     {run + "--in a --random 1,1,1,1,1,8", "--in FILE or --random"},
                     {run + "--in a --dtype bf16", "--random"},
                     {run + "--random 1,1,1", "numbers B,H,HKV,Q_LEN,KV_LEN,D"},
                     {run + "--random 1,2,3,4,5,a", "'a'"},
                     {run + "--random 1,2,3,4,5,-8", "'-8'"},
                     {run + "--random 1,3,2,4,5,8", "multiple of HKV"},
                     {run + "--random 1,3,0,4,5,8", "multiple of HKV"},
                     {run + "--random 1,1,1,4,5,0", "D must be"},
                     {run + "--random 9999999,1,1,9999999,1,128", "2^34"},
                     {run + "--random 1,1,1,8,8,8 --device tpu", "tpu"},
                     {run + "--random 1,1,1,8,8,8 --device cpu --verify", "--verify"},
                     {run + "--random 1,1,1,8,8,8 --set window", "NAME=VALUE"},
                     {run + "--random 1,1,1,8,8,8 --set window=3", "captures nothing"},
                     {"run " + kMods + "sliding_window.py --random 1,1,1,8,8,8 --set widow=3", "window: int"},
                     {"run " + kMods + "sliding_window.py --random 1,1,1,8,8,8 --set window=3.5", "integer"},
                     {"run " + kMods + "sliding_window.py --random 1,1,1,8,8,8 --set window=9999999999", "integer"},
                     {"run " + kMods + "softcap.py --random 1,1,1,8,8,8 --set cap=wide", "number"},
                     {"run " + kMods + "alibi.py --random 1,1,1,8,8,8 --set slopes=1", "tensor"},
                     {"run " + kMods + "alibi.py --random 1,1,1,8,8,8 --scale wide", "--scale"}});
}

TEST_CASE("an environment that does not serve is exit code 3") {
  expectFailures(3, {{"check /no/such/mod.py", "/no/such/mod.py"},
                     {"check /tmp", "directory"},
                     {"emit --stage ir " + kCausal + "-o /no/such/folder/a.ir", "/no/such/folder"},
                     {"emit --stage cu --pin LENGTH=8 " + kCausal, "LENGTH"},
                     {"emit --stage cu --arch sm_00 " + kCausal, "sm_00"}});
  Outcome full = attnc::test::attnc("emit --stage ir " + kCausal + "-o /dev/full");
  CHECK(full.exitCode == 3);
}

TEST_CASE("check shows what a mod captures and which gathers are clamped") {
  Outcome alibi = attnc::test::attnc("check " + kMods + "alibi.py");
  CHECK(alibi.exitCode == 0);
  CHECK(alibi.err.empty());
  for (const char* part : {"score_mod, mask_mod", "slopes: f32[H]", "1 head", "proven inside", "hash"})
    CHECK_THAT(alibi.out, Contains(part));
  Outcome document = attnc::test::attnc("check " + kMods + "document.py");
  CHECK_THAT(document.out, Contains("document_id (line 11): clamped: Q_LEN = 9, q_idx = 8 gives index 8, extent KV_LEN = 8"));
  CHECK_THAT(attnc::test::attnc("check " + kMods + "alibi.py -D CAUSAL=False").out, Contains("mask_mod: none"));
  Outcome plain = attnc::test::attnc("check --expr score");
  CHECK_THAT(plain.out, Contains("gathers     none"));
  CHECK(plain.out.find("lifted") == std::string::npos);
  Outcome masked = attnc::test::attnc("check --expr 'where(q_idx >= kv_idx, score, -inf)'");
  CHECK_THAT(masked.out,
             Contains("functions   score_mod, mask_mod") && Contains("score_mod masks: lifted into mask_mod"));
}

TEST_CASE("every library mod is checked and emitted as ast, ir and cu") {
  Folder folder;
  for (const std::string& path : libraryMods()) {
    INFO(path);
    Outcome check = attnc::test::attnc("check " + path);
    CHECK(check.exitCode == 0);
    Outcome ast = attnc::test::attnc("emit --stage ast " + path);
    CHECK(ast.exitCode == 0);
    CHECK_THAT(ast.out, Contains("_mod"));
    Outcome ir = attnc::test::attnc("emit --stage ir -o " + folder / "mod.ir " + path);
    CHECK(ir.exitCode == 0);
    CHECK(ir.out.empty());
    Outcome again = attnc::test::attnc("emit --stage ir " + folder / "mod.ir");
    CHECK(again.exitCode == 0);
    CHECK(again.out == readFile(folder / "mod.ir"));
    Outcome source = attnc::test::attnc("emit --stage cu --arch sm_80 --head-dim 64 " + path);
    CHECK(source.exitCode == 0);
    CHECK_THAT(source.out, Contains("__global__"));
  }
  CHECK(folder.files() == 1);
}

TEST_CASE("options of emit reach the source") {
  auto source = [](const std::string& options) {
    Outcome outcome = attnc::test::attnc("emit --stage cu " + kCausal + options);
    INFO(outcome.err);
    CHECK(outcome.exitCode == 0);
    return outcome.out;
  };
  std::string plain = source("--arch sm_80");
  for (const char* options : {"--arch sm_80 --dtype fp16", "--arch sm_80 --dtype fp32", "--arch sm_80 --head-dim 64",
                              "--arch sm_80 --head-dim-v 64", "--arch sm_80 --block-sparse",
                              "--arch sm_80 --kernel-family naive", "--arch sm_80 --kernel block-mask"}) {
    INFO(options);
    CHECK(source(options) != plain);
  }
  CHECK(source("--arch sm_80 --dtype bf16 --head-dim 128 --kernel forward --kernel-family auto") == plain);
  const std::string pinned = "emit --stage cu --arch sm_80 --expr 'kv_idx < KV_LEN - 7' ";
  CHECK_THAT(attnc::test::attnc(pinned + "--pin KV_LEN=4103").out, Contains("4096") || Contains("4095"));
}

TEST_CASE("an ast cannot be emitted from IR") {
  Folder folder;
  REQUIRE(attnc::test::attnc("emit --stage ir " + kCausal + "-o " + folder / "m.ir").exitCode == 0);
  Outcome outcome = attnc::test::attnc("emit --stage ast " + folder / "m.ir");
  CHECK(outcome.exitCode == 2);
  CHECK(outcome.out.empty());
}
