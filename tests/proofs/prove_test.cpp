// Claims about masks: what intervals, examples and Z3 decide.
#include "attnc/prove.h"
#include "helpers/take.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <filesystem>

using namespace attnc;

namespace {

using Answer = Proof::Answer;

Mod maskOf(const std::string& text, const std::vector<std::string>& captures = {}) {
  return take(Mod::parse(text, {.captures = captures}));
}

Proof proofOf(const Mod& mod, const std::string& property, const ProofOptions& options = {},
              Claim::Kind kind = Claim::Kind::Holds) {
  const auto other =
      take(Mod::parse("", {.mods = {"lambda b, h, q_idx, kv_idx: " + property}, .available = mod.captures()}));
  return take(prove(mod, {kind, other}, options));
}

Proof rowsOf(const Mod& mod, const ProofOptions& options = {}) {
  return take(prove(mod, {Claim::Kind::EveryRowLives, {}}, options));
}

/// Whether Z3 is found; without it, some claims are undecided.
bool hasSolver() {
  return proofOf(maskOf("q_idx // 7 == kv_idx // 7"), "abs(q_idx - kv_idx) < 7").answer == Answer::Proved;
}

#define NEED_SOLVER()                                                                                                  \
  if (!hasSolver()) {                                                                                                  \
    WARN("SKIPPED: Z3 was not found");                                                                                 \
    return;                                                                                                            \
  }

const char* const kDocuments = "doc: i32[KV_LEN]\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                               "    return (q_idx >= kv_idx) & (doc[q_idx] == doc[kv_idx])\n";

} // namespace

TEST_CASE("claims about masks are proved") {
  NEED_SOLVER();
  const Mod documents = maskOf(kDocuments);
  CHECK(proofOf(documents, "kv_idx <= q_idx").answer == Answer::Proved);
  CHECK(proofOf(documents, "doc[q_idx] != doc[kv_idx]", {}, Claim::Kind::Never).answer == Answer::Proved);
  CHECK(rowsOf(documents).answer == Answer::Proved);
  const Mod window = maskOf("(q_idx >= kv_idx) & (q_idx - kv_idx < w)", {"w: int"});
  CHECK(proofOf(window, "q_idx - kv_idx < w").answer == Answer::Proved);
  CHECK(proofOf(window, "q_idx - kv_idx <= 2**24").answer == Answer::Proved);
  CHECK(rowsOf(window, {.assumptions = {maskOf("(w >= 1) & (Q_LEN <= KV_LEN)", {"w: int"})}}).answer == Answer::Proved);
}

TEST_CASE("claims that do not hold have an example, the smallest first") {
  const Proof strict = proofOf(maskOf("q_idx >= kv_idx"), "kv_idx < q_idx");
  CHECK(strict.answer == Answer::Refuted);
  CHECK(strict.problem == ProblemShape{1, 1, 1, 1, 1});
  CHECK(strict.picture == "X\n");

  // Padding that sees itself, documents that leak, a window off by one, the wrong corner under a cache.
  const Mod padded = maskOf("(q_idx < n[b]) == (kv_idx < n[b])", {"n: i32[B]"});
  const Proof padding = proofOf(padded, "kv_idx < n[b]");
  CHECK(padding.answer == Answer::Refuted);
  REQUIRE(padding.captures.size() == 1);
  CHECK(padding.captures[0].name == "n");
  CHECK(padding.kvIdx >= std::stoi(padding.captures[0].value));

  CHECK(proofOf(maskOf("(q_idx >= kv_idx) & (doc[q_idx] >= 0)", {"doc: i32[KV_LEN]"}), "doc[q_idx] == doc[kv_idx]")
            .answer == Answer::Refuted);
  CHECK(proofOf(maskOf("(q_idx >= kv_idx) & (q_idx - kv_idx <= 4)"), "q_idx - kv_idx < 4").answer == Answer::Refuted);
  const Proof cache =
      take(prove(maskOf("q_idx >= kv_idx"), {Claim::Kind::SameMask, maskOf("q_idx + KV_LEN - Q_LEN >= kv_idx")}));
  CHECK(cache.answer == Answer::Refuted);
  CHECK(cache.problem.qLen != cache.problem.kvLen);
}

