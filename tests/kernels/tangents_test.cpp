// The naive kernels of tangents, run on the host, against the fp64 reference; and compiled.
#include "attnc/attnc.h"
#include "kernels/findings.h"
#include "kernels/host_launch.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <random>

using namespace attnc;

namespace {

const std::string kMod = "import torch\n"
                         "slopes: f32[H]\nbias: f32[H, N]\ncap: float\n"
                         "def score_mod(score, b, h, q_idx, kv_idx):\n"
                         "  return cap * torch.tanh(score / cap) * slopes[h] + bias[h, q_idx + kv_idx]\n"
                         "def mask_mod(b, h, q_idx, kv_idx):\n  return (q_idx >= kv_idx) | (kv_idx % 5 == 3)\n"
                         "def prob_mod(prob, b, h, q_idx, kv_idx):\n"
                         "  return where(random(7, b, h, q_idx, kv_idx) < 0.25, 0.0, prob / 0.75)\n";

/// A dense f32 tensor of normal numbers.
struct Tensor {
  std::vector<float> values;
  TensorView view;

  Tensor(std::initializer_list<int64_t> shape, std::mt19937& random)
      : view(TensorView::contiguous(nullptr, DType::F32, shape)) {
    std::normal_distribution<float> normal;
    values.resize(size_t(view.elements()));
    for (float& x : values) x = normal(random);
    view.data = values.data();
  }
  Tensor(const Tensor&) = delete;
};

/// What a launch writes, at first random.
struct Results {
  Tensor tOut, tLse, dQ, dK, dV, dSlopes, dBias, dCap;
  Captures captures;

  Results(int64_t kvBatch, std::mt19937& random)
      : tOut({2, 4, 21, 24}, random), tLse({2, 4, 21}, random), dQ({2, 4, 21, 16}, random),
        dK({kvBatch, 2, 30, 16}, random), dV({kvBatch, 2, 30, 24}, random), dSlopes({4}, random),
        dBias({4, 51}, random), dCap({}, random) {
    for (Tensor* sums : {&dSlopes, &dBias, &dCap}) // a launch zeroes them before its kernels
      std::fill(sums->values.begin(), sums->values.end(), 0.f);
    captures.set("slopes", dSlopes.view).set("bias", dBias.view).set("cap", dCap.view);
  }
  BackwardOutputs outputs(bool onlyTangents) const {
    if (onlyTangents) return {.captures = &captures, .outTangent = tOut.view, .lseTangent = tLse.view};
    return {.dQ = dQ.view,
            .dK = dK.view,
            .dV = dV.view,
            .captures = &captures,
            .outTangent = tOut.view,
            .lseTangent = tLse.view};
  }
};

} // namespace

TEST_CASE("the naive kernels of tangents agree with the reference", "[on-host]") {
  if (!test::isCaseDue()) return;
  const Mod mod = take(Mod::parse(kMod));
  for (int64_t kvBatch : {2, 1}) {
    std::mt19937 random(3);
    Tensor q({2, 4, 21, 16}, random), k({kvBatch, 2, 30, 16}, random), v({kvBatch, 2, 30, 24}, random),
        dOut({2, 4, 21, 24}, random), dLse({2, 4, 21}, random), slopes({4}, random), bias({4, 51}, random);
    Tensor tQ({2, 4, 21, 16}, random), tK({kvBatch, 2, 30, 16}, random), tV({kvBatch, 2, 30, 24}, random),
        tSlopes({4}, random), tBias({4, 51}, random);
    Tensor out({2, 4, 21, 24}, random), lse({2, 4, 21}, random);
    BackwardOperands operands{{.q = q.view, .k = k.view, .v = v.view}, out.view, lse.view, dOut.view, dLse.view};
    Captures given;
    given.set("slopes", slopes.view).set("bias", bias.view).set("cap", 3.0);
    operands.captures = &given;
    take(computeOnCpu(mod, operands, {.out = out.view, .lse = lse.view}));
    operands.qTangent = tQ.view, operands.kTangent = tK.view, operands.vTangent = tV.view;
    given.set("slopes_tangent", tSlopes.view).set("bias_tangent", tBias.view).set("cap_tangent", 0.7);
    for (bool onlyTangents : {false, true}) {
      Results results(kvBatch, random), expected(kvBatch, random);
      take(computeBackwardOnCpu(mod, operands, expected.outputs(onlyTangents)));
      KernelOptions options{.kind = KernelKind::Backward,
                            .family = Family::Naive,
                            .arch = "sm_80",
                            .dtype = DType::F32,
                            .headDim = 16,
                            .headDimV = 24,
                            .features = {Feature::Tangents},
                            .gradients = {"slopes", "bias", "cap"}};
      test::launchOnHost(mod, options, operands, {}, results.outputs(onlyTangents), {}, [](const plan::Stage& stage) {
        return stage.entry == "attnc_backward_sums"           ? "BackwardParams"
               : stage.entry == "attnc_tangent_captures"      ? "TangentCaptureParams"
               : stage.entry == "attnc_backward_captures_out" ? "CaptureOutputParams"
                                                              : "TangentParams";
      });
      for (auto [name, a, b] : {std::tuple("out", &results.tOut, &expected.tOut),
                                {"lse", &results.tLse, &expected.tLse},
                                {"slopes", &results.dSlopes, &expected.dSlopes},
                                {"bias", &results.dBias, &expected.dBias},
                                {"cap", &results.dCap, &expected.dCap},
                                {"q", &results.dQ, &expected.dQ},
                                {"k", &results.dK, &expected.dK},
                                {"v", &results.dV, &expected.dV}}) {
        if (onlyTangents && (a == &results.dQ || a == &results.dK || a == &results.dV)) continue;
        for (size_t i = 0; i < a->values.size(); ++i) {
          INFO(name << " element " << i << ", batch of k " << kvBatch);
          CHECK(a->values[i] == Approx(b->values[i]).margin(2e-4).epsilon(2e-4));
        }
      }
    }
  }
}

NVRTC_TEST_CASE("kernels of tangents compile without spills", "[kernels]") {
  std::vector<test::Job> jobs;
  for (const std::string& text : {kMod, std::string("q_idx >= kv_idx")})
    for (DType dtype : {DType::BF16, DType::F32}) {
      KernelOptions options{.kind = KernelKind::Backward, .arch = "sm_90a", .dtype = dtype, .headDim = 64};
      options.features = {Feature::Tangents};
      if (text == kMod) options.gradients = {"slopes", "bias", "cap"};
      jobs.push_back({fmt::format("{} {}", text, dtypeName(dtype)), take(Mod::parse(text)), options});
    }
  CHECK(test::findings(jobs) == "");
}
