// Every row of dsl/warnings.def is provoked by a case here, and none by honest code.
#include "dsl/diagnostics.h"

#include "attnc/mod.h"
#include "helpers/take.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <set>

using namespace attnc;

namespace {

/// "id at line:column" of each warning.
std::vector<std::string> warnings(const std::string& text, ParseOptions options = {}) {
  auto mod = Mod::parse(text, options);
  INFO(text);
  if (!mod) FAIL(mod.error().message);
  std::vector<std::string> result;
  for (const Diagnostic& found : mod->warnings()) {
    CHECK(found.severity == Severity::Warning);
    CHECK_FALSE(found.message.empty());
    CHECK(found.rendered.find("warning: " + found.message + " [" + found.id + "]") != std::string::npos);
    result.push_back(found.id + " at " + std::to_string(found.line) + ":" + std::to_string(found.column));
  }
  return result;
}

std::string mask(const std::string& body) { return "def mask_mod(b, h, q_idx, kv_idx):\n  return " + body + "\n"; }
std::string score(const std::string& body) {
  return "def score_mod(score, b, h, q_idx, kv_idx):\n  return " + body + "\n";
}

struct Case {
  const char* expected;
  std::string text;
};

std::vector<Case> cases() {
  return {
      {"comparison-precedence at 2:10", mask("q_idx >= kv_idx & q_idx - kv_idx <= 128")},
      {"comparison-precedence at 2:10", mask("q_idx < 4 | kv_idx < 4")},
      {"comparison-precedence at 3:22",
       "ok: bool[B]\n" + mask("torch.where(ok[b] & q_idx >= kv_idx, True, q_idx < 3)")},
      {"comparison-precedence at 3:10", "ok: bool\n" + mask("q_idx >= kv_idx | ok")},
      {"mask-always-true at 2:3", mask("(q_idx >= 0) | (kv_idx > 5)")},
      {"mask-always-true at 2:3", mask("(q_idx >= kv_idx) | (q_idx < kv_idx)")},
      {"mask-always-true at 2:3", mask("(q_idx >= kv_idx) | (q_idx <= kv_idx)")},
      {"mask-always-true at 2:3", mask("(q_idx - kv_idx < 8) | (q_idx > kv_idx + 7)")},
      {"mask-always-true at 2:3", mask("(q_idx != kv_idx) | (kv_idx > 100) | (q_idx == kv_idx)")},
      {"mask-always-true at 2:3", mask("(kv_idx > 5) | (kv_idx < 9)")},
      {"mask-always-true at 2:3", mask("kv_idx < KV_LEN")},
      {"mask-always-false at 2:3", mask("kv_idx < 0")},
      {"mask-always-false at 2:3", mask("(q_idx >= kv_idx) & (kv_idx > KV_LEN)")},
      {"mask-always-false at 2:3", mask("(q_idx < kv_idx) & (q_idx > kv_idx)")},
      {"mask-always-false at 2:3", mask("(q_idx == kv_idx) & (q_idx != kv_idx)")},
      {"mask-always-false at 2:3", mask("(q_idx != kv_idx) & (q_idx <= kv_idx) & (kv_idx > 100) & (q_idx >= kv_idx)")},
      {"mask-always-false at 2:3", mask("(q_idx - kv_idx <= 128) & (q_idx >= kv_idx + 129)")},
      {"mask-always-false at 2:3", mask("(abs(q_idx - kv_idx) < 3) & (q_idx - kv_idx > 5)")},
      {"mask-always-false at 2:3", mask("(q_idx // 64 == kv_idx // 64) & (kv_idx // 64 < q_idx // 64)")},
      {"mask-always-false at 2:3", mask("(kv_idx < 5) & (q_idx >= kv_idx) & (kv_idx > 8)")},
      {"mask-always-false at 3:3",
       "ids: i32[KV_LEN]\n" + mask("(ids[q_idx] < ids[kv_idx]) & (ids[kv_idx] <= ids[q_idx])")},
      {"mask-always-false at 2:3", score("torch.where(q_idx < 0, score, -float('inf'))")},
      {"mask-always-false at 2:3", score("torch.where((q_idx < kv_idx) & (q_idx > kv_idx), score, -float('inf'))")},
      {"condition-never-met at 2:1", "n: int\nassert n > 5 and n < 3\n" + mask("q_idx - kv_idx < n")},
      {"condition-never-met at 3:1", "n: int\nassert n > 5\nassert n < 3\n" + mask("q_idx - kv_idx < n")},
      {"condition-never-met at 1:1", "assert KV_LEN < 0\n" + mask("q_idx >= kv_idx")},
      {"condition-never-met at 3:1",
       "n: int\nif not (n > 7): raise ValueError('n')\nassert n != 2 and n <= 7\n" + mask("q_idx - kv_idx < n")},
      {"unused-capture at 1:1", "slopes: f32[H]\n" + score("score * 2")},
      {"unused-capture at 2:1", "n: int\nm: int\n" + mask("q_idx - kv_idx < n")},
      {"extent-case at 1:13", "slopes: f32[h]\n" + score("score * slopes[h]")},
      {"extent-case at 1:14", "bias: f32[H, kv_len]\n" + score("score + bias[h, kv_idx]")},
      {"extent-case at 1:10", "ids: i32[kv_idx]\n" + mask("ids[kv_idx] > 0")},
      {"extent-case at 2:9", "a: f32[N]\nb_: f32[n]\n" + score("score + a[q_idx] + b_[q_idx]")},
      {"parameter-order at 1:14", "def mask_mod(q_idx, kv_idx, b, h):\n  return q_idx >= kv_idx\n"},
      {"finite-mask at 2:3", score("torch.where(q_idx >= kv_idx, score, -1e9)")},
      {"finite-mask at 2:3", score("score.masked_fill(q_idx < kv_idx, torch.finfo(torch.float32).min)")},
      {"finite-mask at 2:3", score("score + torch.where(q_idx >= kv_idx, 0, -10000.0)")},
      {"finite-mask at 2:3", score("score - torch.where(q_idx >= kv_idx, 0, 1e9)")},
      {"finite-mask at 2:3", score("score + (1.0 - (q_idx >= kv_idx).float()) * -1e9")},
      {"integer-wrap at 3:10", "p: i32\n" + mask("(p + 2147483647) > q_idx")},
      {"integer-wrap at 3:10", "ids: i32[KV_LEN]\n" + mask("(ids[q_idx] * 1_000_000_000) > 4")},
      {"integer-wrap at 3:10", "ids: i32[KV_LEN]\n" + mask("(ids[q_idx] << 24) > 4")},
      {"integer-wrap at 3:10", "ids: i32[KV_LEN]\n" + mask("(ids[q_idx] & 0xffffffff) > 4")},
      {"integer-wrap at 3:10", "ids: u8[KV_LEN]\n" + mask("ids[q_idx] < 300")},
      {"integer-wrap at 3:10", "ids: u8[KV_LEN]\n" + mask("(ids[q_idx] - ids[kv_idx]) <= 3")},
      {"integer-wrap at 3:10", "ids: i8[KV_LEN]\n" + mask("(ids[q_idx] * ids[kv_idx]) <= 3")},
      {"integer-wrap at 3:10", "ids: i16[KV_LEN]\n" + mask("(ids[q_idx] + 30000) <= 3")},
      {"integer-wrap at 3:10", "horizon: int\n" + mask("(horizon * horizon * 1_000_000_000) > q_idx")},
      {"integer-wrap at 2:10", mask("(q_idx * 10**18) > kv_idx")},
      {"gather-outside at 3:3", "t: f32[4]\n" + score("score + t[q_idx + 4]")},
  };
}

} // namespace

