// Every row of dsl/diagnostics.def is provoked by a case here, and stands where it should.
#include "dsl/diagnostics.h"
#include "dsl/limits.h"
#include "dsl/tracing.h"
#include "helpers/take.h"

#include <catch2/catch.hpp>

#include <set>

using namespace attnc;
using namespace attnc::testing;
using namespace std::string_literals;

namespace {

struct Case {
  const char* expected; ///< "id at line:column"
  std::string text;
  std::map<std::string, std::string> defines = {};
  std::vector<std::string> mods = {}, captures = {};
};

std::string manyCaptures(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "s" + std::to_string(i) + ": int\n";
  return text + "score";
}

/// What an output may reduce: line 1.
const std::string value = "def value(prob, score, b, h, q_idx, kv_idx): return prob\n";

std::string manyOutputs(int count) {
  std::string text = value;
  for (int i = 0; i < count; ++i) text += "x" + std::to_string(i) + ": f32[B, H] = reduce_max(value)\n";
  return text;
}

std::string repeat(const std::string& piece, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result += piece;
  return result;
}

/// A mask_mod with this body, which begins on line 2 at column 2.
std::string mask(const std::string& body) { return "def mask_mod(b, h, q_idx, kv_idx):\n " + body + "\n"; }
/// A score_mod that returns this expression, which begins on line 2 at column 9.
std::string score(const std::string& expression) {
  return "def score_mod(score, b, h, q_idx, kv_idx):\n return " + expression + "\n";
}

const std::string kDeclarations = "t: f32[H, 4]; n: int; e: f32[4]\n"s;

std::string manyGrids(int count) {
  std::string text;
  for (int i = 1; i <= count; ++i) text += "g" + std::to_string(i) + " = grid(" + std::to_string(i) + ")\n";
  return text + "g" + std::to_string(count) + ".contains(q_idx)";
}

std::vector<Case> grids() {
  return {
      {"grid-axes at 1:1", "grid().contains(q_idx)"},
      {"grid-axes at 1:1", "grid(2, 2, 2, 2).contains(q_idx)"},
      {"grid-number at 1:1", "grid(2.5).contains(q_idx)"},
      {"grid-number at 1:1", "grid(q_idx).contains(q_idx)"},
      {"grid-number at 2:1", "n: int\ngrid(n // 2).contains(q_idx)"},
      {"grid-number at 2:1", "x: float\ngrid(x).contains(q_idx)"},
      {"grid-range at 1:1", "grid(4, 0).contains(q_idx)"},
      {"grid-range at 1:1", "grid(4, before=-1).contains(q_idx)"},
      {"too-many-grids at 17:7", manyGrids(17)},
      {"bad-argument at 1:1", "grid(4).contains(0.5)"},
      {"prob-result at 2:9", "def prob_mod(prob, b, h, q_idx, kv_idx):\n return prob, 0.0"},
      {"prob-result at 2:9", "def prob_mod(prob, b, h, q_idx, kv_idx):\n return \"prob\""},
      {"mod-arity at 1:5", "def prob_mod(prob, q_idx, kv_idx):\n return prob"},
      {"bad-argument at 2:12", "w: i32[B]\nmask_mod = choice(w)"},
      {"bad-argument at 2:12", "w: i32[N]\nmask_mod = choice(w, lambda b, h, q, k: q >= k)"},
      {"bad-argument at 1:12", "mask_mod = choice([0, 1], lambda b, h, q, k: q >= k)"},
      {"bad-argument at 2:1", "w: i32[B]\nchoice(w, lambda b, h: q_idx >= kv_idx)(b, h)"},
      {"not-callable at 2:12", "w: i32[B]\nmask_mod = choice(w, 3)"},
      {"mask-result at 2:52", "w: i32[B]\nmask_mod = choice(w, noop_mask, lambda b, h, q, k: q - k)"},
      {"sink-column at 1:5", "def sink_mod(b, h, q_idx, kv_idx):\n return 0.0"},
      {"mod-arity at 1:5", "def sink_mod(b, h):\n return 0.0"},
      {"sink-result at 2:9", "def sink_mod(b, h, q_idx):\n return q_idx"},
      {"sink-result at 2:9", "def sink_mod(b, h, q_idx):\n return h > 3"},
      {"sink-result at 2:9", "def sink_mod(b, h, q_idx):\n return True"},
      {"returns-none at 1:5", "def sink_mod(b, h, q_idx):\n x = 0.0"},
      {"weight-result at 2:9", "def weight_mod(score, b, h, q_idx, kv_idx):\n return 'a'"},
      {"weight-alone at 1:5", "def weight_mod(score, b, h, q_idx, kv_idx):\n return score\n"
                              "def sink_mod(b, h, q_idx):\n return 0.0"},
      {"mod-arity at 1:5", "def weight_mod(score, q_idx, kv_idx):\n return score"},
      {"output-axes at 2:1", value + "x: f32[B, H, N] = reduce_sum(value)"},
      {"output-axes at 2:1", value + "x: f32[B, H, HKV] = reduce_sum(value)"},
      {"output-axes at 2:1", value + "x: f32[KV_LEN, B, H] = reduce_max(value)"},
      {"output-axes at 2:1", value + "x: f16[B, H, KV_LEN] = reduce_sum(value)"},
      {"output-axes at 2:1", value + "x: f32 = reduce_sum(value)"},
      {"output-axes at 2:1", value + "x = reduce_sum(value)"},
      {"undefined-name at 2:16", value + "x: f32[B, H] = reduce_mean(value)"},
      {"output-function at 1:1", "x: f32[B, H] = reduce_sum(3)"},
      {"mod-arity at 2:1", "def value(score, b, h, q_idx, kv_idx): return score\nx: f32[B, H] = reduce_sum(value)"},
      {"score-result at 1:53",
       "def value(prob, score, b, h, q_idx, kv_idx): return 'x'\nx: f32[B, H] = reduce_max(value)"},
      {"redeclared at 2:1", value + "x: f32[B, H] = reduce_sum(value)\nx: f32[B, H] = reduce_max(value)"},
      {"too-many-outputs at 10:1", manyOutputs(9)},
      {"bad-argument at 1:1", "random(0.5, b, h, q_idx, kv_idx) < 0.5"},
      {"bad-argument at 2:1", "seed: f32\nrandom(seed, b, h, q_idx, kv_idx) < 0.5"},
      {"bad-argument at 1:1", "random(7, b, h, q_idx, score)"},
      {"missing-argument at 1:1", "random(7, b, h, q_idx) < 0.5"},
      {"too-many-arguments at 1:1", "random(7, b, h, q_idx, kv_idx, 1) < 0.5"},
  };
}

std::vector<Case> bytesAndTokens() {
  return {
      {"text-too-long at 1:1", repeat("#", dsl::kMaxTextBytes + 1)},
      {"nul-byte at 2:3", "x = 1\nq_\0idx"s},
      {"invalid-utf8 at 1:4", "#\xc3\xa9\xff\n"},
      {"too-many-tokens at 1:262145", repeat("-", dsl::kMaxTokens + 5)},
      {"unexpected-character at 1:7", "q_idx $ 2"},
      {"stray-backslash at 1:7", "q_idx \\ >= 2"},
      {"unclosed-string at 1:5", "x = \"abc\nq_idx > 1"},
      {"unclosed-bracket at 1:7", "q_idx (\n1"},
      {"unmatched-bracket at 1:7", "q_idx ] > 2"},
      {"unexpected-dedent at 3:3", "if True:\n    x = 1\n  y = 2\nq_idx > 1"},
      {"mixed-indentation at 3:1", "if True:\n        x = 1\n\ty = 2\nq_idx > 1"},
      {"bad-number at 1:9", "q_idx > 0x"},
      {"bad-number at 1:9", "q_idx > 012"},
      {"bad-number at 1:9", "q_idx > 1__0"},
      {"int-too-large at 1:9", "q_idx > 9223372036854775808"},
      {"number-too-long at 1:9", "q_idx > " + repeat("1", 600)},
  };
}

std::vector<Case> syntax() {
  return {
      {"unexpected-token at 1:7", "q_idx kv_idx"},
      {"unexpected-token at 1:9", "q_idx > *"},
      {"unexpected-end at 1:8", "q_idx >"},
      {"unexpected-indent at 2:2", "x = 1\n y = 2\nq_idx > 1"},
      {"expected-block at 2:1", "if True:\nx = 1\nq_idx > 1"},
      {"unsupported-syntax at 1:9", "q_idx > 3j"},
      {"unsupported-syntax at 2:2", mask("match h:\n  case 0:\n   x = 1\n return q_idx > x")},
      {"unsupported-syntax at 1:5", "x = b\"1\"\nq_idx > x"},
      {"unsupported-syntax at 2:9", "def f(): yield 1\nq_idx > f()"},
      {"unsupported-syntax at 2:9", "async def f(): return 1\nq_idx > f()"},
      {"nested-too-deeply at 1:201", repeat("(", 300) + "1" + repeat(")", 300)},
      {"bad-target at 1:1", "3 = x\nq_idx > 1"},
      {"default-before-required at 1:12", "def f(a=1, b): return a\nq_idx > 1"},
      {"duplicate-parameter at 1:10", "def f(a, a): return a\nq_idx > 1"},
      {"positional-after-keyword at 1:11", "max(key=1,2) > q_idx"},
      {"outside-loop at 1:1", "break\nq_idx > 1"},
      {"return-outside at 1:1", "return q_idx > 1"},
  };
}

std::vector<Case> namesAndCaptures() {
  return {
      {"undefined-name at 1:10", "q_idx >= kv_id"},
      {"absent-function at 1:1", "argsort(q_idx, 3)"},
      {"absent-function at 1:1", "torch.argsort(q_idx, 3)"},
      {"undeclared-tensor at 1:10", "q_idx >= lengths[b]"},
      {"undeclared-scalar at 1:10", "q_idx >= window"},
      {"undefined-constant at 2:5", mask("if causal: return True\n return q_idx > 1")},
      {"undefined-object at 1:9", "score * config.scale"},
      {"unbound-local at 2:6", mask("x = y\n y = 1\n return q_idx > x")},
      {"unknown-import at 1:8", "import scipy as sp\nq_idx > sp.x"},
      {"unknown-import at 1:6", "from os.path import join\nq_idx > join(1, 2)"},
      {"unknown-member at 2:1", "import torch\ntorch.bincount(q_idx) > 1"},
      {"computed-name at 3:1", "import torch\nx = torch.bincount(1)\ndoc = x * 2\ndoc[q_idx] == doc[kv_idx]"},
      {"unknown-member at 1:18", "from math import sqqrt\nq_idx > sqqrt(1)"},
      {"unknown-attribute at 1:1", "q_idx.numpy() > 1"},
      {"redeclared at 2:1", "n: int\nn = 3\nq_idx > n"},
      {"redeclared at 2:1", "n = 3\nn: int\nq_idx > n"},
      {"capture-type at 1:4", "t: Tensor\nq_idx > t"},
      {"capture-name at 1:1", "s\xc3\xa9: int\nq_idx > s\xc3\xa9"},
      {"not-declaration at 1:1", "q_idx > 1", {}, {}, {"n = 3"}},
      {"capture-is-dim at 1:1", "H: int\nq_idx > H"},
      {"scalar-with-dims at 1:4", "t: int[H]\nq_idx > t[h]"},
      {"capture-dtype at 2:4", "import torch\nt: torch.float64[H]\nq_idx > t[h]"},
      {"capture-dtype at 1:4", "t: f64[H]\nq_idx > t[h]"},
      {"capture-call at 1:4", "t: f32(H)\nq_idx > t[h]"},
      {"unsupported-dtype at 1:1", "score.half()"},
      {"too-many-dims at 1:8", "t: f32[1, 2, 3, 4, 5, 6, 7]\nq_idx > t[h]"},
      {"bad-dim at 1:8", "t: f32[0.5]\nq_idx > t[h]"},
      {"bad-dim at 2:8", "n: int\nt: f32[n]\nq_idx > t[h]"},
      {"dim-out-of-range at 1:8", "t: f32[0]\nq_idx > t[h]"},
      {"typed-non-constant at 1:1", "x: int = lambda: 1\nq_idx > x"},
      {"constant-type at 1:1", "x: int = 1.5\nq_idx > x"},
      {"unknown-define at 1:1", "W = 1\nq_idx > W", {{"V", "2"}}},
      {"unknown-define at 1:1", "W: int\nq_idx > W", {{"W", "2"}}},
      {"define-kind at 1:1", "W = 1\nq_idx > W", {{"W", "True"}}},
      {"define-not-literal at 1:1", "W = 1\nq_idx > W", {{"W", "1 + q_idx"}}},
      {"unexpected-token at 1:3", "W = 1\nq_idx > W", {{"W", "1 2"}}},
  };
}

std::vector<Case> values() {
  return {
      {"traced-condition at 2:5", mask("if q_idx > 1: return True\n return False")},
      {"traced-condition at 1:15", "score * (1 if q_idx > 1 else 2)"},
      {"traced-assertion at 2:2", mask("assert q_idx > 1\n return True")},
      {"traced-loop at 2:8", mask("while q_idx > 1: q_idx -= 1\n return q_idx > 0")},
      {"logic-on-number at 1:1", "q_idx and kv_idx"},
      {"logic-on-number at 1:20", "score + (1 < h and 5)"},
      {"bad-operand at 2:9", score("~score")},
      {"bad-operands at 2:9", score("score & 1")},
      {"bad-operands at 2:9", score("score + None")},
      {"sum-of-bools at 1:1", "(q_idx > 1) + (kv_idx > 1)"},
      {"expected-number at 1:1", "exp(\"x\") * score"},
      {"int-overflow at 1:9", "score * (2 ** 63)"},
      {"int-overflow at 1:9", "score * (1 << 63)"},
      {"division-by-zero at 1:1", "q_idx // 0 > 1"},
      {"bad-argument at 2:1", "ids: i32[H, 4]\nids[h].mean() > 1"},
      {"int-out-of-dtype at 2:1", "u8s: u8[H]\ntorch.where(q_idx > 1, u8s[h], 300) > 1"},
      {"division-by-zero at 1:9", "score * (1 % 0)"},
      {"negative-shift at 1:1", "q_idx << -1 > 0"},
      {"math-domain at 1:1", "sqrt(-1) * score"},
      {"bad-float-text at 1:1", "float(\"one\") * score"},
      {"assertion-fails at 1:1", "assert 1 > 2\nq_idx > 1"},
      {"raised at 2:2", mask("raise ValueError(\"no\")")},
  };
}

std::vector<Case> tensorsAndArrays() {
  auto with = [](const std::string& text) { return kDeclarations + text; };
  return {
      {"tensor-needs-index at 2:1", "w: f32[H, KV_LEN]\nscore + w[h]"},
      {"whole-tensor at 2:1", with("score + t")},
      {"table-of-capture at 3:9", "w: f32[256]\nu = w * torch.arange(256)\nscore + u[q_idx]"},
      {"too-many-indices at 2:9", with("score + t[1, 2, 3]")},
      {"bad-index at 2:9", with("score + t[h, 0.5]")},
      {"bad-index at 2:9", with("score + t[h, q_idx > 1]")},
      {"index-out-of-range at 2:9", with("score + t[h, 4]")},
      {"index-out-of-range at 1:9", "score * (1, 2)[-3]"},
      {"bad-slice-step at 1:9", "score * [1, 2][::0][0]"},
      {"slice-of-named-extent at 2:9", with("score + t[1:].sum()")},
      {"not-indexable at 1:9", "score * q_idx[0]"},
      {"not-assignable at 3:2", "def f():\n x = (1, 2)\n x[0] = 3\n return x[0]\nq_idx > f()"},
      {"bad-key at 1:9", "score * {1: 2}[q_idx]"},
      {"no-item at 1:9", "score * {1: 2}[3]"},
      {"attribute-assigned at 2:1", "t: f32[H]\nt.x = 1\nscore + t.x"},
      {"read-only at 3:2", kDeclarations + mask("t[0, 0] = 1.0\n return True")},
      {"traced-list-index at 1:9", "score * [1, 2][h]"},
      {"table-too-large at 2:9", "import torch\nscore * torch.arange(65)[h]"},
      {"shape-mismatch at 2:9", with("score * (e + e[1:]).sum()")},
      {"ragged-array at 2:1", "import torch\ntorch.tensor([1, [2, 3]]).sum() * score"},
      {"empty-reduction at 1:9", "score * max([])"},
      {"max-with-dim at 2:9", with("score * e.max(dim=-1)")},
      {"not-iterable at 3:11", mask("x = 0\n for i in q_idx: x = i\n return x > 1")},
      {"unpack-count at 1:1", "a, b2 = 1, 2, 3\nq_idx > a"},
  };
}

std::vector<Case> callsAndMods() {
  return {
      {"not-callable at 1:1", "3(4) > q_idx"},
      {"too-many-arguments at 2:1", "def f(x): return x\nf(1, 2) > q_idx"},
      {"too-many-arguments at 1:1", "exp(1, 2) > score"},
      {"missing-argument at 2:1", "def f(x, y): return x\nf(1) > q_idx"},
      {"unknown-argument at 1:1", "clamp(score, lowest=2)"},
      {"repeated-argument at 2:1", "def f(x): return x\nf(1, x=2) > q_idx"},
      {"traced-loop at 1:13", "score + sum(range(q_idx))"},
      {"expected-dtype at 1:1", "score.to([1])"},
      {"where-condition at 1:1", "where(q_idx, score, 1)"},
      {"no-mod at 1:1", ""},
      {"no-mod at 1:1", "x = 1"},
      {"ambiguous-mod at 2:5", "def f(b, h, q, k): return q > k\ndef g(b, h, q, k): return q < k\n"},
      {"mod-not-callable at 1:1", "mask_mod = 3"},
      {"mod-arity at 1:5", "def mask_mod(score, b, h, q, k): return q > k"},
      {"mod-arity at 1:5", "def mask_mod(b, q, k): return q > k"},
      {"array-result at 2:1", kDeclarations + "score + e[None, q_idx]"},
      {"pick-not-expression at 1:1", "x = 1", {}, {"y = 2"}},
      {"several-mods at 3:1",
       "def f(b, h, q, k): return q > k\ncreate_block_mask(f)\ncreate_block_mask(lambda b, h, q, k: q < k)\n"},
      {"callers-argument at 3:9",
       "def f(n):\n  return lambda b, h, q, k: q > n\ndef run(n): create_block_mask(f(n))\n"},
      {"picked-no-mod at 1:1", "x = 1", {}, {"x"}},
      {"picked-arity at 1:1", "def f(q): return q > 1", {}, {"lambda: 3"}},
      {"picked-twice at 1:1", "def f(b, h, q, k): return q > k", {}, {"f", "f"}},
      {"picked-twice at 1:1", "def f(b, h, q_idx): return 0.0", {}, {"f", "f"}},
      {"picked-twice at 1:1", "def f(prob, b, h, q, k): return prob", {}, {"f", "f"}},
      {"returns-none at 1:5", "def mask_mod(b, h, q, k): q > k"},
      {"score-result at 2:9", score("(score, 1)")},
      {"mask-result at 2:9", mask("return q_idx - kv_idx")},
      {"mask-result at 2:9", mask("return 1")},
      {"bare-expression at 1:1", "q_idx - kv_idx"},
      {"stray-expression at 3:1", score("score") + "q_idx > 1"},
  };
}

std::vector<Case> limits() {
  return {
      {"too-many-steps at 2:8", mask("while True: pass\n return True")},
      {"too-many-nodes at 3:30", mask("x = q_idx\n for i in range(100000): x = (x + i) ** h\n return x > 3")},
      {"too-many-items at 1:5", "x = [1] * 5000\nq_idx > x[0]"},
      {"string-too-long at 1:5", "x = \"" + repeat("s", 5000) + "\"\nq_idx > len(x)"},
      {"too-many-captures at 129:1", manyCaptures(129)},
      {"too-many-conditions at 2:3", "for i in range(65):\n  assert H > i\nq_idx > 1"},
      {"calls-too-deep at 1:18", "def f(x): return f(x + 1)\nq_idx > f(1)"},
      {"eval-too-deep at 1:136", "def f(n): return " + repeat("(-", 90) + "f(n)" + repeat(")", 90) + "\nq_idx > f(1)"},
  };
}

std::vector<Case> allCases() {
  std::vector<Case> cases;
  for (auto part : {bytesAndTokens, syntax, namesAndCaptures, values, tensorsAndArrays, callsAndMods, grids, limits})
    for (Case& one : part()) cases.push_back(std::move(one));
  return cases;
}

} // namespace

