// Row maxima of forward_sm90.cu, run on the host: of rows of every sign and size, against the fp64 reference. A kernel
// that keeps them computes out and lse bit by bit as one without.
#include "attnc/attnc.h"
#include "kernels/findings.h"
#include "kernels/host_launch.h"
#include "kernels/host_tensor.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <random>

using namespace attnc;
using test::Tensor;

namespace {

constexpr int64_t kDim = 64, kQLen = 200;

const std::string kCausal = "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx + 900 >= kv_idx\n";
const std::string kHoles =
    "def mask_mod(b, h, q_idx, kv_idx):\n"
    "  return (q_idx % 16 != 5) & ((q_idx * 7 + kv_idx * (kv_idx // 3 + 5)) % (2 + q_idx % 9) != 0)\n";
const std::string kSome = "def score_mod(score, b, h, q_idx, kv_idx):\n"
                          "  seen = where((q_idx % 16 == 6) | (kv_idx % 5 == 2), -inf, score * 0.5)\n"
                          "  return where((q_idx % 16 == 9) & (kv_idx == 77), float('nan'), seen)\n"
                          "def sink_mod(b, h, q_idx):\n  return 40.0 * h\n";
const std::string kCapped = "def score_mod(score, b, h, q_idx, kv_idx):\n  return 30 * tanh(score / 30)\n";
const std::string kAlibi = "slopes: f32[H]\n"
                           "def score_mod(score, b, h, q_idx, kv_idx):\n"
                           "  return score + slopes[h] * (kv_idx - q_idx)\n";

/// Draws what a class of rows multiplies, for each key: of a sign, a size and a course of its own.
std::vector<double> drawClass(int64_t keys, std::mt19937& random) {
  std::normal_distribution<double> normal;
  const auto oneOf = [&](int n) { return int(random() % unsigned(n)); };
  const double size = std::exp2(oneOf(14) - 4), sign = oneOf(3) - 1, course = oneOf(3) - 1;
  std::vector<double> all(static_cast<size_t>(keys));
  for (size_t j = 0; j < all.size(); ++j) {
    const double x = normal(random);
    all[j] = size * (sign == 0 ? x : sign * std::fabs(x)) + course * size / 128 * double(j);
  }
  if (oneOf(4) == 0) std::fill(all.begin(), all.end(), oneOf(2) ? -0.0 : -size);
  if (oneOf(3) == 0) all[size_t(oneOf(int(keys)))] = size * std::exp2(oneOf(8) - 3);
  return all;
}

struct Case {
  std::string mod;
  std::string tile = "128x48x8";
  int64_t kvLen = 1100; ///< more than kFewColumns: rows of few follow their maxima
  DType dtype = DType::BF16;
  float scale = 1;
  double margin = 1e-6;
};

/// Rows of q are rows of the unit matrix, so scores are elements of k, exactly. A warp has rows of two classes.
void check(const Case& c) {
  if (!test::isCaseDue()) return;
  INFO(c.mod << c.tile << ", " << dtypeName(c.dtype) << ", scale " << c.scale);
  std::mt19937 random(1);
  Tensor q(c.dtype, {1, 4, kQLen, kDim}, random), k(c.dtype, {1, 2, c.kvLen, kDim}, random),
      v(c.dtype, {1, 2, c.kvLen, kDim}, random), slopes(DType::F32, {4}, random);
  for (int64_t h = 0; h < 4; ++h)
    for (int64_t i = 0; i < kQLen; ++i)
      for (int64_t d = 0; d < kDim; ++d) q.set({0, h, i, d}, (i / 8 + 16 * h) % kDim == d);
  for (int64_t h : {0, 1})
    for (int64_t d = 0; d < kDim; ++d) {
      const std::vector<double> drawn = drawClass(c.kvLen, random);
      for (int64_t j = 0; j < c.kvLen; ++j) k.set({0, h, j, d}, drawn[size_t(j)]);
    }
  for (int64_t h = 0; h < 4; ++h) slopes.set({h}, (h % 2 ? -0.01 : 0.01) * double(1 + 9 * (h / 2)));
  Captures captures;
  if (c.mod.find("slopes") != std::string::npos) captures.set("slopes", slopes.view);
  Operands operands{.q = q.view, .k = k.view, .v = v.view, .scale = c.scale, .captures = &captures};
  struct Results {
    Tensor out, lse, rowMax;
    Results(DType dtype, std::mt19937& random)
        : out(dtype, {1, 4, kQLen, kDim}, random), lse(DType::F32, {1, 4, kQLen}, random),
          rowMax(DType::F32, {1, 4, kQLen}, random) {}
    Outputs outputs() const { return {.out = out.view, .lse = lse.view, .rowMax = rowMax.view}; }
  };
  const Results with(c.dtype, random), without(c.dtype, random), want(DType::F32, random);
  const Mod mod = take(Mod::parse(c.mod));
  for (const Results* each : {&with, &without}) {
    Outputs outputs = each->outputs();
    if (each == &without) outputs.rowMax.reset();
    KernelOptions options = optionsOf(operands, outputs, {.arch = "sm_90a"});
    options.family = Family::Sm90, options.tile = c.tile;
    test::launchOnHost(mod, options, operands, outputs, {}, [](const plan::Stage&) { return "sm90::Params"; });
  }
  take(computeOnCpu(mod, operands, want.outputs()));
  int wrong = 0, moved = 0;
  for (int64_t row = 0; row < 4 * kQLen; ++row) {
    const std::initializer_list<int64_t> at = {0, row / kQLen, row % kQLen};
    const double is = with.rowMax.at(at), be = want.rowMax.at(at);
    const auto differs = [](double x, double y) { return x != y && !(std::isnan(x) && std::isnan(y)); };
    if (differs(is, be) && !(std::fabs(is - be) <= c.margin * (1 + std::fabs(be))) && ++wrong < 5)
      WARN(fmt::format("row {}: {} instead of {}", row, is, be));
    moved += differs(with.lse.at(at), without.lse.at(at));
    for (int64_t d = 0; d < kDim; ++d) {
      const std::initializer_list<int64_t> of = {0, row / kQLen, row % kQLen, d};
      moved += differs(with.out.at(of), without.out.at(of));
    }
  }
  CHECK(wrong == 0);
  CHECK(moved == 0);
}

} // namespace

