// Low-rank terms of scores, in columns of q and k, against the reference: all dtypes of factors, heads that share k,
// lengths and offsets, lists, and mods that do more with the score afterwards.
#include "gpu.h"

#include <fmt/format.h>

using namespace attnc;
using namespace attnc::gputest;

namespace {

Mod modOf(const std::string& text) { return take(Mod::parse(text)); }

/// score + u w, with factors of these dtypes. `after`: what becomes of the sum `s`.
std::string dotMod(int rank, const std::string& u, const std::string& w, const std::string& headOfW = "h",
                   const std::string& after = "s") {
  return fmt::format("import torch\nu: {1}[B, H, Q_LEN, {0}]\nw: {2}[B, H, KV_LEN, {0}]\ngain: float\n"
                     "def score_mod(score, b, h, q_idx, kv_idx):\n"
                     "    s = score + gain * (u[b, h, q_idx] @ w[b, {3}, kv_idx])\n    return {4}\n"
                     "def mask_mod(b, h, q_idx, kv_idx):\n    return (q_idx - kv_idx) % 5 != 1\n",
                     rank, u, w, headOfW, after);
}

/// Checks the families whose kernels take the term with the score.
void check(const std::string& text, const Problem& problem, const RunOptions& base = {},
           const std::vector<int32_t>& lengths = {}) {
  const Mod mod = modOf(text);
  HostOperands operands = draw(mod, problem);
  operands.kvLengths = lengths;
  const std::optional<QueryOffsets> offsets = base.offsets;
  // Products with a query's numbers of bf16 may err by 2^-16 of themselves; their sizes add up to 8.
  const double termError = text.find("u: bf16") != std::string::npos ? 8 * 0x1p-16 : 0;
  const Outcome expected = runReference(mod, problem, operands, base.scale, offsets);
  for (Family family : familiesFor(mod, problem, base)) {
    RunOptions options = base;
    options.family = family;
    INFO(text << problem.text() << ", family " << int(family));
    checkClose(runKernel(mod, problem, operands, options), expected, problem, false, termError);
  }
}

} // namespace

TEST_CASE("low-rank terms in columns of q and k agree with the reference", "[gpu]") {
  ATTNC_NEED_GPU();
  check(dotMod(64, "bf16", "bf16"), {{2, 4, 4, 129, 257}, 64, 64});
  check(dotMod(64, "bf16", "bf16", "0"), {{1, 3, 1, 300, 200}, 128, 128});
  check(dotMod(16, "f32", "bf16", "0"), {{1, 6, 2, 127, 63}, 128, 128});
  check(dotMod(16, "bf16", "f32"), {{1, 4, 2, 65, 400}, 128, 64});
  check(dotMod(16, "f32", "f32"), {{2, 4, 2, 193, 191}, 128, 128});
  check(dotMod(20, "f16", "f32", "0"), {{1, 2, 1, 17, 400}, 72, 40});
  check(dotMod(16, "f32", "f32", "h", "torch.tanh(s / 3.0) * 3.0"), {{1, 2, 2, 256, 129}, 64, 64});
  check(dotMod(16, "bf16", "bf16", "h", "s + 0.125 * (kv_idx - q_idx)"), {{1, 2, 2, 256, 129}, 64, 64});
}

TEST_CASE("low-rank terms go with strides, broadcast batches, lists and scales", "[gpu]") {
  ATTNC_NEED_GPU();
  check(dotMod(16, "bf16", "bf16"), {{2, 4, 2, 129, 257}, 64, 64, DType::BF16, true});
  check(dotMod(16, "bf16", "bf16"), {{2, 4, 2, 129, 257}, 64, 64, DType::BF16, false, true, 8});
  check(dotMod(16, "bf16", "f32", "0"), {{2, 4, 2, 129, 257}, 64, 64}, {.blockMask = true});
  for (float scale : {0.f, -0.25f, 1.f, 0x1p-80f})
    check(dotMod(16, "bf16", "bf16"), {{1, 2, 2, 130, 130}, 64, 64}, {.scale = scale});
  check(dotMod(16, "bf16", "bf16"), {{3, 2, 2, 40, 300}, 64, 64},
        {.offsets = QueryOffsets::FromLengths, .decode = false}, {300, 41, 0});
  check(dotMod(16, "bf16", "bf16"), {{1, 2, 2, 130, 130}, 64, 64}, {.launches = 3});
}

TEST_CASE("gradients of q, k and v with a low-rank term in columns agree with the reference", "[gpu][backward]") {
  ATTNC_NEED_GPU();
  const auto checkBackward = [](const std::string& text, const Problem& problem, std::optional<float> scale = {},
                                bool deterministic = false) {
    const Mod mod = modOf(text);
    const HostOperands operands = draw(mod, problem);
    const ResultGradients given = drawGradients(problem, /*withLse=*/true);
    const Gradients expected = runReferenceBackward(mod, operands, given, scale);
    for (Family family : familiesFor(mod, problem)) {
      INFO(text << problem.text() << ", family " << int(family) << (deterministic ? ", deterministic" : ""));
      checkGradients(runBackward(mod, problem, operands, given,
                                 {.family = family, .scale = scale, .deterministic = deterministic}),
                     expected, problem);
    }
  };
  checkBackward(dotMod(64, "bf16", "bf16"), {{2, 4, 4, 129, 257}, 128, 128});
  checkBackward(dotMod(64, "bf16", "bf16", "0"), {{1, 3, 1, 300, 200}, 64, 64});
  checkBackward(dotMod(16, "f32", "f32"), {{2, 4, 2, 193, 191}, 128, 128});
  checkBackward(dotMod(16, "bf16", "f32"), {{2, 4, 2, 65, 400}, 72, 40, DType::BF16, true});
  checkBackward(dotMod(16, "bf16", "bf16"), {{2, 4, 2, 129, 257}, 64, 64, DType::BF16, false, true, 8});
  checkBackward(dotMod(16, "f32", "f32", "h", "torch.tanh(s / 3.0) * 3.0"), {{1, 2, 2, 256, 129}, 64, 64});
  checkBackward(dotMod(16, "bf16", "bf16", "h", "s + 0.125 * (kv_idx - q_idx)"), {{1, 2, 2, 256, 129}, 64, 64});
  for (float scale : {0.f, -0.25f, 0x1p-80f})
    checkBackward(dotMod(16, "bf16", "bf16"), {{1, 2, 2, 130, 130}, 64, 64}, scale);
  for (const ProblemShape& shape : {ProblemShape{1, 2, 2, 0, 5}, {1, 2, 2, 5, 0}, {1, 2, 2, 1, 1}})
    checkBackward(dotMod(16, "bf16", "bf16"), {shape, 64, 64});
  checkBackward(dotMod(16, "bf16", "bf16"), {{1, 2, 2, 130, 130}, 64, 64}, {}, /*deterministic=*/true);
}