TEST_CASE("a wrong text is refused with the diagnostic of its row, at its place", "[dsl]") {
  for (const Case& one : allCases()) {
    INFO(one.text.substr(0, 300));
    std::vector<std::string> found =
        problemsWith(one.text, {.name = "mod.py", .defines = one.defines, .mods = one.mods, .captures = one.captures});
    REQUIRE_FALSE(found.empty());
    CHECK(found[0] == one.expected);
  }
}

TEST_CASE("every row of diagnostics.def is provoked by a case", "[dsl]") {
  std::set<std::string> provoked;
  for (const Case& one : allCases())
    provoked.insert(std::string(one.expected).substr(0, std::string(one.expected).find(' ')));
  for (const std::string& id : dsl::diagnosticIds()) {
    INFO(id);
    CHECK(provoked.count(id) == 1);
  }
}

TEST_CASE("a diagnostic shows the line, a caret and the hint", "[dsl]") {
  const Error module = refusalOf(dsl::trace("q_idx >= kv_id", {"alibi.py", {}}));
  CHECK(module.message == "alibi.py:1:10: error: `kv_id` is not defined\n"
                          "q_idx >= kv_id\n"
                          "         ^~~~~\n"
                          "note: did you mean `kv_idx`?\n");
  REQUIRE(module.diagnostics.size() == 1);
  const Diagnostic& found = module.diagnostics[0];
  CHECK(found.id == "undefined-name");
  CHECK(found.file == "alibi.py");
  CHECK(found.hint == "did you mean `kv_idx`?");
  CHECK(found.rendered == module.message);
}

