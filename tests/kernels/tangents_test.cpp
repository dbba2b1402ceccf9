// The kernels of tangents, run on the host, against the fp64 reference; and compiled.
#include "attnc/attnc.h"
#include "kernels/findings.h"
#include "kernels/host_launch.h"
#include "kernels/host_tensor.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>

using namespace attnc;

namespace {

const std::string kMod = "import torch\n"
                         "slopes: f32[H]\nbias: f32[H, N]\ncap: float\nsinks: f32[H]\n"
                         "def sink_mod(b, h, q_idx):\n  return sinks[h] * sinks[h] - 0.01 * q_idx\n"
                         "def score_mod(score, b, h, q_idx, kv_idx):\n"
                         "  return cap * torch.tanh(score / cap) * slopes[h] + bias[h, q_idx + kv_idx]\n"
                         "def mask_mod(b, h, q_idx, kv_idx):\n  return (q_idx >= kv_idx) | (kv_idx % 5 == 3)\n"
                         "def prob_mod(prob, b, h, q_idx, kv_idx):\n"
                         "  return where(random(7, b, h, q_idx, kv_idx) < 0.25, 0.0, prob / 0.75)\n";

using test::Tensor;
constexpr DType kF32 = DType::F32;

struct Size {
  int64_t qLen = 21, kvLen = 30;
  int headDim = 16, headDimV = 24;
  bool hasLists = false; ///< of blocks of 128
};

/// What a launch writes, at first random.
struct Results {
  Tensor tOut, tLse, dQ, dK, dV, dSlopes, dBias, dCap, dSinks;
  Captures captures;

  Results(const Size& size, DType dtype, int64_t kvBatch, std::mt19937& random)
      : tOut(dtype, {2, 4, size.qLen, size.headDimV}, random), tLse(kF32, {2, 4, size.qLen}, random),
        dQ(dtype, {2, 4, size.qLen, size.headDim}, random), dK(dtype, {kvBatch, 2, size.kvLen, size.headDim}, random),
        dV(dtype, {kvBatch, 2, size.kvLen, size.headDimV}, random), dSlopes(kF32, {4}, random),
        dBias(kF32, {4, size.qLen + size.kvLen}, random), dCap(kF32, {}, random), dSinks(kF32, {4}, random) {
    for (Tensor* sums : {&dSlopes, &dBias, &dCap, &dSinks}) // a launch zeroes them before its kernels
      std::memset(sums->view.data, 0, size_t(sums->view.elements()) * sizeof(float));
    captures.set("slopes", dSlopes.view).set("bias", dBias.view).set("cap", dCap.view).set("sinks", dSinks.view);
  }
  BackwardOutputs outputs(bool onlyTangents) const {
    BackwardOutputs all{.captures = &captures, .outTangent = tOut.view, .lseTangent = tLse.view};
    if (!onlyTangents) all.dQ = dQ.view, all.dK = dK.view, all.dV = dV.view;
    return all;
  }
};

double at(const Tensor& tensor, int64_t i) {
  return readElement(static_cast<const char*>(tensor.view.data), tensor.view.dtype, i).real;
}

/// Compares the kernels of a family with the reference. `most`: error, next to the root mean square of a result.
void compare(Family family, DType dtype, int64_t kvBatch, bool onlyTangents, double most,
             const std::string& text = kMod, const Size& size = {}) {
  const Mod mod = take(Mod::parse(text));
  std::mt19937 random(3);
  const auto [qLen, kvLen, headDim, headDimV, hasLists] = size;
  const std::vector<int64_t> ofQ{2, 4, qLen, headDim}, ofK{kvBatch, 2, kvLen, headDim},
      ofV{kvBatch, 2, kvLen, headDimV}, ofOut{2, 4, qLen, headDimV}, ofLse{2, 4, qLen}, ofBias{4, qLen + kvLen};
  Tensor q(dtype, ofQ, random), k(dtype, ofK, random), v(dtype, ofV, random), dOut(dtype, ofOut, random),
      dLse(kF32, ofLse, random), slopes(kF32, {4}, random), bias(kF32, ofBias, random);
  Tensor tQ(dtype, ofQ, random), tK(dtype, ofK, random), tV(dtype, ofV, random), tSlopes(kF32, {4}, random),
      tBias(kF32, ofBias, random), sinks(kF32, {4}, random), tSinks(kF32, {4}, random);
  Tensor out(dtype, ofOut, random), lse(kF32, ofLse, random);
  BackwardOperands operands{{.q = q.view, .k = k.view, .v = v.view}, out.view, lse.view, dOut.view, dLse.view};
  Captures given;
  given.set("slopes", slopes.view).set("bias", bias.view).set("cap", 3.0).set("sinks", sinks.view);
  operands.captures = &given;
  take(computeOnCpu(mod, operands, {.out = out.view, .lse = lse.view}));
  operands.qTangent = tQ.view, operands.kTangent = tK.view, operands.vTangent = tV.view;
  given.set("slopes_tangent", tSlopes.view).set("bias_tangent", tBias.view).set("cap_tangent", 0.7);
  given.set("sinks_tangent", tSinks.view);
  Results results(size, dtype, kvBatch, random), expected(size, dtype, kvBatch, random);
  take(computeBackwardOnCpu(mod, operands, expected.outputs(onlyTangents)));
  BlockMask lists;
  BlockMaskView view;
  if (hasLists) {
    lists = take(BlockMask::build(mod, given, {2, 4, 2, qLen, kvLen}, {.qLen = qLen, .kvLen = kvLen})).withColumns();
    view = lists.view();
    operands.blockMask = &view;
  }
  KernelOptions options{.kind = KernelKind::Backward,
                        .family = family,
                        .arch = family == Family::Sm90 ? "sm_90a" : "sm_80",
                        .dtype = dtype,
                        .headDim = headDim,
                        .headDimV = headDimV,
                        .features = {Feature::Tangents},
                        .blockSparse = hasLists,
                        .gradients = {"slopes", "bias", "cap", "sinks"}};
  test::launchOnHost(mod, options, operands, {}, results.outputs(onlyTangents), {}, [](const plan::Stage& stage) {
    return stage.entry == "attnc_backward_sums"                   ? "BackwardParams"
           : stage.entry == "attnc_tangent_captures"              ? "TangentCaptureParams"
           : stage.entry == "attnc_backward_sinks"                ? "TangentCaptureParams"
           : stage.entry == "attnc_backward_captures_out"         ? "CaptureOutputParams"
           : stage.templateName.find("sm90") != std::string::npos ? "TangentParamsSm90"
                                                                  : "TangentParams";
  });
  for (auto [name, a, b] : {std::tuple("out", &results.tOut, &expected.tOut),
                            {"lse", &results.tLse, &expected.tLse},
                            {"slopes", &results.dSlopes, &expected.dSlopes},
                            {"bias", &results.dBias, &expected.dBias},
                            {"cap", &results.dCap, &expected.dCap},
                            {"sinks", &results.dSinks, &expected.dSinks},
                            {"q", &results.dQ, &expected.dQ},
                            {"k", &results.dK, &expected.dK},
                            {"v", &results.dV, &expected.dV}}) {
    const bool isOfGradients = a != &results.tOut && a != &results.tLse;
    if (text.find("3000") != std::string::npos && isOfGradients) continue; // those of the captures are sums that cancel
    if (onlyTangents && (a == &results.dQ || a == &results.dK || a == &results.dV)) continue;
    double squares = 0, worst = 0;
    const int64_t count = a->view.elements();
    for (int64_t i = 0; i < count; ++i) {
      squares += at(*b, i) * at(*b, i);
      if (const double error = std::fabs(at(*a, i) - at(*b, i)); !(error <= worst)) worst = error;
    }
    INFO(name << ", batch of k " << kvBatch << ", family " << int(family) << ", worst " << worst);
    CHECK(worst <= most * std::sqrt(squares / double(count)));
  }
}

} // namespace

