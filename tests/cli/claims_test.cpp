// Claims of `attnc check`: answers, exit codes, JSON and errors.
#include "command.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace attnc;
using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kCausal = "check " ATTNC_SOURCE_DIR "/dsl/mods/causal.py ";

} // namespace

TEST_CASE("check tells a refuted claim with its example, and exits with 1") {
  const auto refuted = attnc::test::attnc(kCausal + "--prove 'kv_idx < q_idx'");
  CHECK(refuted.exitCode == 1);
  CHECK_THAT(refuted.out, Contains("refuted     kv_idx < q_idx, by examples") && Contains("\n            X\n"));
  const auto json = nlohmann::json::parse(attnc::test::attnc(kCausal + "--never 'kv_idx == q_idx' --json").out);
  CHECK(json["claims"][0]["answer"] == "refuted");
  CHECK(json["claims"][0]["example"]["extents"]["Q_LEN"] == 1);
}

TEST_CASE("check proves claims by intervals without a solver, and exits with 3 if one is undecided") {
  const auto proved =
      attnc::test::attnc(kCausal + "--every-row-lives --same-as " ATTNC_SOURCE_DIR "/dsl/mods/causal.py");
  CHECK(proved.exitCode == 0);
  CHECK_THAT(proved.out, Contains("proved      every row lives, by intervals"));
  const auto undecided = shell("ATTNC_Z3=/nowhere $ATTNC check --expr 'q_idx // 7 == kv_idx // 7' "
                               "--prove 'abs(q_idx - kv_idx) < 7'");
  CHECK(undecided.exitCode == 3);
  CHECK_THAT(undecided.out, Contains("undecided") && Contains("Z3 is not found") && Contains("libz3-4"));
}

TEST_CASE("check tells the lengths of an example under a cache") {
  const auto refuted = attnc::test::attnc("check --expr 'q_idx + KV_LEN - Q_LEN >= kv_idx' --prove 'kv_idx <= q_idx' "
                                          "--kv-lengths --assume 'Q_LEN <= KV_LEN'");
  CHECK(refuted.exitCode == 1);
  CHECK_THAT(refuted.out, Contains(", kv_length 3, q_offset 1: b 0, h 0, q_idx 1, kv_idx 2"));
  const std::string first = "check --expr 'kv_idx >= 0' --prove 'q_idx < Q_LEN' --json ";
  const auto json = nlohmann::json::parse(attnc::test::attnc(first + "--q-offset tensor").out)["claims"][0];
  CHECK(json["example"]["q_offset"] > 0);
  CHECK_FALSE(json["example"].contains("kv_length"));
  CHECK(attnc::test::attnc(first + "--q-offset none").exitCode == 0);
}

TEST_CASE("check refuses claims and assumptions that are none") {
  const auto noClaim = attnc::test::attnc(kCausal + "--prove 'score > 1'");
  CHECK(noClaim.exitCode == 2);
  CHECK_THAT(noClaim.err, Contains("`score` is not defined"));
  const auto noAssumption = attnc::test::attnc(kCausal + "--every-row-lives --assume 'doc grows'");
  CHECK(noAssumption.exitCode == 2);
  CHECK_THAT(noAssumption.err, Contains("an assumption is an expression, or \"NAME does not decrease\""));
  CHECK_THAT(attnc::test::attnc(kCausal + "--prove '' ").err, Contains("error"));
  const auto unknown = attnc::test::attnc(kCausal + "--every-row-lives --assume 'doc does not decrease'");
  CHECK(unknown.exitCode == 2);
  CHECK_THAT(unknown.err, Contains("the mod captures no tensor `doc`"));
  for (const char* option : {"--kv-lengths", "--q-offset none", "--assume True"})
    CHECK_THAT(attnc::test::attnc(kCausal + option).err, Contains("it needs a claim"));
  CHECK_THAT(attnc::test::attnc(kCausal + "--same-as /nowhere.py").err, Contains("cannot read '/nowhere.py'"));
}
