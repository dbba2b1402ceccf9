// IR as text: printing, reading, and the errors of the reader.
#include "helpers/cpu_time.h"
#include "helpers/random_module.h"
#include "helpers/take.h"
#include "ir/hash.h"
#include "ir/printer.h"
#include "ir/reader.h"
#include "ir/verifier.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace attnc;
using namespace attnc::ir;

namespace {

const char kAlibi[] = R"(source "alibi.py"
dim DOCS
tensor slopes: f32[H]
tensor starts: i64[DOCS, 4]
tensor limit: bf16
scalar window: i32
%0 = sub i32 %kv_idx, %q_idx !7
%1 = cast f32 %0
%2 = load f32 slopes[%h]
%3 = mul f32 %2, %1
%4 = add f32 %score, %3
%5 = load f32 limit
%6 = min f32 %4, %5
%7 = le i32 %0, @window
%8 = load i64 starts[%b, 2L]
%9 = lt i64 %8, -5L
%10 = or bool %7, %9
%11 = load i64 starts[%i1:3, %i0:4] !9
%12 = mul i64 %11, %11
%13 = sum i64 %i0:4, %12 !9
%14 = sum i64 %i1:3, %13
%15 = cast f32 %14
%16 = add f32 %6, %15
output score(score, b, h, q_idx, kv_idx) -> %16
output mask(b, h, q_idx, kv_idx) -> %10
output bias_of_head(b, h) -> %2
output first_window() -> @window
)";

/// The error of reading `text`, which must be one.
Error errorOf(std::string_view text) {
  const Error module = refusalOf(read(text, "bad.ir"));
  REQUIRE(module.blame == Blame::Mod);
  REQUIRE(module.diagnostics.size() == 1);
  return module;
}

} // namespace

TEST_CASE("IR text reads and prints back unchanged") {
  auto module = take(read(kAlibi));
  CHECK(print(module) == kAlibi);
  CHECK(module.sourceName == "alibi.py");
  CHECK(module.tensors[1].shape[0].value == 5);
  CHECK(module[*module.output(kScore)].op == Op::Add);
}

TEST_CASE("a condition keeps its words and its line") {
  const char* text = "dim N\ntensor t: f32[N]\n%0 = eq i32 #N, #B\n"
                     "output condition_0() -> %0 else \"say \\\"N\\\" \\x0a\" !7\n";
  auto module = take(read(text));
  CHECK(print(module) == text);
  REQUIRE(module.outputs().size() == 1);
  CHECK(module.outputs()[0].isCondition());
  CHECK(module.outputs()[0].words == "say \"N\" \n");
  CHECK(module.outputs()[0].line == 7);
}

TEST_CASE("random modules survive print, read, print") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    test::RandomModule random(seed, {.operations = 40});
    REQUIRE_FALSE(verify(random.module));
    std::string text = print(random.module);
    auto again = read(text);
    INFO(text);
    REQUIRE(again);
    REQUIRE(print(*again) == text);
    REQUIRE(canonicalHash(*again) == canonicalHash(random.module));
  }
}

TEST_CASE("every f32 prints as a text that reads back to the same bits") {
  std::mt19937_64 random(1);
  std::vector<uint32_t> bits = {0,          0x80000000, 1,          0x80000001, 0x7f800000, 0xff800000,
                                0x7fc00000, 0x7fc00001, 0xffc00000, 0x7f7fffff, 0x00800000, 0x3dcccccd};
  for (int i = 0; i < 3000; ++i) bits.push_back(uint32_t(random()));
  for (uint32_t b : bits) {
    Module module;
    module.setOutput(kScore, module.constant(Type::F32, b));
    auto again = read(print(module));
    INFO(print(module));
    REQUIRE(again);
    REQUIRE((*again)[*again->output(kScore)].attr == b);
  }
  CHECK(printF32(0.1f) == "0.1");
  CHECK(printF32(1.f) == "1.0");
  CHECK(printF32(-0.f) == "-0.0");
}

TEST_CASE("comments, blanks and names of one's own are read") {
  auto module =
      read("  ; the causal mask\n%keep=le i32 %kv_idx , %q_idx ; here\r\n\n output mask(b, h, q_idx, kv_idx) ->%keep");
  REQUIRE(module);
  CHECK(print(*module) == "%0 = le i32 %kv_idx, %q_idx\noutput mask(b, h, q_idx, kv_idx) -> %0\n");
}

TEST_CASE("a source name with quotes and control characters is kept") {
  Module module;
  module.sourceName = "a \"b\" \\ \n;\x7f \xc3\xa9.py";
  auto again = take(read(print(module)));
  CHECK(again.sourceName == module.sourceName);
}

