// Mods with a sink_mod on every family, against the fp64 reference. Their gradients: captures_backward_test.cpp.
#include "gpu.h"

using namespace attnc;
using namespace attnc::gputest;

namespace {

const std::string kCausal = "def mask_mod(b, h, q_idx, kv_idx):\n  return (q_idx >= kv_idx) & (q_idx % 8 != 5)\n";
/// Sinks of heads and of rows; none; one beyond all scores, and one whose lse fast backward kernels leave to another.
const std::string kMods[] = {
    "sink: f32[H]\ndef sink_mod(b, h, q_idx):\n  return sink[h]\n",
    kCausal + "def sink_mod(b, h, q_idx):\n  return 0.0\n",
    kCausal + "slopes: f32[H]\nsink: f32[H]\ntilt: bf16[Q_LEN]\n"
              "def score_mod(score, b, h, q_idx, kv_idx):\n  return score + slopes[h] * (kv_idx - q_idx)\n"
              "def sink_mod(b, h, q_idx):\n  return sink[h] + 0.5 * tilt[q_idx] - 0.01 * (q_idx - 50)\n",
    "def score_mod(score, b, h, q_idx, kv_idx):\n  return 5 * tanh(score / 5)\n"
    "def sink_mod(b, h, q_idx):\n  return where(h % 2 == 0, float('-inf'), where(b == 0, 200.0, 30000.0))\n",
};

} // namespace

GPU_TEST_CASE("rows with a sink agree with the reference", "[gpu]") {
  for (const std::string& text : kMods) {
    const Mod mod = take(Mod::parse(text));
    for (const Problem& problem :
         {Problem{{2, 4, 2, 130, 190}, 64, 64, DType::BF16}, Problem{{1, 6, 2, 700, 900}, 128, 128, DType::F16},
          Problem{{1, 2, 1, 77, 333}, 256, 256, DType::BF16}, Problem{{1, 2, 2, 65, 257}, 40, 24, DType::F32}}) {
      const HostOperands operands = draw(mod, problem);
      const Outcome expected = runReference(mod, problem, operands);
      for (Family family : familiesFor(mod, problem)) {
        INFO(text << problem.text() << ", family " << int(family));
        checkClose(runKernel(mod, problem, operands, {.family = family}), expected, problem, false, 1e-5);
      }
    }
  }
}

GPU_TEST_CASE("decode kernels count the sink of a row once", "[gpu]") {
  for (const std::string& text : kMods) {
    const Mod mod = take(Mod::parse(text));
    for (const Problem& problem :
         {Problem{{2, 8, 2, 3, 5000}, 128, 128, DType::BF16}, Problem{{1, 4, 1, 1, 70}, 64, 64, DType::F16},
          Problem{{3, 16, 1, 2, 3000}, 576, 512, DType::BF16}}) {
      const HostOperands operands = draw(mod, problem);
      const Outcome expected = runReference(mod, problem, operands);
      for (Family family : familiesFor(mod, problem, {.decode = true})) {
        if (family == Family::Naive) continue;                         // has no decode kernels
        if (family == Family::Sm80 && problem.headDim > 256) continue; // has no wider ones
        INFO(text << problem.text() << ", family " << int(family));
        const Outcome outcome = runKernel(mod, problem, operands, {.family = family, .decode = true});
        checkClose(outcome, expected, problem, false, 1e-5);
      }
    }
  }
}

GPU_TEST_CASE("gradients through rows with a sink agree with the reference", "[gpu][backward]") {
  for (const std::string& text : kMods) {
    const Mod mod = take(Mod::parse(text));
    for (const Problem& problem :
         {Problem{{2, 4, 2, 130, 190}, 64, 64, DType::BF16}, Problem{{1, 6, 2, 500, 700}, 128, 128, DType::BF16}}) {
      const HostOperands operands = draw(mod, problem);
      const ResultGradients given = drawGradients(problem, /*withLse=*/true);
      const Gradients expected = runReferenceBackward(mod, operands, given);
      for (Family family : familiesFor(mod, problem)) {
        INFO(text << problem.text() << ", family " << int(family));
        checkGradients(runBackward(mod, problem, operands, given, {.family = family}), expected, problem);
      }
    }
  }
}
