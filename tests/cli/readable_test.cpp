// What reaches a terminal or a log: names, words and lines of others steer neither.
#include "command.h"
#include "support/readable.h"
#include "variable.h"

#include <catch2/catch.hpp>

using attnc::readableLines;
using namespace attnc::test;

namespace {

Outcome readably(const std::string& arguments) {
  Outcome outcome = attnc::test::attnc(arguments);
  INFO(arguments << "\n" << outcome.out << outcome.err);
  CHECK(readableLines(outcome.out) == outcome.out);
  CHECK(readableLines(outcome.err) == outcome.err);
  return outcome;
}

} // namespace

TEST_CASE("names of files, words and lines of mods are escaped") {
  const Folder folder;
  const std::string path = folder / "we\x1b[2Jird\n\xff.py", quoted = "'" + path + "'";
  writeFile(path, "n: int\nassert n > 0, 'x\x1b[2J\\nattnc: error: forged'\n"
                  "def score_mod(score, b, h, q_idx, kv_idx):\n  return score + n # \x1b[2J \xc2\x9b\n");
  CHECK(readably("check " + quoted).exitCode == 0);
  const Outcome probed = readably("probe --score 1 --set n=2 --at 0,0,0,0 " + quoted);
  CHECK(probed.exitCode == 0);
  CHECK(probed.out.find("# \\x1b[2J \\x9b") != std::string::npos);
  const Outcome refused = readably("probe --score 1 --set n=-2 --at 0,0,0,0 " + quoted);
  CHECK(refused.exitCode == 3);
  CHECK(refused.err.find("\\x0aattnc: error: forged") != std::string::npos);
  CHECK(readably("check " + quoted + "x").exitCode != 0);
  writeFile(path, "score + unknown # \x1b[2J\n");
  CHECK(readably("check " + quoted).exitCode == 1);
  writeFile(path, "def mask_mod(b, h, q_idx, kv_idx):\n  return (q_idx < 4 # \x1b[2J\n          & kv_idx < 4)\n");
  CHECK(readably("check " + quoted).err.find("# \\x1b[2J & kv_idx") != std::string::npos);
}

TEST_CASE("words of the command line and of the environment are escaped") {
  for (const char* wrong :
       {"check '--\x1b[2J'", "check --expr score --pin '\x1b[2J=1'", "emit --stage cu --expr score --arch '\x1b[2J'",
        "emit --stage cu --expr score --arch sm_80 --tile '\x1b[2J'",
        "emit --stage cu --expr score --arch sm_80 --pin '\x1b[2J=1'"})
    CHECK(readably(wrong).exitCode == 2);
  const Outcome forged = readably("cache prune --older-than '1\nattnc: error: forged'");
  CHECK(forged.err.find("'1\\x0aattnc: error: forged'") != std::string::npos);
  const Outcome cut = readably("cache prune --older-than " + std::string(79, '1') + "éé");
  CHECK(cut.err.find("1é...'") != std::string::npos);
  const attnc::test::Variable nvrtc("ATTNC_NVRTC", "/x\x1b[2J");
  CHECK(readably("emit --stage ptx --no-cache --arch sm_80 --expr score").err.find("/x\\x1b[2J: ") !=
        std::string::npos);
  const attnc::test::Variable mode("ATTNC_CACHE_MODE", "\x1b[2J\n");
  for (const char* command : {"cache stat", "emit --stage cu --arch sm_80 --expr score"})
    CHECK(readably(command).err.find("ATTNC_CACHE_MODE is `\\x1b[2J\\x0a`") != std::string::npos);
}

TEST_CASE("nan is a value of a float, and is printed without a sign") {
  const Folder folder;
  writeFile(folder / "m.py", "x: float\ny: float\nscore + x % y\n");
  for (const char* values : {"--set x=nan --set y=3", "--set x=inf --set y=3", "--set x=-nan --set y=1"}) {
    const Outcome outcome = readably("probe --score 1 --at 0,0,0,0 " + std::string(values) + " " + (folder / "m.py"));
    CHECK(outcome.exitCode == 0);
    CHECK(outcome.out.find("score nan") != std::string::npos);
    CHECK(outcome.out.find("gives nan") != std::string::npos);
  }
}
