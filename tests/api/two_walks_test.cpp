// Mods whose prob_mod is no multiple of the weight: their plans, and what does not take them.
#include "attnc/attnc.h"
#include "helpers/take.h"

#include <catch2/catch.hpp>

using namespace attnc;
using Catch::Contains;

namespace {

const std::string kSquare = "def prob_mod(prob, b, h, q_idx, kv_idx):\n  return prob * prob\n";

Compiler uncached() { return Compiler({.cacheMode = CompilerOptions::CacheMode::Off}); }

std::string refusal(const Mod& mod, const KernelOptions& options) {
  const auto plan = uncached().plan(mod, options);
  REQUIRE_FALSE(plan);
  return plan.error().message;
}

} // namespace

TEST_CASE("a prob_mod that is no multiple of the weight takes two walks") {
  const Mod mod = take(Mod::parse(kSquare)), half = take(Mod::parse("def prob_mod(prob, b, h, q, k): return prob / 2"));
  CHECK(mod.walksTwice());
  CHECK_FALSE(half.walksTwice());
  for (Family family : {Family::Auto, Family::Sm90, Family::Sm80, Family::Naive}) {
    KernelOptions options{.family = family, .arch = "sm_90a"};
    CHECK(take(take(uncached().plan(half, options)).sources()).size() == 1);
    for (bool wantsRowMax : {false, true}) {
      options.features.set(Feature::RowMax, wantsRowMax);
      const auto sources = take(take(uncached().plan(mod, options)).sources());
      REQUIRE(sources.size() == 2);
      CHECK(sources[0].templateName == sources[1].templateName);
      const auto modOf = [&](size_t stage) {
        for (const auto& [name, text] : sources[stage].headers)
          if (name == "attnc_mod.cuh") return text;
        return std::string();
      };
      CHECK_THAT(modOf(0), !Contains("kIsWeight"));
      CHECK_THAT(modOf(1), Contains("kIsWeight = true") && Contains("attnc_lse"));
      CHECK_THAT(modOf(1), Contains("min_of")); // else sqrt(1 - prob) is NaN where lse is rounded down
    }
  }
  for (Family family : {Family::Sm90, Family::Sm80}) {
    const Plan decode = take(uncached().plan(mod, {.kind = KernelKind::Decode, .family = family, .arch = "sm_90a"}));
    CHECK(take(decode.sources()).size() == 2);
  }
  const Plan backward = take(uncached().plan(mod, {.kind = KernelKind::Backward, .arch = "sm_90a"}));
  CHECK(backward.options().family == Family::Naive);
  CHECK_THAT(take(backward.sources()).front().templateName, Contains("backward_prob.cu"));
}

TEST_CASE("what does not take two walks says so") {
  const Mod taken = take(Mod::parse("attnc_lse: f32[H]\n"
                                    "def prob_mod(prob, b, h, q_idx, kv_idx):\n  return prob * prob + attnc_lse[h]\n"));
  CHECK_THAT(refusal(taken, {.arch = "sm_90a"}), Contains("declares 'attnc_lse'"));
  const Mod mod = take(Mod::parse(kSquare)), causal = take(Mod::parse("q_idx >= kv_idx"));
  CHECK_THAT(refusal(mod, {.kind = KernelKind::Backward, .family = Family::Sm80, .arch = "sm_90a"}),
             Contains("takes no prob_mod but multiples of prob"));
  KernelOptions tangents{.kind = KernelKind::Backward, .arch = "sm_90a"};
  tangents.features.set(Feature::Tangents);
  CHECK_THAT(refusal(mod, tangents), Contains("no multiple of prob, have no tangents"));
  const auto choice = Mod::choice({mod, causal}, "which: i32[B]");
  REQUIRE_FALSE(choice);
  CHECK_THAT(choice.error().message, Contains("is no multiple of prob"));
}