namespace {

/// The hint of the first diagnostic.
std::string hintOf(const std::string& text) { return refusalOf(dsl::trace(text)).diagnostics.at(0).hint; }

/// What the hint proposes to declare, in a mod whose function has these parameters and statements.
std::string declared(const std::string& body, const std::string& parameters = "b, h, q, kv") {
  std::string hint = hintOf("def mod(" + parameters + "):\n " + body + "\n");
  size_t begin = hint.find('`');
  return begin == std::string::npos ? hint : hint.substr(begin + 1, hint.find('`', begin + 1) - begin - 1);
}

std::string declaredInScore(const std::string& body) { return declared(body, "score, b, h, q, kv"); }

} // namespace

TEST_CASE("the declaration of a tensor that is missing is told from its use", "[dsl]") {
  CHECK(declared("return document_id[q] == document_id[kv]") == "document_id: i32[KV_LEN]");
  CHECK(hintOf("q_idx >= lengths[b]") == "if it is a tensor given at launch, declare it: `lengths: i32[B]`");
  CHECK(declared("return (q >= kv) & valid[b, kv]") == "valid: bool[B, KV_LEN]");
  CHECK(declared("return valid[b][kv]") == "valid: bool[B, KV_LEN]");
  CHECK(declared("return q >= kv and not valid[kv].item()") == "valid: bool[KV_LEN]");
  CHECK(declared("return blocks[b, h, q // 128, kv // 128]") == "blocks: bool[B, H, N, M]");
  CHECK(declared("return q - offset[b] >= kv") == "offset: i32[B]");
  CHECK(declared("x = q - kv\n return table[x] > 0.5") == "table: f32[N]");
  CHECK(declared("return (lambda i: starts[i])(kv) <= q") == "starts: i32[N]");
  CHECK(declared("return kv < ends[block_of_row[q] + 1]") == "ends: i32[N]");
  CHECK(hintOf("block_of_row: i32[Q_LEN]\nends: i32[N]\nq_idx < ends[rows[q_idx]]").find("`rows: i32[Q_LEN]`") !=
        std::string::npos);
  CHECK(declaredInScore("return score + bias[b, h, q, kv]") == "bias: f32[B, H, Q_LEN, KV_LEN]");
  CHECK(declaredInScore("return score + slopes[h] * (kv - q)") == "slopes: f32[H]");
  CHECK(declaredInScore("x = slopes[h] * (kv - q)\n return score + x") == "slopes: f32[H]");
  CHECK(declaredInScore("return torch.where(keep[q], score, 0)") == "keep: bool[Q_LEN]");
  CHECK(declaredInScore("return score + torch.where(q > kv, w[h, 0], w[h, 1])") == "w: f32[H, N]");
  CHECK(declaredInScore("return score * torch.exp(w[h])") == "w: f32[H]");
  CHECK(declaredInScore("return score" + repeat(" + 1", 500) + " + late[kv]") == "late: f32[KV_LEN]");
}

