#include "drawn_captures.h"

#include "attnc/mod.h"
#include "ir/bind.h"

#include "api/mod_impl.h"
#include "ir/printer.h"
#include "passes/grids/grid_kernel.h"
#include "support/readable.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

using namespace attnc;
using namespace attnc::test;

namespace {

struct TextFile {
  std::string path;
  TextFile(const std::string& name, const std::string& text)
      : path((std::filesystem::temp_directory_path() / (std::to_string(getpid()) + name)).string()) {
    std::ofstream(path) << text;
  }
  ~TextFile() { std::filesystem::remove(path); }
};

Mod parse(std::string_view text) { return take(Mod::parse(text)); }

/// Returns the text of the module that box kernels are written from; empty: there are none.
std::string boxKernelOf(const Mod& mod) {
  const auto kernel = take(kernelModOf(mod, {}));
  return kernel->grid ? ir::print(kernel->grid->module) : "";
}

const char* const kAlibi = "slopes: f32[H]\nwindow: int\ncap: float\nflag: bool\noffsets: i64[N, 3]\n"
                           "def score_mod(score, b, h, q_idx, kv_idx):\n"
                           "    return where(flag, score + slopes[h] * (kv_idx - q_idx), cap) + offsets[q_idx, 1]\n"
                           "def mask_mod(b, h, q_idx, kv_idx):\n"
                           "    return q_idx - kv_idx < window\n";

} // namespace

TEST_CASE("a mod tells what it has and what it captures") {
  Mod mod = parse(kAlibi);
  CHECK(mod.name() == "<mod>");
  CHECK(mod.hasScoreMod());
  CHECK(mod.hasMaskMod());
  REQUIRE(mod.captures().size() == 5);
  auto find = [&](const std::string& name) {
    for (const CaptureInfo& capture : mod.captures())
      if (capture.name == name) return capture;
    FAIL("no capture " << name);
    return CaptureInfo();
  };
  CHECK(find("slopes").kind == CaptureInfo::Kind::Tensor);
  CHECK(find("slopes").dtype == DType::F32);
  CHECK(find("slopes").extent == std::vector<std::string>{"H"});
  CHECK(find("offsets").dtype == DType::I64);
  CHECK(find("offsets").extent == std::vector<std::string>{"N", "3"});
  CHECK(find("window").kind == CaptureInfo::Kind::Int);
  CHECK(find("cap").kind == CaptureInfo::Kind::Float);
  CHECK(find("flag").kind == CaptureInfo::Kind::Bool);
  CHECK_THAT(mod.astText(), Catch::Contains("mask_mod"));
}

TEST_CASE("the identity has nothing") {
  Mod mod = Mod::identity();
  CHECK_FALSE(mod.hasScoreMod());
  CHECK_FALSE(mod.hasMaskMod());
  CHECK(mod.captures().empty());
  CHECK(mod.hash().size() == 64);
}

TEST_CASE("the hash tells meanings apart, not spellings") {
  CHECK(parse("q_idx >= kv_idx").hash() == parse("kv_idx <= q_idx").hash());
  CHECK(parse("q_idx >= kv_idx").hash() ==
        parse("def mask_mod(b, head, row, column):\n  '''causal'''\n  return row >= column\n").hash());
  CHECK(parse("q_idx >= kv_idx").hash() != parse("q_idx > kv_idx").hash());
}

TEST_CASE("every library mod survives being written as IR and loaded again") {
  for (const std::string& path : libraryMods()) {
    INFO(path);
    auto mod = take(Mod::load(path));
    CHECK(mod.name() == path);
    TextFile file("mod.ir", mod.irText());
    auto again = take(Mod::load(file.path));
    CHECK(again.hash() == mod.hash());
    CHECK(again.irText() == mod.irText());
    CHECK(boxKernelOf(again) == boxKernelOf(mod));
    CHECK(again.astText().empty());
    CHECK(again.captures().size() == mod.captures().size());
  }
}

