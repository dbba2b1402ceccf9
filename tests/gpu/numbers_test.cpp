// Steps of mods (floor, round, casts, comparisons) stand where f32 puts them: kernels and the reference agree.
#include "gpu.h"

using namespace attnc;
using namespace attnc::gputest;

GPU_TEST_CASE("buckets, strides and equalities of floats are those of the reference", "[gpu]") {
  const char* mods[] = {
      // T5's buckets, both directions: at distances of 16, 32 and 64 the logarithm meets a whole number.
      "import torch\ntable: f32[H, 32]\n"
      "def score_mod(score, b, h, q_idx, kv_idx):\n"
      "  distance = torch.abs(q_idx - kv_idx)\n"
      "  far = 8 + (torch.log(distance / 8) / 2.772588722239781 * 8).to(torch.long)\n"
      "  bucket = torch.where(distance < 8, distance, torch.minimum(far, 15))\n"
      "  return score + table[h, bucket + (kv_idx > q_idx) * 16]\n",
      "import torch\n"
      "def score_mod(score, b, h, q_idx, kv_idx):\n"
      "  return score + torch.round(kv_idx * 0.1) - torch.floor(q_idx * 0.7)\n"
      "def mask_mod(b, h, q_idx, kv_idx):\n"
      "  return (torch.abs(torch.round(q_idx * 0.1) - torch.round(kv_idx * 0.1)) <= 3) | (kv_idx * 0.1 == q_idx * "
      "0.3)\n",
  };
  for (const char* text : mods) {
    const Mod mod = take(Mod::parse(text));
    for (DType dtype : {DType::BF16, DType::F32}) {
      const Problem problem{{1, 2, 2, 300, 270}, 64, 64, dtype};
      const HostOperands operands = draw(mod, problem);
      const Outcome expected = runReference(mod, problem, operands);
      for (bool blockMask : {false, true}) {
        if (blockMask && !mod.hasMaskMod()) continue;
        for (Family family : familiesFor(mod, problem, {.blockMask = blockMask})) {
          INFO(text << problem.text() << ", family " << int(family) << (blockMask ? ", block mask" : ""));
          checkClose(runKernel(mod, problem, operands, {.family = family, .blockMask = blockMask}), expected, problem);
        }
      }
    }
  }
}
