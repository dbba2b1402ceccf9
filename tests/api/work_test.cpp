// How much work a mod may be for NVRTC: counted, held against a limit and told. Needs no GPU; what compiles needs
// NVRTC.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "codegen/mod_source.h"
#include "helpers/plans.h"
#include "jit/nvrtc.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

using namespace attnc;
using Catch::Contains;

namespace {

/// A score_mod of `lines` lines.
Mod modOf(int lines, const char* line = "x = torch.tanh(x)", const char* declarations = "") {
  std::string text =
      fmt::format("import torch\n{}def score_mod(score, b, h, q_idx, kv_idx):\n  x = score\n", declarations);
  for (int k = 1; k <= lines; ++k) text += "  " + fmt::format(fmt::runtime(line), k) + "\n";
  return take(Mod::parse(text + "  return x\n", {.name = "mod.py"}));
}

KernelOptions options(KernelKind kind = KernelKind::Forward, const char* arch = "sm_80") {
  return {.kind = kind, .arch = arch, .headDim = 64};
}

CompilerOptions limited(int64_t maxWork = 0) {
  return {.cacheMode = CompilerOptions::CacheMode::Off, .maxWork = maxWork};
}

/// Whether functions of the generated mod are called.
bool calls(const std::vector<KernelSource>& sources) {
  return std::any_of(sources.begin(), sources.end(), [](const KernelSource& source) {
    return std::any_of(source.headers.begin(), source.headers.end(), [](const auto& header) {
      return header.first == "attnc_mod.cuh" && header.second.find("ATTNC_CALLED") != std::string::npos;
    });
  });
}

} // namespace