TEST_CASE("what is legal and probably not meant is warned of, at its place", "[dsl][warnings]") {
  std::set<std::string> seen;
  for (const Case& one : cases()) {
    const std::vector<std::string> found = warnings(one.text);
    INFO(one.text);
    // Others may follow from the same slip.
    CHECK(std::find(found.begin(), found.end(), one.expected) != found.end());
    seen.insert(std::string(one.expected).substr(0, std::string(one.expected).find(' ')));
  }
  CHECK(seen == std::set<std::string>(warningIds().begin(), warningIds().end()));
}

TEST_CASE("a warning says what was read and what may be meant", "[dsl][warnings]") {
  auto mod = take(Mod::parse("q_idx >= kv_idx & q_idx - kv_idx <= 128", {.name = "window.py"}));
  REQUIRE(mod.warnings().size() == 1);
  const Diagnostic& found = mod.warnings().front();
  CHECK(found.rendered ==
        "window.py:1:1: warning: `&` binds tighter than comparisons: this reads `q_idx >= (kv_idx & q_idx - "
        "kv_idx) <= 128` [comparison-precedence]\n"
        "q_idx >= kv_idx & q_idx - kv_idx <= 128\n"
        "^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\n"
        "note: write `(q_idx >= kv_idx) & (q_idx - kv_idx <= 128)`\n");
  auto flag = take(Mod::parse("ok: bool[B]\n" + mask("ok[b] & q_idx >= kv_idx")));
  REQUIRE_FALSE(flag.warnings().empty());
  CHECK(flag.warnings().front().hint == "write `ok[b] & (q_idx >= kv_idx)`");
}