TEST_CASE("the declaration of a scalar that is missing is told from its use", "[dsl]") {
  CHECK(hintOf("q_idx - kv_idx <= window") == "if it is a number given at launch, declare it: `window: int`; if it is "
                                              "a constant, define it: `window = 8`");
  CHECK(declared("return (q - kv <= window) | (kv < 4)") == "window: int");
  CHECK(declared("return (q >= kv) | bidirectional") == "bidirectional: bool");
  CHECK(declaredInScore("return cap * torch.tanh(score / cap)") == "cap: float");
  CHECK(declaredInScore("return torch.where(enabled, score, score * 2)") == "enabled: bool");
  CHECK(declaredInScore("return score + sum(range(steps))") == "steps = 8");
  CHECK(declaredInScore("x = 2.0 if fast else 3.0\n return score * x") == "fast = True");
  CHECK(hintOf("score * config.scale").find("declare or define `scale` at module level") != std::string::npos);
}

TEST_CASE("a hint does not propose what cannot stand there", "[dsl]") {
  CHECK(hintOf("slopes: f32[H]\nscore + slops[h]") == "did you mean `slopes`?");
  CHECK(hintOf("kv_ids[q_idx] > 1") == "if it is a tensor given at launch, declare it: `kv_ids: i32[Q_LEN]`");
  CHECK(hintOf("tanhh(score)") == "did you mean `tanh`?");
  CHECK(hintOf("torch.argsort(q_idx, 3)").find("did you mean") == std::string::npos);
  CHECK(hintOf("score + tank") == "if it is a number given at launch, declare it: `tank: float`; if it is a constant, "
                                  "define it: `tank = 1.0`");
  CHECK(hintOf("x = f(2)\nq_idx > x") ==
        "define the function in the text; a tensor is declared and indexed: `f: f32[N]`, `f[i]`");
}