TEST_CASE("reading errors say where they are and what was expected") {
  struct Case {
    const char* text;
    int line, column;
    const char* message;
  };
  const Case cases[] = {
      {"%0 = frob i32 %b, %h", 1, 6, "expected an operation"},
      {"%0 = const i32 1", 1, 6, "expected an operation"},
      {"\n%0 = add i16 %b, %h", 2, 10, "expected a type"},
      {"%0 = add i32 %b", 1, 6, "add takes 2 operands, not 1"},
      {"%0 = add i32 %b, %1", 1, 18, "%1 is not defined above"},
      {"%0 = add i32 %b, 1L", 1, 6, "operand 2 has type i64"},
      {"%0 = add i32 %b, 3000000000", 1, 18, "does not fit into an i32"},
      {"%0 = add f32 %score, 1e99", 1, 22, "fits into an f32"},
      {"%0 = le f32 %b, %h", 1, 6, "the operands have another type"},
      {"%0 = add i32 %b, @w", 1, 18, "scalar w is not declared"},
      {"%0 = add i32 %b, #N", 1, 18, "dim N is not declared"},
      {"tensor t: f33[H]", 1, 11, "expected a dtype"},
      {"tensor t: f32[N]", 1, 15, "expected an extent"},
      {"tensor t: f32[H", 1, 16, "expected ']'"},
      {"tensor t: f32[H]\n%0 = load f32 t[%score]", 2, 6, "an index of t has type f32"},
      {"tensor t: i32[H]\n%0 = load f32 t[%h]", 2, 6, "loads as i32"},
      {"scalar s: i64", 1, 11, "expected i32, f32 or bool"},
      {"%0 = neg i32 %b\n%0 = neg i32 %h", 2, 3, "%0 cannot be defined here"},
      {"%b = neg i32 %b", 1, 3, "%b cannot be defined here"},
      {"output mask(b, h, q_idx, kv_idx) -> %b", 1, 1, "output mask has type i32"},
      {"output mask() -> true\noutput mask() -> true", 2, 8, "output mask exists already"},
      {"output mask(q) -> true", 1, 13, "there is no parameter q"},
      {"output mask(b h) -> true", 1, 15, "expected ')'"},
      {"output mask -> true", 1, 13, "expected '('"},
      {"output -> true", 1, 8, "expected a name"},
      {"mask_mod -> true", 1, 1, "expected source, dim, tensor, scalar, grid, output"},
      {"%0 = isnan f32 %score\noutput mask(b, h, q_idx, kv_idx) -> %0", 2, 1, "output mask depends on score"},
      {"output mask(b, h, q_idx, kv_idx) -> true false", 1, 42, "expected the end of the line"},
      {"dim N", 1, 1, "dim N is the extent of no tensor"},
      {"dim H", 1, 6, "dim H exists already"},
      {"tensor t: f32\nscalar t: f32", 2, 1, "two captures are called t"},
      {"source \"x", 1, 10, "expected '\"'"},
      {"%0 = neg i32 ", 1, 14, "expected an operand"},
      {"%0 = neg i32 -", 1, 14, "expected an operand"},
      {"%0 = neg f32 nan:0x00000001", 1, 14, "the bits of a NaN"},
      {"hello", 1, 1, "expected source"},
      {"output c() -> true else", 1, 24, "expected '\"'"},
      {"output c() -> true else \"\"", 1, 27, "the words of a condition are empty"},
      {"output c() -> #B else \"x\"", 1, 1, "condition c has type i32, not bool"},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    Error error = errorOf(c.text);
    const Diagnostic& found = error.diagnostics[0];
    INFO(found.rendered);
    CHECK(found.line == c.line);
    CHECK(found.column == c.column);
    CHECK(found.message.find(c.message) != std::string::npos);
    CHECK(error.message.rfind("bad.ir:" + std::to_string(c.line) + ":" + std::to_string(c.column) + ": error:", 0) ==
          0);
  }
}

TEST_CASE("mutilated IR text never crashes the reader, and what it accepts verifies and prints") {
  std::mt19937_64 random(7);
  const std::string alphabet = "%@#;:[]!\"\\,.->=0123456789abcdefnitLx_ \n\t\0\xff";
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = kAlibi;
    for (uint64_t edits = 1 + random() % 4; edits-- > 0;) {
      size_t at = random() % text.size();
      switch (random() % 4) {
      case 0: text[at] = alphabet[random() % alphabet.size()]; break;
      case 1: text.erase(at, 1 + random() % 8); break;
      case 2: text.insert(at, 1, alphabet[random() % alphabet.size()]); break;
      case 3: text.insert(at, text.substr(random() % text.size(), random() % 20)); break;
      }
    }
    auto module = read(text);
    if (!module) continue;
    ++accepted;
    REQUIRE_FALSE(verify(*module));
    REQUIRE(read(print(*module)));
  }
  CHECK(accepted > 100);
}

