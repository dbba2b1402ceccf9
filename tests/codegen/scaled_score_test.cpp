// Mods with separate factors of the score, run on the host and compared with the same mods without them: a kernel with
// the hooks computes the same as one without.
#include "codegen/emit.h"
#include "codegen/host_mods.h"
#include "codegen/mod_source.h"
#include "helpers/traced.h"
#include "ir/bind.h"

#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace attnc {
namespace {

using test::HostMods;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// An entry point like run_N of HostMods, which applies the factors of mod `number`.
std::string scaledEntry(size_t number) {
  return fmt::format(R"(
extern "C" float scaled_{0}(const unsigned long long* words, int h, int q, int kv, float score) {{
  using namespace attnc::mod::mod{0};
  ModArgs args;
  memcpy(&args, words, sizeof args);
  auto head = Mod::head(args, 0, h);
  auto row = Mod::row(args, head, 0, h, q, float(q));
  auto col = Mod::col(args, head, 0, h, kv, float(kv), 0.f);
  auto factors = Mod::factors(args, head);
  return Mod::score(args, head, row, col, attnc::Coord{{0, h, q, kv}}, score * factors.in) * factors.out;
}}
)",
                     number);
}
using RunScaled = float (*)(const uint64_t* words, int h, int q, int kv, float score);

ir::Module scoreOf(const std::string& expression) { return test::scoreMod("cap: float\n", expression); }

bool isClose(float got, float want) {
  if (std::isnan(want) || std::isinf(want)) return std::isnan(want) ? std::isnan(got) : got == want;
  return std::fabs(got - want) <= 1e-5f * std::fabs(want) + 1e-30f;
}

} // namespace

TEST_CASE("a mod with factors apart computes what it computes without, for every factor there is", "[scaled_score]") {
  const char* expressions[] = {"cap * torch.tanh(score / cap)",
                               "50.0 * torch.tanh(score / 50.0)",
                               "cap * torch.tanh(score / cap) + 0.25 * (kv_idx - q_idx)",
                               "-2.0 * torch.erf(score * 3.0)",
                               "cap * torch.sigmoid(score / cap)",
                               "cap * torch.tanh(score)"};
  HostMods host;
  std::vector<ir::Module> modules;
  std::vector<codegen::ModSource> plain, scaled;
  std::string extra;
  for (const char* expression : expressions) {
    modules.push_back(scoreOf(expression));
    plain.push_back(test::emitMod(modules.back()));
    scaled.push_back(test::emitMod(modules.back(), {.scale = true}));
    INFO(expression);
    CHECK(plain.back().text != scaled.back().text);
    CHECK(plain.back().text.find("scale_in") == std::string::npos);
    extra += scaledEntry(host.add(plain.back()));
    extra += scaledEntry(host.add(scaled.back()));
  }
  host.build(extra);
  auto entry = [&](size_t i) { return reinterpret_cast<RunScaled>(host.symbol(fmt::format("scaled_{}", i).c_str())); };
  const ProblemShape problem{.batch = 1, .qHeads = 2, .kvHeads = 1, .qLen = 9, .kvLen = 9};
  for (size_t i = 0; i < modules.size(); ++i)
    for (float cap : {30.0f, 0.5f, -30.0f, 1e-30f, 1e30f, 0.0f, -0.0f, kInfinity, -kInfinity, NAN})
      for (float score : {0.0f, 1.0f, -1.0f, 7.5f, -300.0f, 1e-20f, kInfinity, -kInfinity, NAN}) {
        Captures captures;
        captures.set("cap", double(cap));
        auto bindings = take(ir::bind(modules[i], captures, problem));
        uint64_t words[2][8] = {};
        codegen::packArgs(plain[i].slots, bindings, &test::kZero, words[0]);
        codegen::packArgs(scaled[i].slots, bindings, &test::kZero, words[1]);
        float want = entry(2 * i)(words[0], 1, 5, 2, score), got = entry(2 * i + 1)(words[1], 1, 5, 2, score);
        INFO(expressions[i] << " cap " << cap << " score " << score << ": " << got << " for " << want << "\n"
                            << scaled[i].text);
        CHECK(isClose(got, want));
      }
}

TEST_CASE("the form of a score is the cheapest that computes it", "[exponents]") {
  const auto formOf = [](const std::string& expression, passes::Algebra options) {
    const std::string text = test::emitMod(scoreOf(expression), options).text, word = "using Exponents = ";
    const size_t at = text.find(word) + word.size();
    return text.substr(at, text.find(';', at) - at);
  };
  const passes::Algebra all = {.scale = true, .rowShift = true};
  CHECK(formOf("score", all) == "ProductExponents");
  CHECK(formOf("score + cap * (kv_idx - q_idx)", all) == "LinearExponents");
  CHECK(formOf("score + cap * (kv_idx - q_idx)", {}) == "ScoreExponents");
  CHECK(formOf("2.0 * torch.tanh(score + cap * (kv_idx - q_idx))", all) == "ScoreExponents");
  CHECK(formOf("cap * torch.tanh(score / cap)", all) == "TanhExponents<true>");
  CHECK(formOf("cap * torch.tanh(score / cap)", {.rowShift = true}) == "ScoreExponents");
  CHECK(formOf("cap * torch.sigmoid(score / cap)", all) == "ScoreExponents");
}

TEST_CASE("a mod with the row's term apart gives the same sums from every origin", "[row_shift]") {
  auto module = scoreOf("score - cap * (q_idx - kv_idx)");
  codegen::ModSource source = test::emitMod(module, {.rowShift = true});
  CHECK(test::emitMod(module).text.find("kAnyOrigin = false") != std::string::npos);
  HostMods host;
  host.add(source);
  INFO(source.text);
  host.build(R"(
extern "C" float shifted(const unsigned long long* words, int q, int kv, int origin, bool byOffset) {
  using namespace attnc::mod::mod0;
  static_assert(Mod::kAnyOrigin, "");
  ModArgs args;
  memcpy(&args, words, sizeof args);
  auto head = Mod::head(args, 0, 1);
  auto row = Mod::row(args, head, 0, 1, q, float(q - origin));
  auto col = byOffset ? Mod::col(args, head, 0, 1, kv, float(kv - 5 - origin), 5.0f)
                      : Mod::col(args, head, 0, 1, kv, float(kv - origin), 0.0f);
  return Mod::score(args, head, row, col, attnc::Coord{0, 1, q, kv}, 1.5f) + Mod::row_shift(args, head, row);
}
)");
  auto shifted = reinterpret_cast<float (*)(const uint64_t*, int, int, int, bool)>(host.symbol("shifted"));
  Captures captures;
  captures.set("cap", 0.75);
  auto bindings = take(ir::bind(module, captures, {.batch = 1, .qHeads = 2, .kvHeads = 1, .qLen = 99, .kvLen = 99}));
  uint64_t words[8] = {};
  codegen::packArgs(source.slots, bindings, &test::kZero, words);
  for (int q : {0, 7, 98})
    for (int kv : {0, 6, 64, 98})
      for (int origin : {0, 64, -3})
        for (bool byOffset : {false, true}) {
          INFO(q << " " << kv << " " << origin << " " << byOffset);
          CHECK(shifted(words, q, kv, origin, byOffset) == 1.5f + 0.75f * float(kv - q)); // exact in these sizes
        }
}

} // namespace attnc