TEST_CASE("kernels of tangents agree with the reference", "[on-host]") {
  if (!test::isCaseDue()) return;
  for (int64_t kvBatch : {2, 1})
    for (bool onlyTangents : {false, true}) {
      compare(Family::Naive, kF32, kvBatch, onlyTangents, 1e-4);
      compare(Family::Sm80, DType::BF16, kvBatch, onlyTangents, 8e-2);
      compare(Family::Sm80, DType::F16, kvBatch, onlyTangents, 1e-2);
      compare(Family::Sm90, DType::BF16, kvBatch, onlyTangents, 8e-2);
    }
  compare(Family::Sm90, DType::F16, 1, false, 2e-2, kMod, {140, 200, 72, 64}); // several tiles and steps
  std::string listed = kMod; // a mask without bounds: a block is empty
  listed.replace(listed.find("(q_idx >= kv_idx) |"), 19, "(q_idx // 128 != 1) | (kv_idx // 128 == 1) & ");
  compare(Family::Sm90, DType::F16, 2, false, 2e-2, listed, {140, 260, 64, 64, true});
  // What the scores of a row have in common moves lse, and must not be rounded before it cancels in out.
  const std::string far = "bias: f32[H, N]\nslopes: f32[H]\ncap: float\nsinks: f32[H]\n"
                          "def sink_mod(b, h, q_idx):\n  return sinks[h]\n"
                          "def score_mod(score, b, h, q_idx, kv_idx):\n"
                          "  return score + bias[h, q_idx] * 3000 + slopes[h] * cap * 0.1\n";
  for (Family family : {Family::Sm80, Family::Sm90}) compare(family, DType::BF16, 2, /*onlyTangents=*/true, 8e-2, far);
}

NVRTC_TEST_CASE("kernels of tangents compile without spills", "[kernels]") {
  std::vector<test::Job> jobs;
  for (const std::string& text : {kMod, std::string("q_idx >= kv_idx")})
    for (const char* arch : {"sm_80", "sm_90a"})
      for (auto [dtype, headDim] :
           {std::pair(DType::BF16, 64), {DType::F16, 128}, {DType::BF16, 256}, {DType::F32, 64}}) {
        KernelOptions options{.kind = KernelKind::Backward, .arch = arch, .dtype = dtype, .headDim = headDim};
        options.features = {Feature::Tangents};
        if (text == kMod) options.gradients = {"slopes", "bias", "cap", "sinks"};
        const bool isLarge = arch == std::string("sm_90a") && headDim == 128; // a consumer has all but what it needs
        jobs.push_back({fmt::format("{} {} {} {}", text, arch, dtypeName(dtype), headDim), take(Mod::parse(text)),
                        options,
                        dtype == DType::F32 ? 20
                        : !isLarge          ? 0
                        : text == kMod      ? 80
                                            : 4});
      }
  CHECK(test::findings(jobs) == "");
}