TEST_CASE("a mod of more work than the limit is refused, and told by how much", "[api]") {
  const Mod mod = modOf(500);
  for (KernelKind kind : {KernelKind::Forward, KernelKind::Backward, KernelKind::Decode}) {
    auto compiled = test::compiledOf(Compiler(limited()), mod, options(kind)); // at once: NVRTC would take seconds
    REQUIRE_FALSE(compiled);
    CHECK(compiled.error().blame == Blame::Mod);
    CHECK_THAT(compiled.error().message,
               Contains("mod.py: the mod is too long to compile: ") && Contains(", and the limit is 16000"));
    CHECK_THAT(compiled.error().remedy,
               Contains("--max-work") && Contains("CompilerOptions::maxWork") && Contains("ATTNC_MAX_WORK"));
  }
  CHECK_FALSE(test::sourcesOf(Compiler(limited(23'000)), mod, options()));
  CHECK(test::sourcesOf(Compiler(limited(25'000)), mod, options()));
  CHECK_FALSE(test::sourcesOf(Compiler(limited(100)), modOf(3), options()));
}

TEST_CASE("the environment sets the limit of work where no option does", "[api]") {
  const Mod mod = modOf(3);
  ::setenv("ATTNC_MAX_WORK", "100", 1);
  CHECK_THAT(refusalOf(test::sourcesOf(Compiler(limited()), mod, options())).message, Contains("the limit is 100"));
  CHECK(test::sourcesOf(Compiler(limited(1'000)), mod, options()));
  for (const char* nonsense : {"-1", "0", "many", "100k", ""}) {
    ::setenv("ATTNC_MAX_WORK", nonsense, 1);
    std::string warning;
    CompilerOptions how = limited();
    how.log = [&](LogLevel level, std::string_view line) {
      if (level == LogLevel::Warning) warning += line;
    };
    CHECK(test::sourcesOf(Compiler(how), mod, options()));
    CHECK(warning ==
          (*nonsense ? fmt::format("ATTNC_MAX_WORK is `{}`, no number above 0; 16000 is used", nonsense) : ""));
  }
  ::unsetenv("ATTNC_MAX_WORK");
}

TEST_CASE("places where captures get gradients count, and texts that would be endless are not written", "[api]") {
  const auto refused = [](const Mod& mod, int64_t maxWork) {
    KernelOptions backward = options(KernelKind::Backward);
    backward.gradients = {"t"};
    auto source = test::sourcesOf(Compiler(limited(maxWork)), mod, backward);
    return source ? std::string() : source.error().message;
  };
  const char* declared = "t: f32[4096]\n";
  CHECK(refused(modOf(4, "x = x + t[q_idx * {} + kv_idx]", declared), 0).empty());
  CHECK_THAT(refused(modOf(40, "x = x + t[q_idx * {} + kv_idx]", declared), 0), Contains("backward_captures.cu"));
  CHECK(refused(modOf(40, "x = x + t[q_idx * {} + kv_idx]", declared), 100'000).empty());
  // Each gradient is the product of all other reads: the square of their number.
  CHECK_THAT(refused(modOf(3'000, "x = x * t[q_idx * {} + kv_idx]", declared), INT64_MAX),
             Contains("the limit is 1000000"));
}

TEST_CASE("what compiling a mod costs counts its rows, and what they keep for scores", "[api]") {
  const auto made = [](const Mod& mod, bool gradients = false) {
    return take(kernelModOf(mod, {plan::algebraFor(DType::BF16), gradients}));
  };
  const char* sines = "x = x * torch.sin(q_idx * 0.{})";
  CHECK(made(modOf(60, sines))->source.work > made(modOf(30, sines))->source.work + 30 * 10);
  const auto fields = made(modOf(20, "x = x * torch.sin(q_idx * {0}.5) + torch.cos(q_idx * {0}.5)"));
  CHECK(fields->source.work > 40 * (48 + codegen::kFieldWork));
  const auto gradient = take(gradientMod(modOf(3'000, "x = x * t[q_idx * {} + kv_idx]", "t: f32[4096]\n"), {"t"}));
  CHECK(made(gradient, true)->source.text.empty());
}

TEST_CASE("long functions are called, those of the library are not", "[api]") {
  const Compiler compiler(limited());
  const auto called = [&](const Mod& mod, KernelKind kind) {
    auto sources = take(test::sourcesOf(compiler, mod, options(kind, "sm_90a")));
    return calls(sources);
  };
  CHECK_FALSE(called(modOf(5), KernelKind::Forward));
  CHECK(called(modOf(20), KernelKind::Forward));
  CHECK(called(modOf(20), KernelKind::Backward));
  CHECK(called(modOf(20), KernelKind::Decode));
  CHECK(called(modOf(60, "x = x * torch.sin(q_idx * 0.{})"), KernelKind::Forward)); // of a row
  for (const auto& file : std::filesystem::directory_iterator(ATTNC_SOURCE_DIR "/dsl/mods")) {
    if (file.path().extension() != ".py") continue;
    INFO(file.path());
    auto mod = take(Mod::load(file.path().string()));
    for (KernelKind kind : {KernelKind::Forward, KernelKind::Backward, KernelKind::Decode, KernelKind::BlockMask})
      if (auto sources = test::sourcesOf(compiler, mod, options(kind, "sm_90a"))) CHECK_FALSE(calls(*sources));
  }
}

TEST_CASE("what NVRTC makes of a mod grows in step with the mod, up to the limit", "[api]") {
  if (!jit::Nvrtc(jit::Env::read()).supportedArchs()) {
    WARN("SKIPPED: NVRTC was not found");
    return;
  }
  const Compiler compiler(limited());
  const auto lines = [&](int tanhs, const char* arch) {
    auto compiled = take(test::compiledOf(compiler, modOf(tanhs), options(KernelKind::Forward, arch)));
    const std::string& ptx = compiled.front()->ptx;
    return std::count(ptx.begin(), ptx.end(), '\n');
  };
  for (const char* arch : {"sm_80", "sm_90a"}) {
    const auto called = lines(20, arch);
    CHECK(called < 10'000); // 20 tanh at each of 64 scores would be 25000
    CHECK(lines(330, arch) - called < 330 * 25);
  }
}
