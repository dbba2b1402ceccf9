// Backward kernels of a mod with a prob_mod, run on the host, against gradients in fp64; and compiled.
#include "attnc/attnc.h"
#include "kernels/findings.h"
#include "kernels/host_launch.h"
#include "kernels/host_tensor.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <random>

using namespace attnc;

namespace {

const std::string kDropout = "def prob_mod(prob, b, h, q_idx, kv_idx):\n"
                             "  return where(random(7, b, h, q_idx, kv_idx) < 0.25, 0.0, prob / 0.75)\n";
const std::string kBias = "slopes: f32[H]\n"
                          "def score_mod(score, b, h, q_idx, kv_idx):\n  return score + slopes[h] * (kv_idx - q_idx)\n"
                          "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n";

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

} // namespace

TEST_CASE("the naive backward kernel multiplies gradients of weights by the factors of prob_mod", "[on-host]") {
  if (!test::isCaseDue()) return;
  const Mod mod = take(Mod::parse(kBias + kDropout));
  std::mt19937 random(3);
  Tensor q({2, 4, 21, 16}, random), k({2, 2, 30, 16}, random), v({2, 2, 30, 24}, random), dOut({2, 4, 21, 24}, random),
      dLse({2, 4, 21}, random), slopes({4}, random);
  Tensor out({2, 4, 21, 24}, random), lse({2, 4, 21}, random);
  BackwardOperands operands{{.q = q.view, .k = k.view, .v = v.view}, out.view, lse.view, dOut.view, dLse.view};
  Captures given;
  given.set("slopes", slopes.view);
  operands.captures = &given;
  take(computeOnCpu(mod, operands, {.out = out.view, .lse = lse.view}));
  Tensor dQ({2, 4, 21, 16}, random), dK({2, 2, 30, 16}, random), dV({2, 2, 30, 24}, random);
  Tensor wantQ({2, 4, 21, 16}, random), wantK({2, 2, 30, 16}, random), wantV({2, 2, 30, 24}, random);
  take(computeBackwardOnCpu(mod, operands, {.dQ = wantQ.view, .dK = wantK.view, .dV = wantV.view}));
  KernelOptions options{.kind = KernelKind::Backward,
                        .family = Family::Naive,
                        .arch = "sm_80",
                        .dtype = DType::F32,
                        .headDim = 16,
                        .headDimV = 24};
  test::launchOnHost(mod, options, operands, {}, {.dQ = dQ.view, .dK = dK.view, .dV = dV.view}, {},
                     [](const plan::Stage&) { return "BackwardParams"; });
  for (auto [name, a, b] : {std::tuple("dq", &dQ, &wantQ), {"dk", &dK, &wantK}, {"dv", &dV, &wantV}})
    for (size_t i = 0; i < a->values.size(); ++i) {
      INFO(name << " element " << i);
      CHECK(a->values[i] == Approx(b->values[i]).margin(1e-4).epsilon(1e-4));
    }
}

TEST_CASE("Hopper's forward kernel drops what the reference drops", "[on-host]") {
  const std::string causal = "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n";
  unsigned seed = 0;
  for (const char* rate : {"0.25", "0.1"})
    for (const std::string& mask : {std::string(), causal})
      for (const char* tile : {"", "128x128x8", "128x112x8"}) {
        ++seed;
        if (!test::isCaseDue()) continue;
        INFO(rate << mask << tile);
        const Mod mod =
            take(Mod::parse(fmt::format("{0}def prob_mod(prob, b, h, q_idx, kv_idx):\n"
                                        "  return where(random(7, b, h, q_idx, kv_idx) < {1}, 0.0, prob / (1 - {1}))\n",
                                        mask, rate)));
        std::mt19937 random(seed);
        const test::Tensor q(DType::BF16, {2, 4, 300, 128}, random), k(DType::BF16, {2, 2, 400, 128}, random),
            v(DType::BF16, {2, 2, 400, 128}, random), out(DType::BF16, {2, 4, 300, 128}, random),
            want(DType::F32, {2, 4, 300, 128}, random);
        const Operands operands{.q = q.view, .k = k.view, .v = v.view};
        take(computeOnCpu(mod, operands, {.out = want.view}));
        const KernelOptions options{.family = Family::Sm90,
                                    .arch = "sm_90a",
                                    .dtype = DType::BF16,
                                    .headDim = 128,
                                    .headDimV = 128,
                                    .tile = tile};
        test::launchOnHost(mod, options, operands, {.out = out.view}, {.seed = seed, .multiprocessors = 2},
                           [](const plan::Stage&) { return "sm90::Params"; });
        float worst = 0;
        for (int64_t i = 0; i < want.view.elements(); ++i)
          worst = std::max(worst,
                           std::abs(float(readElement(static_cast<const char*>(out.view.data), DType::BF16, i).real -
                                          readElement(static_cast<const char*>(want.view.data), DType::F32, i).real)));
        CHECK(worst < 0.03);
      }
}

NVRTC_TEST_CASE("kernels with a prob_mod compile without spills", "[kernels]") {
  std::vector<test::Job> jobs;
  const Mod dropout = take(Mod::parse(kDropout)), biased = take(Mod::parse(kBias + kDropout));
  for (const auto& [name, mod] : {std::pair("dropout", dropout), {"biased dropout", biased}})
    for (int dim : {64, 128, 256}) {
      const auto add = [&, &name = name, &mod = mod](KernelOptions options) {
        options.headDim = options.headDimV = dim;
        jobs.push_back({fmt::format("{} {} {} {} d{}", name, kindName(options.kind), familyName(options.family),
                                    options.arch, dim),
                        mod, options});
      };
      add({.family = Family::Sm90, .arch = "sm_90a"});
      add({.family = Family::Sm80, .arch = "sm_80"});
      if (dim <= 128 && name == std::string("dropout"))
        add({.kind = KernelKind::Backward, .family = Family::Sm90, .arch = "sm_90a"});
      add({.kind = KernelKind::Decode, .family = Family::Sm90, .arch = "sm_90a"});
      add({.kind = KernelKind::Decode, .family = Family::Sm80, .arch = "sm_80"});
    }
  for (KernelKind kind : {KernelKind::Forward, KernelKind::Backward})
    jobs.push_back({fmt::format("biased dropout naive {}", kindName(kind)),
                    biased,
                    {.kind = kind, .family = Family::Naive, .arch = "sm_80", .headDim = 64}});
  CHECK(test::findings(jobs) == "");
}
