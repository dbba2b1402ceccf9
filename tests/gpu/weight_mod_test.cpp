// Mods with a weight_mod on every family, and their gradients, against the fp64 reference.
#include "gpu.h"

using namespace attnc;
using namespace attnc::gputest;

namespace {

const std::string kMods[] = {
    "def weight_mod(score, b, h, q_idx, kv_idx):\n  return torch.sigmoid(score - 4.0)\n",
    "bias: f32[H]\n"
    "def weight_mod(score, b, h, q_idx, kv_idx):\n  return torch.relu(score + bias[h]) / 64 - 0.01 * score\n"
    "def mask_mod(b, h, q_idx, kv_idx):\n  return (q_idx >= kv_idx) & (q_idx % 8 != 5)\n",
};

} // namespace

GPU_TEST_CASE("weights of a weight_mod agree with the reference", "[gpu]") {
  for (const std::string& text : kMods) {
    const Mod mod = take(Mod::parse(text));
    for (const Problem& problem :
         {Problem{{2, 4, 2, 130, 190}, 64, 64, DType::BF16}, Problem{{1, 6, 2, 700, 900}, 128, 128, DType::F16},
          Problem{{1, 2, 1, 77, 333}, 256, 256, DType::BF16}, Problem{{2, 6, 2, 3, 700}, 64, 64, DType::BF16},
          Problem{{1, 2, 2, 65, 257}, 40, 24, DType::F32}}) {
      const HostOperands operands = draw(mod, problem);
      const Outcome expected = runReference(mod, problem, operands);
      for (Family family : familiesFor(mod, problem)) {
        INFO(text << problem.text() << ", family " << int(family));
        checkClose(runKernel(mod, problem, operands, {.family = family}), expected, problem, false, 1e-5);
      }
      if (problem.dtype == DType::F32) continue;
      for (Family family : {Family::Auto, Family::Sm80}) {
        INFO(text << problem.text() << ", decode, family " << int(family));
        checkClose(runKernel(mod, problem, operands, {.family = family, .decode = true}), expected, problem, false,
                   1e-5);
      }
    }
  }
}

GPU_TEST_CASE("gradients through a weight_mod agree with the reference", "[gpu][backward]") {
  for (const std::string& text : kMods) {
    const Mod mod = take(Mod::parse(text));
    const Problem problem{{2, 4, 2, 130, 190}, 64, 64, DType::BF16};
    const HostOperands operands = draw(mod, problem);
    const ResultGradients given = drawGradients(problem, /*withLse=*/false);
    INFO(text);
    checkGradients(runBackward(mod, problem, operands, given, {.family = Family::Naive}),
                   runReferenceBackward(mod, operands, given), problem);
  }
}