TEST_CASE("a hint has the text that repairs the mod", "[dsl]") {
  const std::string bias = "bias: f32[Q_LEN, KV_LEN]\n";
  CHECK(hintOf(score("score if q_idx >= kv_idx else -1.0")) ==
        "write `torch.where(q_idx >= kv_idx, score, -1.0)`; join conditions by `&`, `|` and `~`");
  CHECK(hintOf(mask("if q_idx > 1: return True\n return False")).find("`torch.where(q_idx > 1, a, b)`") !=
        std::string::npos);
  CHECK(hintOf(score("score + sum([i for i in range(kv_idx)])")) ==
        "loop to a constant, and choose in the body: `for i in range(8): x = torch.where(i < kv_idx, ..., x)`");
  CHECK(hintOf(bias + score("score + bias[h, q_idx, kv_idx]")) ==
        "it is declared `bias: f32[Q_LEN, KV_LEN]`: write `bias[q_idx, kv_idx]`, or declare the dim that is missing");
  CHECK(hintOf(bias + score("score + bias[q_idx]")).find("index all dims, `bias[q_idx, kv_idx]`") == 0);
  CHECK(hintOf(bias + score("score + bias(q_idx)")) == "index it by brackets: `bias[q_idx, kv_idx]`");
  CHECK(hintOf("bias: f64[H]\nscore + bias[h]") ==
        "write `bias: f32[H]`, and convert the tensor: `bias.to(torch.float32)`");
  CHECK(hintOf("bias: u32[H, N]\nscore + bias[h, 0]").find("write `bias: i32[H, N]`") == 0);
  CHECK(hintOf("bias: f32(H)\nscore + bias[h]") == "write brackets: `bias: f32[H]`");
  CHECK(hintOf("bias: Tensor\nscore + bias[h, kv_idx]").find("`bias: f32[H, KV_LEN]`") != std::string::npos);
  CHECK(hintOf("import numpy as np\nbias = np.load('bias.npy')\nscore + bias[h]") ==
        "load it beforehand and declare it as a captured tensor, `bias: f32[H]`, in its place or by `--capture`");
  // A script: the declaration of what a class or the main part computes.
  CHECK(hintOf("from torch.nn.attention.flex_attention import flex_attention\nclass Net(nn.Module):\n"
               "  def __init__(self, n):\n    self.bias = nn.Parameter(torch.zeros(n))\n"
               "  def forward(self, q, k, v):\n"
               "    def mod(score, b, h, q_idx, kv_idx): return score + self.bias[h, kv_idx]\n"
               "    return flex_attention(q, k, v, mod)\n") ==
        "compute it beforehand and declare the result as a captured tensor, `bias: f32[H, KV_LEN]`, at the top of the "
        "file or by `--capture`");
  CHECK(hintOf("from torch.nn.attention.flex_attention import create_block_mask\ndef make(doc):\n"
               "  def same(b, h, q_idx, kv_idx): return doc[q_idx] == doc[kv_idx]\n  return same\n"
               "if __name__ == '__main__':\n  doc = torch.sort(torch.ones(3))\n"
               "  create_block_mask(make(doc), 1, 1, 8, 8)\n") ==
        "compute it beforehand and declare the result as a captured tensor, `doc: i32[KV_LEN]`, at the top of the file "
        "or by `--capture`");
  CHECK(hintOf(mask("match h:\n  case 0:\n   return True\n return False")) ==
        "choose a value with `torch.where(h == 0, a, b)`");
  CHECK(hintOf(mask("return q_idx - kv_idx")) == "compare it: `q_idx - kv_idx != 0`, or `>= 0`");
  CHECK(hintOf("q_idx => kv_idx") == "did you mean `>=`?");
  CHECK(hintOf(mask("return (q_idx > 1) && (kv_idx > 1)")).find("did you mean `&`?") == 0);
  CHECK(hintOf(mask("return q_idx = kv_idx")) == "did you mean `==`?");
  CHECK(hintOf(mask("return !(q_idx > 1)")) == "write `~(condition)`, or `!=`");
  CHECK(hintOf("q_idx \xe2\x89\xa5 kv_idx") == "write `>=`");
  CHECK(hintOf("kv_idx < seq_len") == "did you mean `KV_LEN`?");
  CHECK(hintOf("kv_idx < seq_len[b]").find("`seq_len: i32[B]`") != std::string::npos); // a tensor of that name
  CHECK(hintOf("def mask_mod(b, q_idx, kv_idx): return q_idx > kv_idx")
            .find("write `def mask_mod(b, h, q_idx, kv_idx)`") == 0);
  CHECK(hintOf("def mask_mod(b, h, q_idx, kv_idx, *, window): return q_idx > window").find("`window: int`") !=
        std::string::npos);
  CHECK(hintOf("score.clamp(mim=3)") == "it is `clamp(input, min=, max=)`");
  CHECK(hintOf("w = None\nq_idx < w").find("the value is None here") == 0);
}

