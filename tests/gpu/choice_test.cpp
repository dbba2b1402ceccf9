// A mod for each sequence: each gets what the kernel of its mod gives, and sequences that name no mod get nothing.
#include "gpu.h"

#include <cmath>

using namespace attnc;
using namespace attnc::gputest;

namespace {

const std::string kTexts[] = {
    "q_idx >= kv_idx",
    "slopes: f32[H]\ndef score_mod(s, b, h, q, k): return s + slopes[h] * (k - q)\n"
    "def mask_mod(b, h, q, k): return (q >= k) & (q - k < 200)\n",
    "prefix: i32[B]\ndef score_mod(s, b, h, q, k): return 5 * tanh(s / 5)\n"
    "def mask_mod(b, h, q, k): return (q >= k) | (k < prefix[b])\n",
    "score",
    "ids: i32[KV_LEN]\nmask_mod = lambda b, h, q, k: (ids[q] == ids[k]) & (q >= k)\n",
};

struct Chosen {
  std::vector<Mod> mods;
  Mod mod;
  HostOperands operands;
  std::vector<int32_t> which;

  Chosen(const Problem& problem, std::vector<int> texts, std::vector<int32_t> chosen)
      : mods(parsed(texts)), mod(take(Mod::choice(mods, "which: i32[B]"))), operands(draw(mod, problem)),
        which(std::move(chosen)) {
    operands.captures.set("which", TensorView::contiguous(which.data(), DType::I32, {int64_t(which.size())}));
  }
  Chosen(const Chosen&) = delete;

  static std::vector<Mod> parsed(const std::vector<int>& texts) {
    std::vector<Mod> mods;
    for (int text : texts) mods.push_back(take(Mod::parse(kTexts[text])));
    return mods;
  }

  /// Returns the operands of one of the mods, of all sequences.
  HostOperands of(const Mod& one) const {
    HostOperands own = operands;
    own.captures = {};
    for (const CaptureInfo& capture : one.captures())
      own.captures.set(capture.name, std::get<TensorView>(*operands.captures.find(capture.name)));
    return own;
  }
};

/// Returns the part of an outcome that is a sequence's.
std::vector<double> partOf(const Outcome& outcome, const Problem& problem, size_t b) {
  std::vector<double> part;
  for (const std::vector<double>* all : {&outcome.out, &outcome.lse, &outcome.rowMax}) {
    const size_t size = all->size() / size_t(problem.shape.batch);
    part.insert(part.end(), all->begin() + long(b * size), all->begin() + long((b + 1) * size));
  }
  return part;
}

} // namespace

GPU_TEST_CASE("each sequence has the bits that the kernel of its mod gives on Hopper", "[gpu][choice]") {
  if (!gpu()->context.info().arch.starts_with("sm_90")) return;
  for (const auto& [texts, which] : {std::pair<std::vector<int>, std::vector<int32_t>>{{0, 1, 2}, {2, 0, 1, 1, 7, 0}},
                                     {{3, 4, 1, 0}, {1, 2, -1, 0, 3, 1}}})
    for (int headDim : {64, 128, 256}) {
      // Rows of few columns follow their maxima, so their bits do not depend on the steps that a walk takes.
      const Problem problem{{6, 4, 2, 500, 600}, headDim, headDim, DType::BF16};
      const Chosen chosen(problem, texts, which);
      const RunOptions options{.family = Family::Sm90, .tile = headDim == 256 ? "128x64x8" : "128x128x8"};
      const Outcome all = runKernel(chosen.mod, problem, chosen.operands, options);
      for (size_t b = 0; b < which.size(); ++b) {
        INFO("head dim " << headDim << ", sequence " << b << " with mod " << which[b]);
        const std::vector<double> got = partOf(all, problem, b);
        if (which[b] < 0 || which[b] >= int32_t(texts.size())) {
          const size_t rows = size_t(problem.shape.qHeads * problem.shape.qLen), out = rows * size_t(headDim);
          CHECK(std::all_of(got.begin(), got.begin() + long(out), [](double x) { return x == 0; }));
          CHECK(std::all_of(got.begin() + long(out), got.end(), [](double x) { return x == -INFINITY; }));
          continue;
        }
        const Mod& one = chosen.mods[size_t(which[b])];
        CHECK(got == partOf(runKernel(one, problem, chosen.of(one), options), problem, b));
      }
    }
}

GPU_TEST_CASE("each sequence gets its mod in all families, forward, decoding and backward", "[gpu][choice]") {
  for (const std::vector<int>& texts : {std::vector<int>{0, 1, 2}, {3, 4, 1}}) {
    const std::vector<int32_t> which = {2, 0, 1, 1};
    for (const Problem& problem :
         {Problem{{4, 4, 2, 150, 333}, 64, 64, DType::BF16}, Problem{{4, 8, 2, 3, 900}, 128, 128, DType::BF16},
          Problem{{4, 2, 2, 65, 257}, 40, 24, DType::F32}}) {
      const Chosen chosen(problem, texts, which);
      const Outcome expected = runReference(chosen.mod, problem, chosen.operands);
      for (Family family : familiesFor(chosen.mod, problem))
        for (bool decode : {false, true}) {
          if (decode && (family == Family::Naive || problem.shape.qLen > 3)) continue;
          INFO(problem.text() << ", family " << int(family) << ", decode " << decode);
          checkClose(runKernel(chosen.mod, problem, chosen.operands, {.family = family, .decode = decode}), expected,
                     problem, false, 5e-5);
        }
      if (problem.dtype != DType::BF16) continue;
      const ResultGradients given = drawGradients(problem, /*withLse=*/true);
      const Gradients gradients = runReferenceBackward(chosen.mod, chosen.operands, given);
      checkGradients(runBackward(chosen.mod, problem, chosen.operands, given, {.family = Family::Auto}), gradients,
                     problem);
    }
  }
}
