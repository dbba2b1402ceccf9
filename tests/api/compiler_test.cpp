// The compiler's caches: what makes another kernel, and what does not. Needs NVRTC, no GPU.
#include "api/compiler_impl.h"
#include "api/mod_impl.h"
#include "api/options_key.h"
#include "attnc/attnc.h"
#include "helpers/plans.h"
#include "helpers/temp_directory.h"
#include "helpers/visits.h"
#include "jit/nvrtc.h"

#include <catch2/catch.hpp>

#include <set>
#include <tuple>
#include <type_traits>

using namespace attnc;

namespace {

bool noNvrtc() {
  if (jit::Nvrtc(jit::Env::read()).supportedArchs()) return false;
  WARN("SKIPPED: NVRTC was not found");
  return true;
}

Mod mod(const char* text, const char* name = "a.py") { return take(Mod::parse(text, {.name = name})); }

KernelOptions options() { return {.family = Family::Naive, .arch = "sm_80", .headDim = 16}; }

CompilerOptions caching(const test::TempDirectory& directory) {
  return {.cacheDirectory = directory.path(), .cacheMode = CompilerOptions::CacheMode::ReadWrite};
}

const char* const kText = "window: int\ndef mask_mod(b, h, q_idx, kv_idx):\n    return q_idx - kv_idx <= window\n";
const char* const kRenamed =
    "# the same\nspan: int\n\ndef mask_mod(batch, head, q, k):\n    d = q - k\n    return d <= span\n";

} // namespace

TEST_CASE("a mod of equal IR is not compiled again, whatever its names, lines and file", "[api]") {
  if (noNvrtc()) return;
  const test::TempDirectory directory;
  auto first = take(test::compiledOf(Compiler(caching(directory)), mod(kText), options()));
  CHECK_FALSE(first.front()->fromDisk);
  auto again = take(test::compiledOf(Compiler(caching(directory)), mod(kRenamed, "/elsewhere/b.py"), options()));
  CHECK(again.front()->fromDisk);
  CHECK(again.front()->cubin == first.front()->cubin);
}

TEST_CASE("the key of a mod's text knows no names, however long", "[api]") {
  const auto keyOf = [](const std::string& name, const char* more = "") {
    auto kernelMod =
        kernelModOf(mod((name + ": f32[KV_LEN, H]\nlast: i32[H]\ndef score_mod(score, b, h, q_idx, kv_idx):\n" +
                         "    return score + " + name + "[kv_idx - last[h], h]" + more + "\n")
                            .c_str(),
                        name.c_str()),
                    passes::Algebra{});
    REQUIRE(kernelMod);
    return (*kernelMod)->source.key;
  };
  CHECK(keyOf("a") == keyOf("a_bias_with_a_name_that_leaves_no_room_to_nest"));
  CHECK(keyOf("a") != keyOf("a", " + 1.0"));
}

TEST_CASE("a mod is derived, analysed and written once for all that ask", "[api]") {
  const Mod window =
      mod("n: int\ndef mask_mod(b, h, q_idx, kv_idx):\n    return (q_idx >= kv_idx) & (q_idx - kv_idx < n)\n");
  KernelOptions forward{.arch = "sm_90a", .headDim = 64, .pins = {{"n", 256}}};
  const Compiler compiler({.cacheMode = CompilerOptions::CacheMode::Off});
  CHECK(test::visitsOf([&] { REQUIRE(test::gainsFromBlockMask(compiler, window, forward)); }) > 0);
  forward.headDim = 128;
  CHECK(test::visitsOf([&] { REQUIRE(test::gainsFromBlockMask(compiler, window, forward)); }) == 0);
  if (noNvrtc()) return;
  CHECK(test::visitsOf([&] { REQUIRE(test::compiledOf(compiler, window, forward)); }) == 0);
}

