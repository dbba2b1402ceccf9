// One score on its way through a mod.
#include "attnc/explain.h"
#include "helpers/take.h"
#include "helpers/visits.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace attnc;

TEST_CASE("a mod of twice as many lines takes probe twice the work", "[inspect]") {
  const auto steps = [](int lines) {
    std::string text = "import torch\ndef score_mod(score, b, h, q_idx, kv_idx):\n";
    for (int k = 1; k <= lines; ++k)
      text += fmt::format("  score = torch.where(q_idx > {0}, score + {0}, score * {0})\n", k);
    auto mod = take(Mod::parse(text + "  return score\n"));
    return test::visitsOf([&] {
      auto probed = take(probe(mod, {}, {.qLen = 8, .kvLen = 8}, {.q = 5, .kv = 3, .score = 1}));
      CHECK(probed.scoreMod->values.size() >= size_t(lines));
    });
  };
  CHECK(steps(200) < 2.5 * steps(100));
}
