// Kernels of mods with a weight_mod, run on the host, against sums and gradients in fp64; and compiled.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "kernels/findings.h"
#include "kernels/host_gradients.h"
#include "kernels/host_launch.h"
#include "kernels/host_tensor.h"
#include "reference/error_bounds.h"
#include "reference/gradients.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <random>

using namespace attnc;
using test::Tensor;

namespace {

/// Negative weights; heads of other biases; rows without a live score; a capture whose gradient does not vanish with
/// the weight.
const std::string kMods[] = {
    "def weight_mod(score, b, h, q_idx, kv_idx):\n  return torch.sigmoid(score - 2.0)\n",
    "bias: f32[H]\n"
    "def weight_mod(score, b, h, q_idx, kv_idx):\n  return torch.relu(score + bias[h]) - 0.125 * bias[h] * score\n"
    "def score_mod(score, b, h, q_idx, kv_idx):\n  return where(kv_idx % 5 == 2, -float('inf'), 2 * score)\n"
    "def mask_mod(b, h, q_idx, kv_idx):\n  return (q_idx >= kv_idx) & (q_idx % 8 != 5)\n",
};

struct Launch {
  std::mt19937 random{3};
  Tensor q, k, v, dOut, bias;
  Captures captures;

  Launch(const std::string& text, int64_t qLen, int64_t kvLen, DType dtype)
      : q(dtype, {2, 4, qLen, 64}, random), k(dtype, {2, 2, kvLen, 64}, random), v(dtype, {2, 2, kvLen, 64}, random),
        dOut(dtype, {2, 4, qLen, 64}, random), bias(DType::F32, {4}, random) {
    if (text.find("bias") != std::string::npos) captures.set("bias", bias.view);
  }
  BackwardOperands operands() {
    BackwardOperands all{{.q = q.view, .k = k.view, .v = v.view}, {}, {}, dOut.view, {}};
    all.captures = &captures;
    return all;
  }
};

/// `margin`: relative to the largest element wanted.
void compare(const char* name, const TensorView& got, const TensorView& want, double margin) {
  const auto at = [](const TensorView& of, int64_t i) {
    return readElement(static_cast<const char*>(of.data), of.dtype, i).real;
  };
  double largest = 0;
  for (int64_t i = 0; i < want.elements(); ++i) largest = std::max(largest, std::fabs(double(at(want, i))));
  int wrong = 0;
  for (int64_t i = 0; i < want.elements(); ++i)
    if (!(std::fabs(at(got, i) - at(want, i)) <= margin * largest) && ++wrong < 5)
      WARN(fmt::format("{} element {}: {} instead of {}", name, i, at(got, i), at(want, i)));
  INFO(name);
  CHECK(wrong == 0);
}

std::string paramsOf(const plan::Stage& stage) {
  const std::string& name = stage.templateName;
  return name == "forward_naive.cu"              ? "naive::Params"
         : name == "forward_sm80.cu"             ? "sm80::Params"
         : name == "forward_sm90.cu"             ? "sm90::Params"
         : name == "decode_sm80.cu"              ? "decode::CopiesOfThreads::Params"
         : name == "decode_sm90.cu"              ? "decode::CopiesOfEngine::Params"
         : name == "decode_lists.cu"             ? "DecodeListsParams"
         : name == "backward_captures_out.cu"    ? "CaptureOutputParams"
         : name.starts_with("backward_captures") ? "CaptureParams"
                                                 : "BackwardParams";
}

void checkForward(const std::string& text, Family family, DType dtype, KernelKind kind = KernelKind::Forward) {
  if (!test::isCaseDue()) return;
  INFO(kindName(kind) << " " << familyName(family) << "\n" << text);
  const Mod mod = take(Mod::parse(text));
  const bool isDecode = kind == KernelKind::Decode;
  const int64_t rows = isDecode ? 5 : 130;
  Launch l(text, rows, isDecode ? 300 : 150, dtype);
  Tensor out(dtype, {2, 4, rows, 64}, l.random), lse(DType::F32, {2, 4, rows}, l.random),
      want(DType::F32, {2, 4, rows, 64}, l.random);
  const KernelOptions options{
      .kind = kind, .family = family, .arch = "sm_90a", .dtype = dtype, .headDim = 64, .headDimV = 64};
  test::launchOnHost(mod, options, l.operands(), {.out = out.view, .lse = lse.view}, {.multiprocessors = 7}, paramsOf);
  take(computeOnCpu(mod, l.operands(), {.out = want.view}));
  compare("out", out.view, want.view, dtype == DType::BF16 ? 0x1p-7 : 1e-5);
  reference::GradientResult of;
  const BackwardOperands operands = l.operands();
  of.forward = take(reference::attention(mod.module(), l.captures, operands));
  test::checkBounds("out", out.view, of.forward.out,
                    take(reference::errorBounds(mod.module(), l.captures, operands, of,
                                                reference::arithmeticOf(dtype, dtype, false), {}))
                        .out);
  for (int64_t i = 0; i < lse.view.elements(); ++i) REQUIRE(static_cast<const float*>(lse.view.data)[i] == 0);
}

} // namespace