TEST_CASE("an unindexed tensor is told how to be indexed", "[dsl]") {
  CHECK(hintOf("m: i64[B, 1, Q_LEN, KV_LEN]\nm.to(torch.bool) & (q_idx > 1)") ==
        "index it first, and compute with the element: `m[b, 0, q_idx, kv_idx]`");
}

TEST_CASE("of two functions that could be the mod, the hint names each for what it is", "[dsl]") {
  const std::string soft = "def soft(s, b, h, q, k): return s / 2\n", causal = "def causal(b, h, q, k): return q > k\n";
  CHECK(hintOf(soft + "def hard(s, b, h, q, k): return s\n") ==
        "say which: `--mod hard`, or `score_mod = hard` in the text");
  CHECK(hintOf(causal + "def window(b, h, q, k): return q < k\n") ==
        "say which: `--mod window`, or `mask_mod = window` in the text");
}

TEST_CASE("hints about mods of other functions can be typed", "[dsl]") {
  const std::string made = "def mask_of(ids, size=8):\n"
                           "  def same(b, h, q_idx, kv_idx): return ids[q_idx] == ids[kv_idx]\n"
                           "  return create_block_mask(same, 1, 1, size, size)\n";
  const std::string twice = made + "def f(): return mask_of(rare(1))\ndef g(): return mask_of(rare(2))\n";
  CHECK(refusalOf(dsl::trace(twice)).message.find(": `same` in line 3, made several times\n") != std::string::npos);
  CHECK(hintOf(twice) == "say which: `--mod \"mask_of(ids)\"`");
  // The declaration is that of the uses in the mod.
  CHECK(hintOf(made).find("declare it, `--capture \"ids: i32[KV_LEN]\"`") == 0);
}