TEST_CASE("examples name the lines of the mod that decide") {
  const Mod sinks = maskOf("doc: i32[KV_LEN]\ndef mask_mod(b, h, q_idx, kv_idx):\n    causal = q_idx >= kv_idx\n"
                           "    same = doc[q_idx] == doc[kv_idx]\n    sink = kv_idx < 4\n"
                           "    return causal & (same | sink)\n");
  const auto numbers = [](const Proof& proof) {
    std::vector<int64_t> all;
    for (const TextLine& line : proof.deciding) all.push_back(line.number);
    return all;
  };
  const Proof leak = proofOf(sinks, "doc[q_idx] != doc[kv_idx]", {}, Claim::Kind::Never);
  CHECK(numbers(leak) == std::vector<int64_t>{3, 5});
  REQUIRE(leak.deciding.size() == 2);
  CHECK(leak.deciding[1].text == "sink = kv_idx < 4");
  const Proof unlike = take(prove(sinks, {Claim::Kind::SameMask, maskOf("q_idx - kv_idx < 2")}));
  REQUIRE(unlike.answer == Answer::Refuted);
  CHECK(numbers(unlike) == (unlike.qIdx < unlike.kvIdx ? std::vector<int64_t>{3} : std::vector<int64_t>{3, 4}));
  const Proof dead = rowsOf(
      maskOf("def mask_mod(b, h, q_idx, kv_idx):\n    late = q_idx >= 2\n    return late & (q_idx >= kv_idx)\n"));
  CHECK(numbers(dead) == std::vector<int64_t>{2});
}

TEST_CASE("claims hold under a cache, where queries stand at positions") {
  const ProofOptions cache{.kvLengths = true}, anywhere{.kvLengths = true, .offsets = QueryOffsets::Tensor},
      none{.kvLengths = true, .offsets = QueryOffsets::None};
  const Mod causal = maskOf("q_idx >= kv_idx"), corner = maskOf("q_idx + KV_LEN - Q_LEN >= kv_idx");
  for (const ProofOptions& launch : {cache, anywhere, none})
    CHECK(proofOf(causal, "kv_idx <= q_idx", launch).by == "intervals");

  // The corner of the last query is counted twice.
  const ProofOptions withRoom{.assumptions = {maskOf("Q_LEN <= KV_LEN")}, .kvLengths = true};
  CHECK(proofOf(corner, "kv_idx <= q_idx + KV_LEN - Q_LEN").answer == Answer::Proved);
  const Proof ahead = proofOf(corner, "kv_idx <= q_idx", withRoom);
  REQUIRE(ahead.answer == Answer::Refuted);
  CHECK(ahead.kvLength.value() <= ahead.problem.kvLen);
  CHECK(ahead.qOffset.value() == *ahead.kvLength - ahead.problem.qLen);
  CHECK(ahead.kvIdx > ahead.qIdx);
  CHECK(ahead.kvIdx < *ahead.kvLength);
  CHECK(ahead.captures.empty()); // the launch's own tensors are none
  CHECK(ahead.picture.find('X') == size_t((ahead.qIdx - *ahead.qOffset) * (ahead.problem.kvLen + 1) + ahead.kvIdx));
  CHECK_FALSE(proofOf(causal, "kv_idx < q_idx").kvLength);

  // Keys behind the length do not live, and queries stand before it.
  const Proof behind = rowsOf(maskOf("kv_idx >= 1"), {.assumptions = {maskOf("KV_LEN > 1")}, .kvLengths = true});
  CHECK(behind.answer == Answer::Refuted);
  CHECK(behind.kvLength == 1);
  CHECK(rowsOf(maskOf("q_idx < Q_LEN"), cache).answer == Answer::Refuted); // a position, not a row
  CHECK(rowsOf(maskOf("q_idx <= kv_idx"), none).answer == Answer::Refuted);
  const Mod rows = maskOf("(q_idx >= kv_idx) | flag[q_idx]", {"flag: bool[Q_LEN]"});
  CHECK(proofOf(rows, "(kv_idx <= q_idx) | flag[0]", cache).answer == Answer::Refuted); // an entry for each row

  NEED_SOLVER();
  CHECK(proofOf(maskOf("True"), "q_idx < KV_LEN", anywhere).answer == Answer::Proved);
  CHECK(proofOf(maskOf("True"), "kv_idx <= q_idx", cache).answer == Answer::Refuted);
  CHECK(proofOf(maskOf("True"), "kv_idx <= q_idx", {.assumptions = {maskOf("Q_LEN == 1")}, .kvLengths = true}).answer ==
        Answer::Proved); // one query, at the last key
  CHECK(proofOf(maskOf("True"), "kv_idx <= q_idx",
                {.assumptions = {maskOf("Q_LEN == 1")}, .kvLengths = true, .offsets = QueryOffsets::Tensor})
            .answer == Answer::Refuted);
  CHECK(rowsOf(causal, cache).answer == Answer::Proved);
  CHECK(rowsOf(causal, anywhere).answer == Answer::Proved);
  CHECK(rowsOf(maskOf("q_idx <= kv_idx"), anywhere).answer == Answer::Proved);
  CHECK(rowsOf(maskOf("(q_idx >= kv_idx) & (q_idx - kv_idx < 4)"), cache).answer == Answer::Proved);
  const auto same = [&](const ProofOptions& launch) {
    return take(prove(causal, {Claim::Kind::SameMask, corner}, launch)).answer;
  };
  CHECK(same({.assumptions = {maskOf("Q_LEN == KV_LEN")}, .kvLengths = true}) == Answer::Proved);
  CHECK(same(withRoom) == Answer::Refuted);
  const Proof far = proofOf(causal, "q_idx - kv_idx < 5000", anywhere);
  REQUIRE(far.answer == Answer::Refuted);
  CHECK(far.qIdx - far.kvIdx >= 5000);
  CHECK(far.qIdx >= *far.qOffset);
  CHECK(far.qIdx < std::min(*far.qOffset + far.problem.qLen, *far.kvLength));
}

