// A mod for each sequence: the mods of Mod::choice and of texts give what each mod gives by itself.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "helpers/take.h"
#include "ir/printer.h"
#include "plan/kernel_mod.h"

#include <catch2/catch.hpp>

#include <random>
#include <regex>

using namespace attnc;

namespace {

const char* const kCausal = "q_idx >= kv_idx";
const char* const kPrefix = "prefix: i32[B]\ndef mask_mod(b, h, q, k):\n    return (q >= k) | (k < prefix[b])\n";
const char* const kAlibi = "slopes: f32[H]\ndef score_mod(s, b, h, q, k):\n    return s + slopes[h] * (k - q)\n";

std::vector<Mod> mods() {
  return {take(Mod::parse(kCausal, {.name = "causal"})), take(Mod::parse(kPrefix, {.name = "prefix"})),
          take(Mod::parse(kAlibi, {.name = "alibi"}))};
}

/// Four sequences of 9 queries and 12 keys in two heads, with one choice.
struct Problem {
  static constexpr int64_t kBatch = 4, kHeads = 2, kQueries = 9, kKeys = 12, kDim = 8;
  std::vector<float> q, k, v, slopes = {0.5f, 0.25f};
  std::vector<int32_t> which, prefix = {3, 7, 5, 11};

  explicit Problem(std::vector<int32_t> which) : which(std::move(which)) {
    std::mt19937 random(3);
    for (auto [data, rows] : {std::pair(&q, kQueries), {&k, kKeys}, {&v, kKeys}})
      for (int64_t i = 0; i < kBatch * kHeads * rows * kDim; ++i)
        data->push_back(std::normal_distribution<float>()(random));
  }

  static TensorView view(std::vector<float>& data, int64_t rows) {
    return TensorView::contiguous(data.data(), DType::F32, {kBatch, kHeads, rows, kDim});
  }

  Expected<std::vector<float>> run(const Mod& mod) {
    Captures captures;
    for (const CaptureInfo& capture : mod.captures()) {
      if (capture.name == "slopes") captures.set("slopes", TensorView::contiguous(slopes.data(), DType::F32, {kHeads}));
      for (auto [name, data] : {std::pair("which", &which), {"prefix", &prefix}})
        if (capture.name == name) captures.set(name, TensorView::contiguous(data->data(), DType::I32, {kBatch}));
    }
    std::vector<float> out(q.size());
    const Operands operands{.q = view(q, kQueries), .k = view(k, kKeys), .v = view(v, kKeys), .captures = &captures};
    const Status done = computeOnCpu(mod, operands, {.out = view(out, kQueries)});
    if (!done) return done.error();
    return out;
  }
};

std::string messageOf(const std::vector<Mod>& mods, const char* which) {
  const auto made = Mod::choice(mods, which);
  REQUIRE_FALSE(made);
  return made.error().message;
}

} // namespace

TEST_CASE("each sequence has the mod that it names", "[choice]") {
  Problem problem({2, 0, 1, 0});
  const Mod all = take(Mod::choice(mods(), "which: i32[B]"));
  CHECK(all.name() == "choice(causal, prefix, alibi)");
  const Mod text = take(Mod::parse("which: i32[B]\nprefix: i32[B]\nslopes: f32[H]\n"
                                   "def causal(b, h, q, k): return q >= k\n"
                                   "def seen(b, h, q, k): return (q >= k) | (k < prefix[b])\n"
                                   "def same(s, b, h, q, k): return s\n"
                                   "def alibi(s, b, h, q, k): return s + slopes[h] * (k - q)\n"
                                   "mask_mod = choice(which, causal, seen, noop_mask)\n"
                                   "score_mod = choice(which, same, same, alibi)\n"));
  const std::vector<float> out = take(problem.run(all)), ofText = take(problem.run(text));
  CHECK(out == ofText);
  const size_t size = out.size() / Problem::kBatch;
  for (size_t b = 0; b < Problem::kBatch; ++b) {
    const std::vector<float> alone = take(problem.run(mods()[size_t(problem.which[b])]));
    for (size_t i = b * size; i < (b + 1) * size; ++i) REQUIRE(out[i] == Approx(alone[i]).margin(1e-6));
  }
}

TEST_CASE("a choice has the sinks of its mods, and none where a mod has none", "[choice]") {
  Problem problem({1, 0, 0, 1});
  const std::vector<Mod> of = {
      take(Mod::parse(kCausal)),
      take(Mod::parse("slopes: f32[H]\ndef sink_mod(b, h, q_idx):\n    return slopes[h] + 0.125 * q_idx\n"))};
  const Mod all = take(Mod::choice(of, "which: i32[B]"));
  CHECK(all.hasSinkMod());
  const std::vector<float> out = take(problem.run(all));
  const size_t size = out.size() / Problem::kBatch;
  for (size_t b = 0; b < Problem::kBatch; ++b) {
    const std::vector<float> alone = take(problem.run(of[size_t(problem.which[b])]));
    for (size_t i = b * size; i < (b + 1) * size; ++i) REQUIRE(out[i] == Approx(alone[i]).margin(1e-6));
  }
}

