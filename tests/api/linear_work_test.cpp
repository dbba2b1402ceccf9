// What a compiler does before NVRTC grows in step with a mod.
#include "api/mod_impl.h"
#include "helpers/take.h"
#include "helpers/visits.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace attnc;
using test::visitsOf;

namespace {

/// A score_mod of `lines` lines.
Mod modOf(const std::string& declarations, const char* line, int lines) {
  std::string text = declarations + "def score_mod(score, b, h, q_idx, kv_idx):\n  x = score\n  i = kv_idx\n";
  for (int k = 1; k <= lines; ++k) text += "  " + fmt::format(fmt::runtime(line), k) + "\n";
  return take(Mod::parse(text + "  return x + i\n", {.name = "mod.py"}));
}

void write(const Mod& mod, bool gradients) {
  auto made = take(kernelModOf(mod, {passes::Algebra{.scale = true, .rowShift = true}, gradients}));
}

} // namespace

TEST_CASE("a mod that reads captures twice as often takes twice the work", "[api]") {
  const auto steps = [](int reads) {
    return visitsOf([&] { write(modOf("t: i32[4096]\n", "i = t[i * 3 + {}]", reads), false); });
  };
  CHECK(steps(1'000) < 2.5 * steps(500));
}

TEST_CASE("gradients of twice as many reads take twice the work", "[api]") {
  const std::pair<const char*, const char*> kMods[] = {
      {"t: f32[4096]\n", "x = x + t[q_idx * {} + kv_idx]"},
      {"t: f32[4096]\nu: f32[4096]\n", "x = x + t[q_idx * {0} + kv_idx] * u[q_idx - kv_idx + {0}]"}};
  for (const auto& [declarations, line] : kMods)
    for (bool gradients : {true, false}) {
      INFO(line << gradients);
      const auto steps = [&, declarations = declarations, line = line](int reads) {
        const Mod mod = modOf(declarations, line, reads);
        return visitsOf([&] {
          auto gradient = take(gradientMod(mod, {"t"}));
          write(gradient, gradients);
        });
      };
      CHECK(steps(1'000) < 2.5 * steps(500));
    }
}