TEST_CASE("rows without a live score are found") {
  const Proof dead = rowsOf(maskOf("(q_idx >= kv_idx) & (q_idx - kv_idx < w)", {"w: int"}));
  CHECK(dead.answer == Answer::Refuted);
  CHECK(dead.captures.size() == 1);
  CHECK(rowsOf(maskOf("kv_idx > q_idx")).answer == Answer::Refuted);
  NEED_SOLVER();
  CHECK(rowsOf(maskOf("(q_idx + kv_idx) % 2 == 0"), {.assumptions = {maskOf("KV_LEN >= 2")}}).answer !=
        Answer::Refuted);
}

TEST_CASE("Z3 finds what few elements of large problems show") {
  NEED_SOLVER();
  const Proof far = proofOf(maskOf("q_idx >= kv_idx"), "q_idx - kv_idx < 5000");
  CHECK(far.answer == Answer::Refuted);
  CHECK(far.qIdx - far.kvIdx >= 5000);
  const size_t row = size_t(far.qIdx - far.pictureQIdx), column = size_t(far.kvIdx - far.pictureKvIdx);
  CHECK(far.picture.size() == 32 * 33);
  CHECK(far.picture.find('X') == row * 33 + column);
}

TEST_CASE("captures may be assumed not to decrease") {
  NEED_SOLVER();
  const Mod block = maskOf("(q_idx <= kv_idx) & (doc[q_idx] >= doc[kv_idx])", {"doc: i32[KV_LEN]"});
  CHECK(proofOf(block, "doc[q_idx] == doc[kv_idx]").answer == Answer::Refuted);
  CHECK(proofOf(block, "doc[q_idx] == doc[kv_idx]", {.nondecreasing = {"doc"}}).answer == Answer::Proved);
}

TEST_CASE("mods are compared by masks and scores") {
  NEED_SOLVER();
  const auto compared = [](const char* a, const char* b, Claim::Kind kind) {
    return take(prove(maskOf(a), {kind, maskOf(b)})).answer;
  };
  CHECK(compared("q_idx >= kv_idx", "not (kv_idx > q_idx)", Claim::Kind::SameMask) == Answer::Proved);
  CHECK(compared("(q_idx >= kv_idx) & (kv_idx >= 0)", "kv_idx <= q_idx", Claim::Kind::SameMask) == Answer::Proved);
  CHECK(compared("score * 2", "score + score", Claim::Kind::Same) == Answer::Proved);
  CHECK(compared("score * 2", "score * 3", Claim::Kind::Same) == Answer::Refuted);
  CHECK(compared("torch.exp(score) + 1", "1 + torch.exp(score)", Claim::Kind::Same) ==
        Answer::Proved); // equal functions
}

