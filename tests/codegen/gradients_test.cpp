// Gradients of the library of mods, as IR and as generated code.
#include "codegen/emit.h"
#include "codegen/host_mods.h"
#include "codegen/library_mods.h"
#include "codegen/mod_source.h"
#include "helpers/differences.h"
#include "ir/interpreter.h"

#include <fmt/format.h>

namespace attnc {
namespace {

using test::HostMods;

/// An entry point for the gradient of mod `number` of a HostMods.
std::string gradientEntry(size_t number) {
  return fmt::format(R"(
extern "C" float gradient_{0}(const unsigned long long* words, int b, int h, int q, int kv, float score, float grad) {{
  using namespace attnc::mod::mod{0};
  ModArgs args;
  memcpy(&args, words, sizeof args);
  auto head = Mod::head(args, b, h);
  auto row = Mod::row(args, head, b, h, q, float(q));
  auto col = Mod::col(args, head, b, h, kv, float(kv), 0.f);
  return Mod::d_score(args, head, row, col, attnc::Coord{{b, h, q, kv}}, score, grad);
}}
)",
                     number);
}
using RunGradient = float (*)(const uint64_t* words, int b, int h, int q, int kv, float score, float grad);

} // namespace

TEST_CASE("gradients of library mods are what central differences say", "[autodiff]") {
  int withCaptures = 0;
  for (const test::LibraryMod& mod :
       test::libraryMods({.batch = 2, .qHeads = 4, .kvHeads = 2, .qLen = 40, .kvLen = 40})) {
    INFO(mod.name);
    test::Widened wide(mod.module, mod.bindings);
    test::Tried tried(wide.module, wide.bindings);
    INFO(ir::print(tried.gradients.module));
    test::Judged ofScore, ofCaptures;
    for (int i = 0; i < 60; ++i) {
      tried.compareScore(test::pointOf(i, mod.problem), ofScore);
      if (i < 12) tried.compareCaptures(test::pointOf(i, mod.problem), ofCaptures);
    }
    CHECK(ofScore.compared == 60);
    CHECK(ofCaptures.left == 0);
    withCaptures += !tried.gradients.captures.empty();
  }
  CHECK(withCaptures >= 6);
}

TEST_CASE("d_score of generated code is that of the IR", "[autodiff]") {
  const std::vector<test::LibraryMod> mods = test::libraryMods();
  struct Entry {
    const test::LibraryMod* mod;
    ir::Module module;
    codegen::ModSource source;
  };
  std::vector<Entry> entries;
  HostMods host;
  std::string extra;
  for (const test::LibraryMod& mod : mods)
    for (bool algebra : {false, true}) {
      ir::Module module = test::gradientsOf(mod.module).module;
      auto source = test::emitMod(module, {.scale = algebra, .rowShift = algebra});
      extra += gradientEntry(host.add(source));
      CHECK(test::emitMod(mod.module).text.find("d_score") == std::string::npos);
      entries.push_back({&mod, std::move(module), std::move(source)});
    }
  host.build(extra);
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    INFO(entry.mod->name << "\n" << entry.source.text);
    // The module with gradients declares its captures in the order of the mod's: both have score and mask first.
    REQUIRE(entry.module.tensors.size() == entry.mod->module.tensors.size());
    const std::vector<uint64_t> words = test::wordsOf(entry.source, entry.mod->bindings);
    auto run = reinterpret_cast<RunGradient>(host.symbol(fmt::format("gradient_{}", i).c_str()));
    const ir::Evaluator evaluator(entry.module, entry.mod->bindings, *entry.module.output(ir::kDScore));
    for (int sample = 0; sample < 200; ++sample) {
      const test::Point at = test::pointOf(sample, entry.mod->problem);
      const auto [b, h, q, kv] = at.coordinates;
      const float grad = float(test::sampleScore(sample + 1));
      const float want = evaluator.evaluate(float(at.score), b, h, q, kv, grad).real;
      const float got = run(words.data(), int(b), int(h), int(q), int(kv), float(at.score), grad);
      INFO("score " << at.score << " grad " << grad << ": got " << got << ", want " << want);
      CHECK(std::fabs(got - want) <= 1e-5f * std::max(1e-3f, std::fabs(want)));
    }
  }
}

} // namespace attnc