TEST_CASE("IR text keeps what kernels of boxes are made from") {
  const std::string path = ATTNC_SOURCE_DIR "/dsl/mods/neighborhood2d.py";
  const std::map<std::string, std::string> forms[] = {
      {},
      {{"DILATION", "(2, 2)"}},
      {{"HEIGHT", "63"}, {"DILATION", "(2, 3)"}, {"STRIDE", "(1, 2)"}},
      {{"CAUSAL", "(True, False)"}, {"STRIDE", "(2, 4)"}},
  };
  for (const auto& defines : forms) {
    const Mod mod = take(Mod::load(path, {.defines = defines}));
    INFO(mod.irText());
    const Mod again = take(Mod::parseIr(mod.irText()));
    CHECK_FALSE(boxKernelOf(mod).empty());
    CHECK(boxKernelOf(again) == boxKernelOf(mod));
    CHECK(again.hash() == mod.hash());
    CHECK(again.irText() == mod.irText());
  }
  const Mod sized = parse("HEIGHT: int\nWIDTH: int\nimage = grid(HEIGHT, WIDTH)\n"
                          "def mask_mod(b, h, q_idx, kv_idx):\n"
                          "    q, kv = image.coords(q_idx), image.coords(kv_idx)\n"
                          "    return (abs(q[0] - kv[0]) <= 3) & (abs(q[1] - kv[1]) <= 3)\n");
  for (const Mod& mod : {sized, take(sized.pinned({{"WIDTH", 64}})), take(sized.pinned({{"KV_LEN", 4096}}))}) {
    INFO(mod.irText());
    const Mod again = take(Mod::parseIr(mod.irText()));
    CHECK_FALSE(boxKernelOf(mod).empty());
    CHECK(boxKernelOf(again) == boxKernelOf(mod));
    CHECK(again.hash() == mod.hash());
  }
}

TEST_CASE("defines override constants, and IR has none") {
  const char* text = "WINDOW = 4\ndef mask_mod(b, h, q, kv): return q - kv < WINDOW\n";
  auto overridden = take(Mod::parse(text, {.name = "w.py", .defines = {{"WINDOW", "7"}}}));
  CHECK(overridden.hash() == parse("q_idx - kv_idx < 7").hash());
  TextFile file("define.ir", overridden.irText());
  CHECK(refusalOf(Mod::load(file.path, {.defines = {{"WINDOW", "7"}}})).blame == Blame::Environment);
}

TEST_CASE("what cannot be read blames the environment, what cannot be understood the mod") {
  const Error missing = refusalOf(Mod::load("/no/such/mod.py"));
  CHECK(missing.blame == Blame::Environment);
  CHECK_THAT(missing.message, Catch::Contains("/no/such/mod.py"));
  CHECK_FALSE(Mod::load(std::filesystem::temp_directory_path().string()));
  CHECK(refusalOf(Mod::load("/dev/zero")).blame == Blame::Environment);

  const Error wrong = refusalOf(Mod::parse("q_idx >= kv_idy", {.name = "wrong.py"}));
  CHECK(wrong.blame == Blame::Mod);
  REQUIRE_FALSE(wrong.diagnostics.empty());
  CHECK(wrong.diagnostics[0].file == "wrong.py");
  CHECK(wrong.diagnostics[0].line == 1);
  TextFile file("wrong.ir", "output mask(b, h, q_idx, kv_idx) -> %3\n");
  CHECK(refusalOf(Mod::load(file.path)).blame == Blame::Mod);
}

TEST_CASE("a mod given as IR has no outputs that attnc derives") {
  const Error refused = refusalOf(Mod::parseIr("output kv_begin(b, h, q_idx) -> %q_idx\n", "mod.ir"));
  CHECK(refused.blame == Blame::Mod);
  CHECK(refused.message.find("`kv_begin` is derived by attnc") != std::string::npos);
}