TEST_CASE("a tensor that a script computes far from its mod is declared under the name that the mod reads", "[dsl]") {
  const std::string text = "import torch\n"
                           "def pack(n):\n"
                           "  parts = []\n"
                           "  parts.append(torch.bincount(n))\n"
                           "  return parts, torch.stack(parts)\n"
                           "def mask_of(ids):\n"
                           "  def same(b, h, q_idx, kv_idx): return ids[b, q_idx] == ids[b, kv_idx]\n"
                           "  return create_block_mask(same, 1, 1, 8, 8)\n"
                           "def main():\n"
                           "  while step():\n"
                           "    parts, ids = (each.to('cuda') for each in pack(3))\n"
                           "    mask_of(ids[:, :-1].contiguous())\n"
                           "main()\n";
  const Error error = refusalOf(dsl::trace(text));
  CHECK(error.message.find("<mod>:11:12: error: `ids` is computed by Python: attnc does not run this line\n") == 0);
  CHECK(error.diagnostics.at(0).hint == "declare what it holds: `--capture 'ids: i32[B, KV_LEN]'`");
  // What a mod assigns itself is told as it is.
  CHECK(refusalOf(dsl::trace(mask("x = q_idx\n if x > 3: x = x * 2\n return x > kv_idx"))).diagnostics.size() == 1);
}

