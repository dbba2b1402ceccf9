// .detach() stops gradients and nothing else: forward kernels are those of the mod without it.
#include "attnc/attnc.h"
#include "helpers/plans.h"

#include <catch2/catch.hpp>

#include <fstream>

using namespace attnc;

namespace {

Mod parsed(const std::string& score, const std::string& mask = "q_idx >= kv_idx") {
  return take(Mod::parse("import torch\ncap: float\nslopes: f32[H]\nbias: f32[H, KV_LEN]\nsmall: f32[4]\n"
                         "def score_mod(score, b, h, q_idx, kv_idx):\n  return " +
                         score + "\ndef mask_mod(b, h, q_idx, kv_idx):\n  return " + mask + "\n"));
}

std::string without(std::string text, const std::string& part) {
  for (size_t at; (at = text.find(part)) != std::string::npos;) text.erase(at, part.size());
  return text;
}

size_t stopsIn(const Mod& mod) {
  const std::string text = mod.irText(), word = "stop_gradient";
  size_t count = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++count;
  return count;
}

} // namespace

TEST_CASE("a detached value keeps its mark, and a forward kernel does not see it") {
  const Compiler compiler({.cacheMode = CompilerOptions::CacheMode::Off});
  for (const char* score :
       {"cap * torch.tanh(score.detach() / cap)", "score + slopes[h].detach() * (kv_idx - q_idx)",
        "score.detach() + slopes.detach()[h] * (kv_idx - q_idx)", "(score * 2).detach() * 2 + bias[h, kv_idx]",
        "score + bias.detach()[h][kv_idx] + small.detach().sum()",
        "score + (small * 2).detach().sum() + small[1].item()", "torch.detach(score) - -slopes[h].detach()"}) {
    INFO(score);
    const Mod stopped = parsed(score),
              plain = parsed(without(without(without(score, ".detach()"), ".item()"), "torch.detach"));
    INFO(stopped.irText());
    CHECK(stopsIn(stopped) > 0);
    CHECK(stopsIn(plain) == 0);
    CHECK(stopped.hash() != plain.hash());
    for (Family family : {Family::Naive, Family::Sm80, Family::Sm90}) {
      KernelOptions options{.family = family, .arch = "sm_90a", .headDim = 64};
      auto a = take(test::sourcesOf(compiler, stopped, options)), b = take(test::sourcesOf(compiler, plain, options));
      CHECK(a.front().flattened() == b.front().flattened());
      auto wantsA = take(test::gainsFromBlockMask(compiler, stopped, options)),
           wantsB = take(test::gainsFromBlockMask(compiler, plain, options));
      CHECK(wantsA == wantsB);
    }
  }
}

TEST_CASE("masks, indices and conditions drop the mark at once") {
  CHECK(stopsIn(parsed("torch.where(score.detach() > 0, score, 0.0)")) == 0);
  CHECK(stopsIn(parsed("score * torch.floor(score.detach())")) == 0);
  CHECK(stopsIn(parsed("score * cap.detach()")) == 1);
  CHECK(stopsIn(parsed("score * (q_idx - kv_idx).detach()")) == 0);
  CHECK(stopsIn(parsed("score + bias[h, (score.detach() * 4).int() % 4].detach()")) == 1);
  CHECK(stopsIn(parsed("score", "bias[h, kv_idx].detach() * 2 > slopes.detach()[h]")) == 0);
}

TEST_CASE("IR with the mark reads back as it was printed") {
  const Mod mod = parsed("score.detach().detach() * score");
  CHECK(stopsIn(mod) == 1);
  const std::string path = std::string(ATTNC_BINARY_DIR) + "/detach_test.ir";
  std::ofstream(path) << mod.irText();
  auto again = take(Mod::load(path));
  CHECK(again.irText() == mod.irText());
  CHECK(again.hash() == mod.hash());
}