TEST_CASE("IR text may say what a prob_mod returns in place of its factor") {
  const std::string end = "output prob(score, b, h, q_idx, kv_idx) -> %v\n";
  const Mod half = take(Mod::parseIr("%v = div f32 %score, 2.0\n" + end));
  CHECK(half.hasProbMod());
  CHECK(half.hash() == take(Mod::parse("def prob_mod(prob, b, h, q, k): return prob / 2")).hash());
  CHECK(half.hash() == take(Mod::parseIr("output prob_factor(b, h, q_idx, kv_idx) -> 0.5\n")).hash());
  CHECK_FALSE(half.walksTwice());
  const Mod square = take(Mod::parseIr("%v = mul f32 %score, %score\n" + end));
  CHECK(square.hasProbMod());
  CHECK(square.walksTwice());
  CHECK(square.hash() == take(Mod::parse("def prob_mod(prob, b, h, q, k): return prob * prob")).hash());
  CHECK(square.hash() == take(Mod::parseIr(square.irText())).hash());
  for (const auto& [type, text] : {std::pair("bool", "%v = lt f32 %score, 0.5\n"), {"i32", "%v = add i32 %b, 1\n"}}) {
    const auto mod = Mod::parseIr(text + end, "<jax>");
    REQUIRE_FALSE(mod);
    CHECK(mod.error().message == fmt::format("<jax>: prob_mod returns a {}: return f32", type));
  }
}

TEST_CASE("pins become constants and are checked at launch") {
  Mod mod = parse("window: int\ndef mask_mod(b, h, q, kv): return (q - kv < window) & (kv < KV_LEN - 1)\n");
  auto pinned = take(mod.pinned({{"window", 64}, {"KV_LEN", 1000}}));
  CHECK(pinned.captures().size() == 1);
  CHECK_THAT(pinned.irText(), Catch::Contains("998"));
  CHECK(pinned.hash() != mod.hash());
  CHECK_FALSE(mod.pinned({{"LENGTH", 3}}));
  CHECK_FALSE(mod.pinned({{"KV_LEN", -1}}));

  auto launch = [&](int window, int64_t kvLen) {
    Captures captures;
    captures.set("window", window);
    auto bindings = take(ir::bind(pinned.module(), captures, {.qLen = 10, .kvLen = kvLen}));
    return checkPins(pinned.module(), bindings, {{"window", 64}, {"KV_LEN", 1000}});
  };
  CHECK(launch(64, 1000));
  CHECK_THAT(refusalOf(launch(65, 1000)).message, Catch::Contains("window is 65"));
  CHECK_FALSE(launch(64, 999));
}

TEST_CASE("errors of mods are UTF-8 without control characters, whatever names and texts have") {
  const std::string hostile = "x\x1b[2J\n\xe2\x80\xa8\xff";
  const auto check = [](const Error& error, const char* part) {
    CHECK_THAT(error.message, Catch::Contains(part));
    CHECK(readable(error.message) == error.message);
  };
  check(Mod::load("/nowhere/" + hostile).error(), "cannot read");
  const TextFile file(hostile + ".ir", "output mask(b, h, q_idx, kv_idx) -> true\n");
  check(Mod::load(file.path, {.defines = {{"W", "7"}}}).error(), "no constants to define");
  check(Mod::load(file.path, {.mods = {"m"}}).error(), "says itself what the mod is");
  check(Mod::parseIr("", hostile).error(), "the text is empty");
  check(Mod::parseIr("output kv_begin(b, h, q_idx) -> 0", hostile).error(), "is derived by attnc");
  const auto read = take(Mod::parseIr("source \"a\\x1b\"\nscalar n: i32\n%0 = lt i32 0, @n\n"
                                      "output mask(b, h, q_idx, kv_idx) -> true\n"
                                      "output condition_00() -> %0 else \"n\\x1b is 0\"\n"));
  CHECK(read.name() == "a\\x1b");
  Captures captures;
  captures.set("n", 0);
  check(BlockMask::build(read, captures, {1, 1, 1, 64, 64}, {.qLen = 64, .kvLen = 64}).error(), "n\\x1b is 0");
}