TEST_CASE("claims that are wrong are refused, and a missing solver is told") {
  const Mod causal = maskOf("q_idx >= kv_idx");
  CHECK(environmentErrorOf(prove(causal, {Claim::Kind::Holds, {}})).find("no other mod") != std::string::npos);
  const Mod ints = maskOf("doc[q_idx] == doc[kv_idx]", {"doc: i32[KV_LEN]"}),
            floats = maskOf("doc[q_idx] > 0", {"doc: f32[KV_LEN]"});
  CHECK(environmentErrorOf(prove(ints, {Claim::Kind::SameMask, floats})).find("`doc` has two declarations") !=
        std::string::npos);
  const Proof without =
      take(prove(maskOf("q_idx // 7 == kv_idx // 7"), {Claim::Kind::Holds, maskOf("abs(q_idx - kv_idx) < 7")},
                 {.solver = "/nowhere/libz3.so"}));
  CHECK(without.answer == Answer::Undecided);
  CHECK_THAT(without.why, Catch::Contains("Z3 is not found") && Catch::Contains("libz3-4"));
}

TEST_CASE("examples meet assumptions and conditions, and say what the launch has") {
  const Mod flags = maskOf("flags[kv_idx]", {"flags: bool[KV_LEN]"});
  CHECK(proofOf(flags, "flags[KV_LEN - 1]", {.nondecreasing = {"flags"}}).answer != Answer::Refuted);
  const Proof wide = proofOf(take(Mod::parse("window: int\nassert window >= 2\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                                             "    return (q_idx >= kv_idx) & (q_idx - kv_idx < window)\n")),
                             "q_idx - kv_idx < 2 - window");
  REQUIRE(wide.answer == Answer::Refuted);
  REQUIRE(wide.captures.size() == 1);
  CHECK(std::stoi(wide.captures[0].value) >= 2);
  CHECK(proofOf(maskOf("h >= 0"), "HKV < 2").answer == Answer::Refuted);
  NEED_SOLVER();
  CHECK(proofOf(maskOf("q_idx >= 0"), "HKV < 3").answer == Answer::Refuted);
  CHECK(proofOf(maskOf("x[0] >= 0", {"x: u8[N]"}), "x.shape[0] <= 16777216").answer != Answer::Proved);
  const Proof odd = proofOf(maskOf("k[kv_idx] > 2**53", {"k: i64[KV_LEN]"}), "k[kv_idx] % 2 == 0");
  REQUIRE(odd.answer == Answer::Refuted);
  CHECK(std::stoll(odd.captures[0].value) % 2 == 1);
}

TEST_CASE("assumptions that nothing meets prove nothing") {
  NEED_SOLVER();
  const Mod window = maskOf("(q_idx >= kv_idx) & (q_idx - kv_idx < w)", {"w: int"});
  const std::vector<Mod> none = {maskOf("w < 0", {"w: int"}), maskOf("w > 0", {"w: int"})};
  for (const Proof& proof :
       {proofOf(window, "kv_idx > q_idx", {.assumptions = none}), rowsOf(window, {.assumptions = none})}) {
    CHECK(proof.answer == Answer::Undecided);
    CHECK_THAT(proof.why, Catch::Contains("the assumptions"));
  }
}

TEST_CASE("without a solver, nothing is proved under assumptions that no example meets") {
  const Proof proof =
      rowsOf(maskOf("q_idx >= kv_idx"), {.assumptions = {maskOf("KV_LEN > 100")}, .solver = "/nowhere/libz3.so"});
  CHECK(proof.answer == Answer::Undecided);
  CHECK_THAT(proof.why, Catch::Contains("assumptions"));
}

TEST_CASE("a capture may be called score") {
  const Mod mod = take(
      Mod::parse("score_: int\nscore: int\ndef mask_mod(b, h, q_idx, kv_idx):\n    return kv_idx <= score + score_\n"
                 "def score_mod(s, b, h, q_idx, kv_idx):\n    return s * 2\n"));
  CHECK(take(prove(mod, {Claim::Kind::Same, mod})).answer == Answer::Proved);
}

TEST_CASE("equal weights are proved to be the same, and a weight is no score") {
  const auto weights = [](const std::string& weight) {
    return take(Mod::parse("def weight_mod(score, b, h, q_idx, kv_idx):\n  return " + weight + "\n"));
  };
  const auto compared = [](const Mod& a, const Mod& b) { return take(prove(a, {Claim::Kind::Same, b})).answer; };
  CHECK(compared(weights("torch.relu(score)"), weights("torch.relu(score)")) == Answer::Proved);
  CHECK(compared(weights("torch.relu(score)"), weights("torch.relu(score) * 2")) == Answer::Refuted);
  CHECK(compared(weights("torch.relu(score)"), maskOf("torch.relu(score)")) == Answer::Refuted);
}