TEST_CASE("a choice tells its captures, and survives as IR", "[choice]") {
  const Mod all = take(Mod::choice(mods(), "which: u8[B]"));
  std::map<std::string, int64_t> choices;
  for (const CaptureInfo& capture : all.captures()) choices[capture.name] = capture.choices;
  CHECK(choices == std::map<std::string, int64_t>{{"which", 3}, {"prefix", 0}, {"slopes", 0}});
  const Mod back = take(Mod::parseIr(all.irText()));
  CHECK(back.hash() == all.hash());
  CHECK(back.irText() == all.irText());
  // Mods may share a capture, and the one that chooses; conditions of each hold.
  const Mod twice = take(Mod::choice({all, mods()[2], mods()[2]}, "which: u8[B]"));
  CHECK(twice.captures().size() == 3);
  const Mod asserts = take(Mod::parse("n: int\nassert n < 9, 'n is too large'\nmask_mod = lambda b, h, q, k: q < n"));
  CHECK_THAT(take(Mod::choice({asserts, asserts}, "which: i32[B]")).irText(),
             Catch::Contains("condition_00") && Catch::Contains("condition_01"));
}

TEST_CASE("a sequence that names no mod is an error on the CPU", "[choice]") {
  const Mod all = take(Mod::choice(mods(), "which: i32[B]"));
  for (const int32_t wrong : {3, -1}) {
    const auto out = Problem({0, 1, wrong, 2}).run(all);
    REQUIRE_FALSE(out);
    CHECK(out.error().blame == Blame::Environment);
    CHECK_THAT(out.error().message, Catch::Contains("capture 'which' is " + std::to_string(wrong) +
                                                    " for sequence 2, and chooses between 3 mods"));
    Captures captures;
    std::vector<int32_t> which = {0, 1, wrong, 2}, prefix(4);
    std::vector<float> slopes(2);
    captures.set("which", TensorView::contiguous(which.data(), DType::I32, {4}));
    captures.set("prefix", TensorView::contiguous(prefix.data(), DType::I32, {4}));
    captures.set("slopes", TensorView::contiguous(slopes.data(), DType::F32, {2}));
    CHECK_FALSE(BlockMask::build(all, captures, {4, 2, 2, 64, 64}, {.batch = 4, .heads = 2, .qLen = 64, .kvLen = 64}));
  }
}

TEST_CASE("kernels do not depend on the mixture, and have a text for each mod", "[choice]") {
  const auto planOf = [](const Mod& mod) {
    return take(Compiler().plan(mod, {.family = Family::Sm90, .arch = "sm_90a", .headDim = 64}));
  };
  const auto variantsOf = [](const Mod& mod) {
    std::vector<std::string> texts;
    for (const codegen::Variant& variant : take(kernelModOf(mod, plan::algebraFor(DType::BF16)))->variants) {
      std::string text = ir::print(variant.module);
      texts.push_back(std::regex_replace(text.substr(text.find("\n%") + 1), std::regex(" ![0-9]+"), ""));
    }
    return texts;
  };
  const Mod all = take(Mod::choice(mods(), "which: i32[B]"));
  const std::vector<std::string> variants = variantsOf(all);
  REQUIRE(variants.size() == 3);
  CHECK(planOf(all).kvLoop() == KvLoop::Bounds);
  // Numbers of a launch are no part of the key: sources of kernels are all that is compiled.
  Problem problem({0, 1, 2, 0});
  std::vector<std::string> keys;
  for (const std::vector<int32_t>& which : {std::vector<int32_t>{0, 1, 2, 0}, {2, 2, 2, 2}}) {
    problem.which = which;
    keys.push_back(take(planOf(all).sources()).at(0).modKey);
  }
  CHECK(keys[0] == keys[1]);
  // Chains that users write; what is otherwise is a variant of its own.
  const std::string head = "which: i32[B]\nprefix: i32[B]\nslopes: f32[H]\n";
  const Mod chain = take(Mod::parse(head + "def score_mod(s, b, h, q, k):\n"
                                           "    return where(which[b] == 2, s + slopes[h] * (k - q), s)\n"
                                           "def mask_mod(b, h, q, k):\n    w = which[b]\n"
                                           "    return where(w == 0, q >= k, where(w == 1, (q >= k) | (k < prefix[b]), "
                                           "where(w == 2, True, False)))\n"));
  const std::vector<std::string> written = variantsOf(chain);
  REQUIRE(written.size() == 4);
  for (size_t i = 0; i < 3; ++i) CHECK(written[i] == variants[i]);
  // A number that a mod only computes with makes none, nor do more mods than kernels have loops for.
  CHECK(variantsOf(
            take(Mod::parse("which: i32[B]\nmask_mod = lambda b, h, q, k: q - k < where(which[b] == 0, 128, 512)")))
            .empty());
  CHECK(variantsOf(take(Mod::choice(std::vector<Mod>(9, mods()[0]), "which: i32[B]"))).empty());
}

TEST_CASE("what cannot be a choice is refused", "[choice]") {
  CHECK_THAT(messageOf({}, "which: i32[B]"), Catch::Contains("no mods"));
  for (const char* which : {"which: i32[H]", "which: f32[B]", "which: i32[B, 1]", "which: int"})
    CHECK_THAT(messageOf(mods(), which), Catch::Contains("one int for each sequence, `which: i32[B]`"));
  CHECK_THAT(messageOf(mods(), "which"), Catch::Contains("`which` is not defined"));
  const Mod other = take(Mod::parse("slopes: f32[B]\nscore_mod = lambda s, b, h, q, k: s * slopes[b]"));
  CHECK_THAT(messageOf({mods()[2], other}, "which: i32[B]"), Catch::Contains("`slopes` has two declarations"));
  CHECK_THAT(messageOf(mods(), "prefix: u8[B]"), Catch::Contains("`prefix` has two declarations"));
}
