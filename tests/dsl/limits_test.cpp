// Texts that ask for too much: each ends with the diagnostic of its limit, soon and without a large stack.
#include "dsl/limits.h"
#include "dsl/tracing.h"

#include <catch2/catch.hpp>

#include <ctime>

using namespace attnc;
using namespace attnc::testing;

namespace {

std::string repeat(const std::string& piece, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result += piece;
  return result;
}

/// The id of the first diagnostic of a text, or "" if it is a mod; fails if that takes long.
std::string outcome(const std::string& text) {
  std::clock_t begin = std::clock(); // of this process: other processes do not count
  auto module = dsl::trace(text);
  double seconds = double(std::clock() - begin) / CLOCKS_PER_SEC;
  INFO(text.substr(0, 200));
  CHECK(seconds < 5); // about a second on an idle machine
  return module ? "" : module.error().diagnostics.at(0).id;
}

std::string body(const std::string& statements) {
  return "def score_mod(score, b, h, q_idx, kv_idx):\n" + statements + " return score + x\n";
}

} // namespace

TEST_CASE("loops and recursions that do not end are stopped", "[dsl][limits]") {
  CHECK(outcome(body(" x = 0\n while True: x = (x + 1) % 7\n")) == "too-many-steps");
  CHECK(outcome(body(" x = 0\n for i in range(10 ** 18): pass\n")) == "too-many-steps");
  CHECK(outcome(body(" x = [0]\n for i in x: x.append(i)\n")) == "too-many-items");
  CHECK(outcome("def f(n): return f(n) + f(n)\nscore + f(1)") == "calls-too-deep");
  CHECK(outcome("def f(n): return f(n - 1) + f(n - 1) if n else 1\nscore + f(40)") == "too-many-steps");
  CHECK(outcome("f = lambda g: g(g)\nscore + f(f)") == "calls-too-deep");
}

TEST_CASE("values that grow are stopped", "[dsl][limits]") {
  CHECK(outcome(body(" x = [1]\n for i in range(99): x = x + x\n")) == "too-many-items");
  CHECK(outcome(body(" x = 's'\n for i in range(99): x = x + x\n")) == "string-too-long");
  CHECK(outcome(body(" x = 3\n for i in range(99): x = x * x\n")) == "int-overflow");
  CHECK(outcome(body(" x = []\n for i in range(10 ** 6): x = [0] * 4000\n")) == "too-many-steps");
  CHECK(outcome(body(" x = 0\n for i in range(10 ** 6): y = [x for x in range(4000)]\n")) == "too-many-steps");
  CHECK(outcome(body(" x = score\n for i in range(10 ** 6): x = (x + i) * x\n")) == "too-many-steps");
  CHECK(outcome(body(" x = score\n for i in range(10 ** 6): x = x + (q_idx + i) ** h\n")) == "too-many-nodes");
  // 2 ** 60 paths, 60 values: the IR is a DAG.
  CHECK(outcome(body(" x = score\n for i in range(60): x = x + x\n")).empty());
}

TEST_CASE("values of any depth are built and freed", "[dsl][limits]") {
  CHECK(outcome(body(" x = ()\n for i in range(20000): x = (x,)\n x = 0\n")).empty());
  CHECK(outcome(body(" x = [0]\n x.append(x)\n x = x == x\n")) == "nested-too-deeply");
  CHECK(outcome(body(" f = lambda x: x\n for i in range(9000): f = partial(f)\n x = f(1)\n")) == "eval-too-deep");
  CHECK(outcome(body(" f = noop_mask\n for i in range(9000): f = and_masks(f)\n x = f(b, h, q_idx, kv_idx)\n")) ==
        "eval-too-deep");
}

TEST_CASE("texts of any depth and length are parsed or refused", "[dsl][limits]") {
  for (const char* opening : {"(", "[", "-", "not ", "lambda: ", "x[", "f(", "1 if ", "2 **", "x if y else ", "(*"})
    CHECK(outcome("score + " + repeat(opening, 50000)) != "");
  CHECK(outcome("x = score" + repeat(".a", 50000)) == "nested-too-deeply");
  CHECK(outcome("score" + repeat("()", 50000)) == "nested-too-deeply");
  CHECK(outcome("score" + repeat(" if True else score", 50000)) == "nested-too-deeply");
  CHECK(outcome(repeat("if True:\n", 1) + " pass\n" + repeat("elif True:\n pass\n", 20000) + "q_idx > 1").empty());
  std::string nested;
  for (size_t i = 0; i < 2000; ++i) nested += std::string(i, ' ') + "if True:\n";
  CHECK(outcome(nested + std::string(2000, ' ') + "pass\n") != "");
  CHECK(outcome("score" + repeat(" + 1", 60000)) == "too-many-steps");
  CHECK(outcome("score" + repeat(" + 1", 10000)).empty());
  CHECK(outcome("q_idx > 1" + repeat(" and q_idx > 2", 10000)).empty());
  CHECK(outcome("q_idx" + repeat(" < 1", 10000)).empty());
  CHECK(outcome(repeat("a = 1\n", 60000) + "score").empty());
}

TEST_CASE("as many names as a text can hold are looked up soon", "[dsl][limits]") {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "a" + std::to_string(i) + " = 1\n";
  CHECK(outcome(text + "score + a19999").empty());
  std::string captures;
  for (int i = 0; i < 20000; ++i) captures += "t" + std::to_string(i) + ": f32[N" + std::to_string(i) + "]\n";
  CHECK(outcome(captures + "score + t19999[0]") == "too-many-captures");
}

TEST_CASE("as many captures as a kernel's parameters always hold, and one more", "[dsl][limits]") {
  const auto captures = [](size_t tensors, size_t scalars) {
    std::string text;
    for (size_t i = 0; i < tensors; ++i) text += "t" + std::to_string(i) + ": f32[N" + std::to_string(i) + "]\n";
    for (size_t i = 0; i < scalars; ++i) text += "s" + std::to_string(i) + ": int\n";
    return text + "score";
  };
  CHECK(outcome(captures(ir::kMaxCaptures, 0)).empty());
  CHECK(outcome(captures(0, ir::kMaxCaptures)).empty());
  CHECK(outcome(captures(ir::kMaxCaptures + 1, 0)) == "too-many-captures");
  CHECK(outcome(captures(ir::kMaxCaptures / 2, ir::kMaxCaptures / 2 + 1)) == "too-many-captures");
}