TEST_CASE("mods of equal IR share no kernel where they differ without aligned queries, or by which function masks",
          "[api]") {
  const CompilerOptions off{.cacheMode = CompilerOptions::CacheMode::Off};
  // One compiler sees both mods.
  const auto check = [&](const std::string& one, const std::string& other, KernelOptions options, bool areEqual) {
    INFO(one << "\n" << other);
    options.arch = "sm_80", options.headDim = 64;
    const Mod first = mod(one.c_str()), second = mod(other.c_str());
    CHECK(first.hash() == second.hash());
    const Compiler compiler(off);
    const auto textOf = [&](const Compiler& of, const Mod& m) {
      return take(test::sourcesOf(of, m, options)).front().flattened();
    };
    const std::string ofFirst = textOf(compiler, first), ofSecond = textOf(compiler, second);
    if (!areEqual) CHECK(ofFirst != ofSecond);
    CHECK(ofSecond == textOf(Compiler(off), second));
    // Machine code knows no names of captures.
    if (options.kind == KernelKind::Backward || !first.captures().empty() || noNvrtc()) return;
    const auto compiled = take(test::compiledOf(compiler, first, options));
    CHECK((compiled.front()->cubin == take(test::compiledOf(compiler, second, options)).front()->cubin) == areEqual);
  };
  const auto masking = [](const std::string& score, const std::string& mask, const std::string& more = "") {
    return more + "def score_mod(s, b, h, q, k):\n    return where(" + score +
           ", s, -inf)\ndef mask_mod(b, h, q, k):\n    return " + mask + "\n";
  };
  const std::string some = "k % 7 != 3", both = "(k % 7 != 3) & (q >= k)";
  for (KernelKind kind : {KernelKind::Forward, KernelKind::Backward})
    for (bool ofWholeMod : {false, true}) {
      KernelOptions options{.kind = kind, .blockSparse = true};
      options.listsOfWholeMod = ofWholeMod;
      check(masking(some, both), masking(both, some), options, ofWholeMod);
    }
  const std::string t = "t: i32[KV_LEN]\n", u = "u: i32[KV_LEN]\n"; // which tensor the score masks by
  check(masking("t[k] > 0", "u[k] > 0", t + u), masking("u[k] > 0", "t[k] > 0", u + t), {.blockSparse = true}, false);
  check("def score_mod(s, b, h, q, k): return s + 0.5 * clamp(q, min=0) * k\n",
        "def score_mod(s, b, h, q, k): return s + 0.5 * q * k\n",
        {.features = {Feature::Lengths}, .offsets = QueryOffsets::Tensor}, false);
}

TEST_CASE("a pin is of the extent that it names, whatever mod of equal IR came first", "[api]") {
  const auto reading = [](const char* extents) {
    return mod((std::string("t: f32[") + extents + "]\ndef score_mod(s, b, h, q, k): return s + t[q, k] * t.shape[0]\n")
                   .c_str());
  };
  const Mod first = reading("N, M"), second = reading("M, N");
  CHECK(first.hash() == second.hash());
  const Compiler compiler({.cacheMode = CompilerOptions::CacheMode::Off});
  const KernelOptions pinned{.arch = "sm_90a", .headDim = 64, .pins = {{"N", 4096}}};
  const auto textOf = [&](const Mod& m) { return take(test::sourcesOf(compiler, m, pinned)).front().flattened(); };
  CHECK(textOf(first) != textOf(second));
}

TEST_CASE("what compiling took is told to the call that it took it, not to later ones", "[api]") {
  if (noNvrtc()) return;
  const test::TempDirectory directory;
  const Compiler compiler(caching(directory));
  const auto expect = [&](const Compiler& from, bool compiles, bool fromDisk) {
    auto kernel = take(test::compiledOf(from, mod(kText), options()));
    CHECK((kernel.front()->compileMs > 0) == compiles);
    CHECK(kernel.front()->fromDisk == fromDisk);
    CHECK(kernel.front()->cubin.size() > 0);
  };
  expect(compiler, true, false);
  expect(compiler, false, false);
  const Compiler other(caching(directory));
  expect(other, false, true);
  expect(other, false, false);
}