TEST_CASE("a caret stands right in a line that is not ASCII", "[dsl]") {
  CHECK(refusalOf(dsl::trace("x = \"h\xc3\xa9h\xc3\xa9\" + y\nq_idx > x")).message ==
        "<mod>:1:16: error: `y` is not defined\n"
        "x = \"h\xc3\xa9h\xc3\xa9\" + y\n"
        "             ^\n"
        "note: declare what the launch gives, `y: int` or `y: f32[H]`, or define it: `y = 8`\n");
}

TEST_CASE("a long line is shown around the caret only", "[dsl]") {
  const Error module = refusalOf(dsl::trace("x = 1 " + repeat("+ 1 ", 20000) + "+ y\nq_idx > x"));
  CHECK(module.diagnostics[0].column == 80009);
  CHECK(module.message.size() < 1000);
}

TEST_CASE("several errors of one text are reported in order", "[dsl]") {
  CHECK(problems("x = (1 +\ny = 2") == std::vector<std::string>{"unclosed-bracket at 1:5"});
  CHECK(problems("x = = 1\ny = 1 +\nq_idx > 1") ==
        std::vector<std::string>{"unexpected-token at 1:5", "unexpected-end at 2:8"});
  CHECK(problems("def score_mod(score, b, h, q, k):\n x = qq\n y = kk + x\n return y\n\ndef mask_mod(b, h, q, k):\n "
                 "return z\n") ==
        std::vector<std::string>{"undefined-name at 2:6", "undefined-name at 3:6", "undefined-name at 7:9"});
  CHECK(problems("a = 1 // 0\nb2 = a + 1\nq_idx > b2").size() == 1);
}

TEST_CASE("no text gets more diagnostics than the limit", "[dsl]") {
  CHECK(problems(repeat("x = = 1\n", 1000)).size() == dsl::kMaxDiagnostics);
}