TEST_CASE("row maxima are those of the reference, and change nothing else", "[on-host]") {
  check({"score", "192x64x12", 800});
  check({kCausal});
  check({kHoles, "128x64x8", 800, DType::F16});
  check({kSome});
  check({kCapped + kCausal, "128x48x8", 1100, DType::BF16, 1, 2e-5}); // tanh is off by 6e-7 of the cap
  check({kAlibi + kCausal, "128x48x8", 1100, DType::BF16, 1, 4e-6});
  check({"score", "128x48x8", 800, DType::F16, -0.5f});
  check({"score", "", 1100});
}

NVRTC_TEST_CASE("kernels that keep row maxima compile without spills or advisories", "[kernels]") {
  std::vector<test::Job> jobs;
  for (const auto& [name, mod] : test::library()) {
    const auto add = [&, &name = name, &mod = mod](const char* what, KernelOptions options) {
      options.family = Family::Sm90, options.arch = "sm_90a";
      options.features.set(Feature::RowMax);
      const bool isFp8 = options.features.has(Feature::Fp8Q);
      const int bytes = isFp8 && options.headDim > 64 ? 260 : options.headDim > 128 ? 12 : 0;
      jobs.push_back({fmt::format("row max {}{} d{}", name, what, options.headDim), mod, options, bytes});
    };
    for (int dim : {64, 128, 256}) add("", {.headDim = dim});
    if (mod.hasMaskMod()) add(" lists", {.headDim = 64, .blockSparse = true});
    add(" ragged", {.headDim = 128, .features = {Feature::Ragged}});
    if (name == "causal" || name == "softcap" || name == "alibi")
      for (int dim : {64, 128}) add(" e4m3", {.headDim = dim, .features = {Feature::Fp8Q, Feature::Fp8Kv}});
  }
  CHECK(test::findings(jobs) == "");
}