TEST_CASE("every member of the options is part of their key", "[api]") {
  const KernelOptions plain = options();
  std::set<std::string> keys{optionsKey(plain)};
  KernelOptions changed = plain;
  const auto change = [&](auto& field) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_enum_v<Field>)
      field = Field(int(field) + 1);
    else if constexpr (std::is_same_v<Field, bool>)
      field = !field;
    else if constexpr (std::is_arithmetic_v<Field>)
      field += 8;
    else if constexpr (std::is_same_v<Field, std::string>)
      field += "a";
    else if constexpr (std::is_same_v<Field, std::set<std::string>>)
      field.insert("bias");
    else if constexpr (std::is_same_v<Field, Features>)
      field.set(Feature::Lengths);
    else
      field["KV_LEN"] = 64;
    CHECK(keys.insert(optionsKey(changed)).second);
    changed = plain;
    CHECK(optionsKey(changed) == optionsKey(plain));
  };
  std::apply([&](auto&... fields) { (change(fields), ...); }, fieldsOf(changed));
  CHECK(keys.size() == 1 + std::tuple_size_v<decltype(fieldsOf(changed))>);
}

TEST_CASE("loads that differ in what their kind does not read share a key", "[api]") {
  auto keyOf = [](KernelOptions options) { return optionsKey(*withArch(std::move(options))); };
  KernelOptions mask = options();
  mask.kind = KernelKind::BlockMask;
  KernelOptions same = mask;
  same.features.set(Feature::RowMax, true);
  same.features.set(Feature::Deterministic, true);
  CHECK(keyOf(same) == keyOf(mask));
  same.kind = mask.kind = KernelKind::Forward;
  CHECK(keyOf(same) != keyOf(mask));
}

TEST_CASE("what is static makes another kernel", "[api]") {
  if (noNvrtc()) return;
  const test::TempDirectory directory;
  const Compiler compiler(caching(directory));
  const auto isNew = [&](const Mod& m, const KernelOptions& o) {
    auto kernel = take(test::compiledOf(compiler, m, o));
    return !kernel.front()->fromDisk && kernel.front()->compileMs > 0;
  };
  REQUIRE(isNew(mod(kText), options()));
  KernelOptions other = options();
  SECTION("arch") { other.arch = "compute_90"; }
  SECTION("dtype") { other.dtype = DType::F16; }
  SECTION("head dim") { other.headDim = 24; }
  SECTION("head dim of v") { other.headDimV = 24; }
  SECTION("block mask") { other.blockSparse = true; }
  SECTION("family") { other.family = Family::Sm80; }
  SECTION("pins") { other.pins = {{"KV_LEN", 64}}; }
  CHECK(isNew(mod(other.pins.empty() ? kText : "kv_idx < KV_LEN - 3"), other));
  CHECK(isNew(mod("window: int\ndef mask_mod(b, h, q_idx, kv_idx):\n    return q_idx - kv_idx < window\n"), options()));
}

TEST_CASE("the flattened source of a kernel stands alone", "[api]") {
  auto source = take(test::sourcesOf(Compiler(), mod(kText), options()));
  const std::string text = source.front().flattened();
  CHECK(text.find("#include \"") == std::string::npos);
  CHECK(text.find("attnc_forward") != std::string::npos);
  CHECK(text.find("window") != std::string::npos);
}

TEST_CASE("requests that no kernel serves are refused with what is served", "[api]") {
  const Compiler compiler;
  const auto messageOf = [&](KernelOptions o) {
    return environmentErrorOf(test::sourcesOf(compiler, Mod::identity(), o));
  };
  KernelOptions o = options();
  o.headDim = 12;
  CHECK(messageOf(o) == "head dim 12 is not supported");
  o = options();
  o.dtype = DType::I32;
  CHECK(messageOf(o) == "q, k and v of i32 are not supported");
  o = options();
  o.arch = "sm_70";
  CHECK(messageOf(o) == "unknown architecture `sm_70`");
  o = options();
  o.blockSparse = true;
  o.maskKvBlock = 96;
  CHECK(messageOf(o) == "block mask: blocks of 128 x 96 are not supported");
  o = options();
  o.family = Family::Sm90;
  CHECK(messageOf(o) == "the sm90 family does not serve this request: it needs arch sm_90a");
}
