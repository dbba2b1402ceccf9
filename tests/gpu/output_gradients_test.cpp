// Gradients of losses that read outputs of mods, against the fp64 reference.
#include "gpu.h"

#include <cmath>

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

GPU_TEST_CASE("gradients of outputs of weights agree with the reference on tensor cores", "[gpu][backward]") {
  const std::string outputs = "def weight(prob, score, b, h, q_idx, kv_idx):\n  return prob\n"
                              "def surprise(prob, score, b, h, q_idx, kv_idx):\n"
                              "  return where(prob > 0, -prob * log(prob), 0.0)\n"
                              "def far(prob, score, b, h, q_idx, kv_idx):\n  return prob * (q_idx >= kv_idx + 50)\n"
                              "sums: f32[B, H, KV_LEN] = reduce_sum(weight)\n"
                              "entropy: f32[B, H, Q_LEN] = reduce_sum(surprise)\n"
                              "mass: f32[B, H] = reduce_sum(far)\n";
  const std::string causal = "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx - 9\n";
  const std::string scores = "slopes: f32[H]\ntilt: f32[H]\n"
                             "def score_mod(score, b, h, q_idx, kv_idx):\n"
                             "  return tanh(score) * 2 + slopes[h] * (q_idx - kv_idx) * 0.01\n"
                             "def mask_mod(b, h, q_idx, kv_idx):\n  return (q_idx >= kv_idx - 9) & (q_idx % 8 != 5)\n"
                             "def sink_mod(b, h, q_idx):\n  return tilt[h]\n";
  for (const auto& [text, dim, dtype] : {std::tuple(causal, 64, DType::BF16),
                                         {causal, 128, DType::F16},
                                         {scores, 64, DType::F16},
                                         {scores, 128, DType::BF16}}) {
    const Mod mod = take(Mod::parse(text + outputs));
    const Problem problem{{2, 4, 2, 390, 450}, dim, dim, dtype};
    HostOperands operands = draw(mod, problem);
    std::vector<float> sums(2 * 4 * 450), entropy(2 * 4 * 390), mass{1, -1, 0.5f, 0, 0.25f, -2, 1, 3};
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = std::sin(float(i));
    for (size_t i = 0; i < entropy.size(); ++i) entropy[i] = std::cos(float(i));
    operands.captures.set("sums_gradient", TensorView::contiguous(sums.data(), DType::F32, {2, 4, 450}));
    operands.captures.set("entropy_gradient", TensorView::contiguous(entropy.data(), DType::F32, {2, 4, 390}));
    operands.captures.set("mass_gradient", TensorView::contiguous(mass.data(), DType::F32, {2, 4}));
    const ResultGradients given = drawGradients(problem, /*withLse=*/true);
    const Gradients expected = runReferenceBackward(mod, operands, given);
    for (Family family : familiesFor(mod, problem))
      for (bool deterministic : {false, true}) {
        if (family == Family::Naive) continue;
        INFO(familyName(family) << " " << dim << " deterministic " << deterministic << "\n" << text);
        const BackwardRun run{.family = family, .deterministic = deterministic};
        checkGradients(runBackward(mod, problem, operands, given, run), expected, problem);
      }
  }
}