TEST_CASE("forward kernels add up values by the weights of weight_mod", "[on-host]") {
  for (const std::string& text : kMods) {
    checkForward(text, Family::Naive, DType::F32);
    checkForward(text, Family::Sm80, DType::BF16);
    checkForward(text, Family::Sm90, DType::BF16);
  }
}

TEST_CASE("decode kernels add up parts by the weights of weight_mod", "[on-host]") {
  for (const std::string& text : kMods)
    for (Family family : {Family::Sm80, Family::Sm90}) checkForward(text, family, DType::BF16, KernelKind::Decode);
}

TEST_CASE("the naive backward kernel goes through weight_mod", "[on-host]") {
  for (const std::string& text : kMods) {
    if (!test::isCaseDue()) continue;
    INFO(text);
    const Mod mod = take(Mod::parse(text));
    Launch l(text, 37, 45, DType::F32);
    Tensor out(DType::F32, {2, 4, 37, 64}, l.random), lse(DType::F32, {2, 4, 37}, l.random);
    BackwardOperands operands = l.operands();
    take(computeOnCpu(mod, operands, {.out = out.view, .lse = lse.view}));
    operands.out = out.view, operands.lse = lse.view;
    std::set<std::string> names;
    for (const CaptureInfo& capture : mod.captures()) names.insert(capture.name);
    struct Gradients {
      Tensor dQ, dK, dV, bias;
      Captures captures;
      Gradients(const std::set<std::string>& names, std::mt19937& random)
          : dQ(DType::F32, {2, 4, 37, 64}, random), dK(DType::F32, {2, 2, 45, 64}, random),
            dV(DType::F32, {2, 2, 45, 64}, random), bias(DType::F32, {4}, random) {
        std::fill(bias.bytes.begin(), bias.bytes.end(), char(0)); // as a launch does
        if (names.count("bias")) captures.set("bias", bias.view);
      }
      BackwardOutputs all() const { return {.dQ = dQ.view, .dK = dK.view, .dV = dV.view, .captures = &captures}; }
    };
    const Gradients got(names, l.random), want(names, l.random);
    take(computeBackwardOnCpu(mod, operands, want.all()));
    const KernelOptions options{.kind = KernelKind::Backward,
                                .family = Family::Naive,
                                .arch = "sm_80",
                                .dtype = DType::F32,
                                .headDim = 64,
                                .headDimV = 64,
                                .gradients = names};
    test::launchOnHost(mod, options, operands, {}, got.all(), {}, paramsOf);
    compare("dq", got.dQ.view, want.dQ.view, 1e-5);
    compare("dk", got.dK.view, want.dK.view, 1e-5);
    compare("dv", got.dV.view, want.dV.view, 1e-5);
    if (!names.empty()) compare("bias", got.bias.view, want.bias.view, 1e-4);
    const Mod derived = take(gradientMod(mod, names));
    const ir::CaptureGradients& places = captureGradients(derived);
    const reference::GradientResult of = take(reference::gradients(derived.module(), l.captures, operands, places));
    const reference::ErrorBounds bounds = take(reference::errorBounds(
        derived.module(), l.captures, operands, of, reference::arithmeticOf(DType::F32, DType::F32, false), places));
    test::checkBounds("dq", got.dQ.view, of.dQ, bounds.dQ);
    test::checkBounds("dk", got.dK.view, of.dK, bounds.dK);
    test::checkBounds("dv", got.dV.view, of.dV, bounds.dV);
  }
}

NVRTC_TEST_CASE("kernels with a weight_mod compile without spills", "[kernels]") {
  std::vector<test::Job> jobs;
  for (const std::string& text : kMods)
    for (int dim : {64, 128, 256})
      for (auto [family, arch] : {std::pair(Family::Sm80, "sm_80"), {Family::Sm90, "sm_90a"}})
        for (KernelKind kind : {KernelKind::Forward, KernelKind::Decode})
          jobs.push_back({fmt::format("weights {} {} d{} {}", jobs.size(), arch, dim, kindName(kind)),
                          take(Mod::parse(text)),
                          {.kind = kind, .family = family, .arch = arch, .headDim = dim, .headDimV = dim}});
  CHECK(test::findings(jobs) == "");
}
