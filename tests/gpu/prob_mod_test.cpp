// Mods with a prob_mod on every family, against the fp64 reference, which draws the same random numbers.
#include "gpu.h"
#include "helpers/plans.h"
#include "helpers/turns.h"

using namespace attnc;
using namespace attnc::gputest;

namespace {

const std::string kCausal = "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n";
const std::string kSignature = "def prob_mod(prob, b, h, q_idx, kv_idx):\n  return ";

/// Dropout in the forms that the pass derive-drops knows: a rate of 8 bits and a finer one, a rate that is a capture,
/// weights kept below the rate; then factors that it leaves.
const std::string kMods[] = {
    kSignature + "where(random(7, b, h, q_idx, kv_idx) < 0.125, 0.0, prob / 0.875)\n",
    kSignature + "where(random(-3, b, h, q_idx, kv_idx) >= 0.3, prob / (1 - 0.3), 0.0)\n",
    "seed: i64[B]\nrate: float\n" + kCausal + kSignature +
        "where(random(seed[b], b, h, q_idx, kv_idx) < rate, 0.0, prob / (1 - rate))\n",
    "seed: int\ndropped: int\n" + kSignature +
        "where(random(seed, b, h, q_idx, kv_idx) < dropped * 2.0**-8, 0.0, prob / (1 - dropped * 2.0**-8))\n",
    "def score_mod(score, b, h, q_idx, kv_idx):\n  return 5 * tanh(score / 5) + 0.25 * (kv_idx - q_idx)\n" +
        kSignature + "where(random(h, b, h, q_idx, kv_idx) <= 0.7, prob / 0.7, 0.0)\n",
    kCausal + kSignature + "where(random(7, b, h, kv_idx, q_idx) < 0.25, 0.0, prob)\n",
    kSignature + "prob * ((kv_idx + q_idx) % 5 - 1.5)\n",
};

HostOperands drawFor(const Mod& mod, const Problem& problem) {
  HostOperands operands = draw(mod, problem);
  if (mod.text().find("rate: float") != std::string::npos) operands.captures.set("rate", 0.37);
  if (mod.text().find("dropped: int") != std::string::npos) operands.captures.set("dropped", int64_t(77));
  return operands;
}

KernelOptions optionsOf(KernelKind kind, Family family, const Problem& problem) {
  return {.kind = kind,
          .family = family,
          .arch = gpu()->context.info().arch,
          .dtype = problem.dtype,
          .headDim = problem.headDim,
          .headDimV = problem.headDimV};
}

} // namespace

GPU_TEST_CASE("weights times the factors of a prob_mod agree with the reference", "[gpu]") {
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  for (const std::string& text : kMods) {
    const Mod mod = take(Mod::parse(text));
    for (const Problem& problem :
         {Problem{{2, 4, 2, 130, 190}, 64, 64, DType::BF16}, Problem{{1, 6, 2, 700, 900}, 128, 128, DType::F16},
          Problem{{1, 2, 1, 77, 333}, 256, 256, DType::BF16}, Problem{{1, 2, 2, 65, 257}, 40, 24, DType::F32}}) {
      if (!test::isCaseDue()) continue;
      const HostOperands operands = drawFor(mod, problem);
      const Outcome expected = runReference(mod, problem, operands);
      for (Family family : familiesFor(mod, problem)) {
        INFO(text << problem.text() << ", family " << int(family));
        checkClose(runKernel(mod, problem, operands, {.family = family}), expected, problem, false, 1e-5);
      }
    }
  }
}

GPU_TEST_CASE("a prob_mod draws by positions, wherever queries begin", "[gpu]") {
  const Mod mod = take(Mod::parse(kMods[2]));
  Problem problem{{3, 4, 2, 150, 400}, 128, 128, DType::BF16};
  for (const std::vector<int32_t>& offsets : {std::vector<int32_t>{0, 7, 250}, {16, 8, 129}}) {
    HostOperands operands = drawFor(mod, problem);
    operands.qOffsets = offsets;
    const Outcome expected = runReference(mod, problem, operands, {}, QueryOffsets::Tensor);
    for (Family family : familiesFor(mod, problem)) {
      INFO("family " << int(family));
      const Outcome outcome = runKernel(mod, problem, operands, {.family = family, .offsets = QueryOffsets::Tensor});
      checkClose(outcome, expected, problem);
    }
  }
}

GPU_TEST_CASE("gradients through a prob_mod agree with the reference", "[gpu][backward]") {
  for (const std::string& text : kMods) {
    const Mod mod = take(Mod::parse(text));
    for (const Problem& problem :
         {Problem{{2, 4, 2, 130, 190}, 64, 64, DType::BF16}, Problem{{1, 6, 2, 500, 700}, 128, 128, DType::BF16},
          Problem{{1, 2, 1, 65, 77}, 96, 40, DType::F16}}) {
      if (!test::isCaseDue()) continue;
      const HostOperands operands = drawFor(mod, problem);
      const ResultGradients given = drawGradients(problem, /*withLse=*/true);
      const Gradients expected = runReferenceBackward(mod, operands, given);
      for (Family family : {Family::Naive, Family::Sm90}) {
        if (!test::sourcesOf(gpu()->compiler, mod, optionsOf(KernelKind::Backward, family, problem))) continue;
        INFO(text << problem.text() << ", family " << int(family));
        checkGradients(runBackward(mod, problem, operands, given, {.family = family}), expected, problem);
      }
    }
  }
}

GPU_TEST_CASE("dropout has fast backward kernels on Hopper", "[gpu][backward]") {
  if (!gpu()->context.info().arch.starts_with("sm_90")) return;
  for (size_t i = 0; i < std::size(kMods); ++i) {
    const Problem problem{{1, 1, 1, 8, 8}, 128, 128, DType::BF16};
    CHECK(bool(test::sourcesOf(gpu()->compiler, take(Mod::parse(kMods[i])),
                               optionsOf(KernelKind::Backward, Family::Sm90, problem))) == (i < 5));
  }
}