TEST_CASE("the time to refuse too many declarations grows with their number, not with the square of it") {
  auto reads = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += fmt::format("dim D{}\n", i);
    for (int i = 0; i < count; ++i) text += fmt::format("tensor t{}: f32[D{}]\n", i, i);
    for (int i = 0; i < count; ++i) text += fmt::format("scalar s{}: i32\n", i);
    for (int i = 0; i < count; ++i)
      text += fmt::format("%a{0} = add i32 @s{0}, #D{0}\n%l{0} = load f32 t{0}[%a{0}]\n", i);
    return [text = std::move(text)] {
      const Error module = refusalOf(read(text));
      REQUIRE_THAT(module.message, Catch::Contains("captures are more than"));
    };
  };
  CHECK(test::cpuSeconds(reads(32'000)) < 24 * test::cpuSeconds(reads(4'000)));
}

TEST_CASE("an empty text is the identity mod") {
  auto module = take(read(""));
  CHECK_FALSE(module.output(kScore));
  CHECK(print(module).empty());
}

TEST_CASE("grids and coordinates read and print back unchanged, and count in the hash") {
  const char kText[] = R"(scalar WIDTH: i32
scalar TEXT: i32
grid [128, @WIDTH]
grid [#KV_LEN, 3, 4] before @TEXT
grid [rest #KV_LEN, @WIDTH]
%0 = coord i32 grid0.1, %q_idx !4
%1 = coord i32 grid1.2, %kv_idx
%2 = in_grid bool grid1, %kv_idx
%3 = lt i32 %0, %1
%4 = and bool %2, %3
output mask(b, h, q_idx, kv_idx) -> %4
)";
  auto module = take(read(kText));
  CHECK(print(module) == kText);
  REQUIRE(module.grids.size() == 3);
  CHECK(module.grids[2].hasRest());
  CHECK_FALSE(module.grids[1].hasRest());
  CHECK(module.grids[1].extents[0] == Grid::Number{Grid::Number::Kind::Dim, int64_t(BuiltinDim::KvLen)});
  for (auto [from, to] : {std::pair("[128,", "[127,"), std::pair("before @TEXT", "before 7"),
                          std::pair("grid1.2", "grid1.1"), std::pair("grid0.1", "grid0.0"),
                          std::pair("rest #KV_LEN", "rest #Q_LEN"), std::pair("rest #KV_LEN", "#KV_LEN")}) {
    std::string other = kText;
    other.replace(other.find(from), std::string(from).size(), to);
    auto changed = read(other);
    INFO(other);
    REQUIRE(changed);
    CHECK(canonicalHash(*changed) != canonicalHash(module));
  }
}

TEST_CASE("grids that are wrong are refused") {
  for (auto [text, message] :
       {std::pair("grid []\n", "expected a number, @scalar or #DIM"), std::pair("grid [1, 2, 3, 4]\n", "too many axes"),
        std::pair("grid [@n]\n", "expected the name of a scalar or a dim declared above"),
        std::pair("grid [0]\n", "a grid has the number 0"),
        std::pair("grid [4] before -1\n", "a grid has the number -1"),
        std::pair("scalar x: f32\ngrid [@x]\n", "a grid has a number of type f32"),
        std::pair("grid [4]\ngrid [4]\n", "a grid is declared twice"),
        std::pair("grid [rest 4]\n", "expected #Q_LEN or #KV_LEN behind rest"),
        std::pair("grid [rest #H, 4]\n", "a grid has a rest of something else than Q_LEN and KV_LEN"),
        std::pair("grid [4, rest #Q_LEN]\n", "a number of a grid other than its first extent is a rest"),
        std::pair("grid [4] before rest #Q_LEN\n", "a number of a grid other than its first extent is a rest"),
        std::pair("grid [rest #Q_LEN, 4]\n%0 = in_grid bool grid0, %q_idx\n", "in_grid is asked of a grid with a rest"),
        std::pair("grid [4]\n%0 = coord i32 grid1.0, %q_idx\n", "expected an axis of a grid declared above: grid0.1"),
        std::pair("grid [4]\n%0 = coord i32 grid0.1, %q_idx\n", "coord is of axis 1 of a grid of 1"),
        std::pair("grid [4]\n%0 = coord i32 grid0, %q_idx\n", "expected an axis of a grid declared above: grid0.1"),
        std::pair("grid [4]\n%0 = in_grid i32 grid0, %q_idx\n", "in_grid has type i32, not bool"),
        std::pair("grid [4]\n%0 = coord i32 grid0.0, %score\n", "coord of a position of type f32")}) {
    INFO(text);
    CHECK(errorOf(text).message.find(message) != std::string::npos);
  }
}