TEST_CASE("honest code is not warned of", "[dsl][warnings]") {
  for (const std::string& text : std::vector<std::string>{
           mask("(q_idx >= kv_idx) & (q_idx - kv_idx <= 128)"),
           mask("(q_idx >= kv_idx) & (q_idx <= kv_idx)"),
           mask("(q_idx >= kv_idx) & (q_idx != kv_idx)"),
           mask("(q_idx - kv_idx <= 128) & (q_idx >= kv_idx + 128)"),
           mask("(q_idx - kv_idx < 8) | (q_idx > kv_idx + 8)"),
           mask("(q_idx < kv_idx) | (q_idx > kv_idx)"),
           mask("(kv_idx < 5) | (kv_idx > 5)"),
           "n: int\ndef met():\n  c = n > 0\n  for i in range(40):\n" // each half has all before it
           "    c = (c & (n > -i)) & (c & (n < 100 + i))\n  return c\nassert met()\n" +
               mask("q_idx - kv_idx < n"),
           mask("q_idx & 7 == 0"),
           mask("0 <= q_idx & 7 < 4"),
           mask("0 <= 7 & q_idx < kv_idx"),
           mask("(q_idx & kv_idx) == (kv_idx | 3)"),
           mask("True"), // the author says so
           "CAUSAL = False\n" + mask("(q_idx >= kv_idx) if CAUSAL else True"),
           std::string("noop_mask"),
           "n: int\nassert n > 5\nassert n < 9\nassert 0 < KV_LEN\n" + mask("q_idx - kv_idx < n"),
           "USE = False\nbias: f32[H]\n" + score("score + bias[h] if USE else score"),
           "w: f32[N]\n" + mask("q_idx < N"), // there for its extent
           "def make(offsets: i32[N]):\n  return lambda b, h, q, k: q >= k\nmask_mod = make(rare)\n",
           "class A:\n  def __init__(self): self.cap = rare\n  def f(self, s, b, h, q, k): return s * self.cap\n"
           "cap: float\nscore_mod = A().f\n",
           score("torch.where(q_idx >= kv_idx, score, -float('inf'))"),
           score("torch.where(q_idx >= kv_idx, score, score - 100)"),
           score("torch.where(q_idx >= kv_idx, score, -1000.0)"),
           score("torch.maximum(score, torch.where(q_idx >= kv_idx, score, -1e9))"),
           score("torch.exp(torch.where(q_idx >= kv_idx, score, -1e9))"),
           score("torch.clamp(score, -1e9, 1e9)"),
           "t: f32[4]\n" + score("score + t[q_idx]"), // clamped for some index: `check` says so
           "ids: i32[KV_LEN]\n" + mask("ids[q_idx] == ids[kv_idx]"),
           "ids: i32[KV_LEN]\n" + mask("(ids[q_idx] + 1 < kv_idx) & (kv_idx < ids[q_idx])"), // the sum wraps around
           "t: f32[N, M]\n" + score("score + t[h, q_idx]"),
           "ids: i32[KV_LEN]\n" +
               mask("(ids[q_idx] - ids[kv_idx]) ** 2 + ids[q_idx] * 64 + 1000 > ids[kv_idx] * ids[q_idx]"),
           "ids: i16[KV_LEN]\n" + mask("abs(ids[q_idx] - ids[kv_idx]) <= 3"),
           "ids: u8[KV_LEN]\n" + mask("(ids[q_idx].int() - ids[kv_idx] <= 3) & (ids[q_idx] + 1 > 2)"),
           "horizon: int\n" + mask("horizon * 1_000_000_000 + q_idx * KV_LEN + 2**31 > kv_idx"), // in 64 bits
           "ids: i64[KV_LEN]\n" + mask("ids[q_idx] * 7 + 3 > ids[kv_idx] - ids[q_idx]"),
       })
    CHECK(warnings(text) == std::vector<std::string>{});
}

TEST_CASE("no mod of the library is warned of", "[dsl][warnings]") {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ATTNC_SOURCE_DIR "/dsl/mods")) {
    if (entry.path().extension() != ".py") continue;
    auto mod = take(Mod::load(entry.path().string()));
    ++count;
    for (const Diagnostic& found : mod.warnings()) FAIL_CHECK(found.rendered);
  }
  CHECK(count > 40);
}
