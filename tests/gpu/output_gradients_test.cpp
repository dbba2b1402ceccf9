// Gradients of losses that read outputs of mods, against the fp64 reference.
#include "gpu.h"

using namespace attnc;
using namespace attnc::gputest;

GPU_TEST_CASE("gradients of outputs agree with the reference", "[gpu][backward]") {
  const Mod mod = take(Mod::parse("def mask_mod(b, h, q_idx, kv_idx):\n"
                                  "  return (q_idx >= kv_idx) & (q_idx % 8 != 5)\n"
                                  "def weight(prob, score, b, h, q_idx, kv_idx):\n  return prob\n"
                                  "def surprise(prob, score, b, h, q_idx, kv_idx):\n"
                                  "  return where(prob > 0, -prob * log(prob), 0.0)\n"
                                  "def logit(prob, score, b, h, q_idx, kv_idx):\n  return 0.01 * score * score\n"
                                  "sums: f32[B, H, KV_LEN] = reduce_sum(weight)\n"
                                  "entropy: f32[B, H, Q_LEN] = reduce_sum(surprise)\n"
                                  "logits: f32[B, H] = reduce_sum(logit)\n"));
  const Problem problem{{2, 4, 2, 130, 190}, 64, 64, DType::BF16};
  HostOperands operands = draw(mod, problem);
  std::vector<float> sums(2 * 4 * 190), entropy(2 * 4 * 130), logits{1, -1, 0.5f, 0, 0.25f, -2, 1, 3};
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = std::sin(float(i));
  for (size_t i = 0; i < entropy.size(); ++i) entropy[i] = std::cos(float(i));
  operands.captures.set("sums_gradient", TensorView::contiguous(sums.data(), DType::F32, {2, 4, 190}));
  operands.captures.set("entropy_gradient", TensorView::contiguous(entropy.data(), DType::F32, {2, 4, 130}));
  operands.captures.set("logits_gradient", TensorView::contiguous(logits.data(), DType::F32, {2, 4}));
  const ResultGradients given = drawGradients(problem, /*withLse=*/true);
  checkGradients(runBackward(mod, problem, operands, given, {.family = Family::Auto}),
                 runReferenceBackward(mod, operands, given), problem);
}
