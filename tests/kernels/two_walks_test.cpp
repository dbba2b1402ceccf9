// Kernels of mods whose prob_mod is no multiple of the weight, run on the host, against sums and gradients in fp64; and
// compiled.
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

#include <map>
#include <random>

using namespace attnc;
using test::Tensor;

namespace {

/// Weights of any size and sign; a capture that prob_mod reads; then masks by -inf, rows without a live score, a sink,
/// and weights of scores that vanish.
const std::string kMods[] = {
    "gain: f32[H]\n"
    "def prob_mod(prob, b, h, q_idx, kv_idx):\n  return prob * prob * torch.exp(gain[h]) - torch.relu(prob - 0.02)\n",
    "gain: f32[H]\n"
    "slopes: f32[H]\n"
    "sink: f32[H]\n"
    "def score_mod(score, b, h, q_idx, kv_idx):\n"
    "  return where(kv_idx % 5 == 2, -float('inf'), score + slopes[h] * (kv_idx - q_idx) * 0.05)\n"
    "def mask_mod(b, h, q_idx, kv_idx):\n  return (q_idx >= kv_idx) & (q_idx % 8 != 5)\n"
    "def sink_mod(b, h, q_idx):\n  return sink[h]\n"
    "def prob_mod(prob, b, h, q_idx, kv_idx):\n  return torch.sqrt(prob + 0.1) * gain[h] + 0.01 * prob\n",
};

/// Named tensors.
struct Named {
  std::map<std::string, Tensor> tensors;
  Captures all;

  const TensorView& add(const std::string& name, DType dtype, const std::vector<int64_t>& shape, std::mt19937& random) {
    const TensorView& view = tensors.try_emplace(name, dtype, shape, random).first->second.view;
    all.set(name, view);
    return view;
  }
};

/// `ends`: cumulative lengths of a ragged batch.
struct Launch {
  std::mt19937 random{3};
  int64_t batch, rows, columns;
  DType dtype;
  std::vector<int32_t> ends;
  Tensor q, k, v, out, lse, dOut, dLse;
  Named captures;
  BackwardOperands operands;

  Launch(const Mod& mod, DType dtype, std::vector<int32_t> ends = {}, int64_t rows = 70, int64_t columns = 83)
      : batch(ends.empty() ? 2 : 1), rows(ends.empty() ? rows : ends.back()),
        columns(ends.empty() ? columns : ends.back()), dtype(dtype), ends(std::move(ends)), q(drawn(4, this->rows)),
        k(drawn(2, this->columns)), v(drawn(2, this->columns)), out(drawn(4, this->rows)),
        lse(DType::F32, {batch, 4, this->rows}, random), dOut(drawn(4, this->rows)),
        dLse(DType::F32, {batch, 4, this->rows}, random) {
    for (const CaptureInfo& capture : mod.captures()) captures.add(capture.name, DType::F32, {4}, random);
    operands = {{.q = q.view, .k = k.view, .v = v.view}, out.view, lse.view, dOut.view, dLse.view};
    operands.captures = &captures.all;
    if (this->ends.empty()) return;
    operands.cuSeqlensQ = TensorView::contiguous(this->ends.data(), DType::I32, {int64_t(this->ends.size())});
    operands.maxQLen = operands.maxKvLen = 64;
  }
  Launch(const Launch&) = delete;
  Tensor drawn(int64_t heads, int64_t length) { return Tensor(dtype, {batch, heads, length, 64}, random); }
  KernelOptions options(KernelKind kind, Family family) const {
    KernelOptions options{
        .kind = kind, .family = family, .arch = "sm_90a", .dtype = dtype, .headDim = 64, .headDimV = 64};
    options.features.set(Feature::Ragged, !ends.empty());
    return options;
  }
};

std::string paramsOf(const plan::Stage& stage) {
  const std::string& name = stage.templateName;
  return name == "forward_naive.cu"                 ? "naive::Params"
         : name == "forward_sm80.cu"                ? "sm80::Params"
         : name == "forward_sm90.cu"                ? "sm90::Params"
         : name == "decode_sm80.cu"                 ? "decode::CopiesOfThreads::Params"
         : name == "decode_sm90.cu"                 ? "decode::CopiesOfEngine::Params"
         : name == "decode_lists.cu"                ? "DecodeListsParams"
         : stage.entry == "attnc_backward_captures" ? "CaptureParams"
                                                    : test::backwardParamsOf(stage);
}

void checkForward(const std::string& text, Family family, DType dtype, std::vector<int32_t> ends = {},
                  bool asksLse = true, KernelKind kind = KernelKind::Forward) {
  if (!test::isCaseDue()) return;
  INFO(kindName(kind) << " " << familyName(family) << " ragged " << !ends.empty() << "\n" << text);
  const Mod mod = take(Mod::parse(text));
  REQUIRE(mod.walksTwice());
  const bool isDecode = kind == KernelKind::Decode;
  Launch l(mod, dtype, std::move(ends), isDecode ? 5 : 130, isDecode ? 300 : 143);
  Outputs outputs{.out = l.out.view};
  if (asksLse) outputs.lse = l.lse.view;
  test::launchOnHost(mod, l.options(kind, family), l.operands, outputs, {.multiprocessors = 7}, paramsOf);
  Tensor want(DType::F32, {l.batch, 4, l.rows, 64}, l.random), wantLse(DType::F32, {l.batch, 4, l.rows}, l.random);
  take(computeOnCpu(mod, l.operands, {.out = want.view, .lse = wantLse.view}));
  test::compareToLargest("out", l.out.view, want.view, dtype == DType::BF16 ? 0x1p-7 : 1e-5);
  for (int64_t i = 0; asksLse && i < l.lse.view.elements(); ++i) {
    const float is = static_cast<const float*>(l.lse.view.data)[i],
                be = static_cast<const float*>(wantLse.view.data)[i];
    REQUIRE((is == be || std::fabs(is - be) < 1e-3));
  }
  if (!l.ends.empty()) return;
  reference::GradientResult of;
  of.forward = take(reference::attention(mod.module(), l.captures.all, l.operands));
  const auto arithmetic = reference::arithmeticOf(dtype, dtype, false);
  test::checkBounds("out", l.out.view, of.forward.out,
                    take(reference::errorBounds(mod.module(), l.captures.all, l.operands, of, arithmetic, {})).out);
}

void checkBackward(const std::string& text, std::vector<int32_t> ends = {}) {
  if (!test::isCaseDue()) return;
  INFO("ragged " << !ends.empty() << "\n" << text);
  const Mod mod = take(Mod::parse(text));
  Launch l(mod, DType::F32, std::move(ends));
  take(computeOnCpu(mod, l.operands, {.out = l.out.view, .lse = l.lse.view}));
  std::set<std::string> names;
  Named got, want;
  for (Named* each : {&got, &want})
    for (const CaptureInfo& capture : mod.captures()) {
      names.insert(capture.name);
      each->add(capture.name, DType::F32, {4}, l.random);
      std::vector<char>& bytes = each->tensors.at(capture.name).bytes;
      std::fill(bytes.begin(), bytes.end(), char(0)); // as a launch does
    }
  const Tensor dQ = l.drawn(4, l.rows), dK = l.drawn(2, l.columns), dV = l.drawn(2, l.columns);
  const Tensor wantQ = l.drawn(4, l.rows), wantK = l.drawn(2, l.columns), wantV = l.drawn(2, l.columns);
  take(computeBackwardOnCpu(mod, l.operands,
                            {.dQ = wantQ.view, .dK = wantK.view, .dV = wantV.view, .captures = &want.all}));
  KernelOptions options = l.options(KernelKind::Backward, Family::Naive);
  options.gradients = names;
  test::launchOnHost(mod, options, l.operands, {}, {.dQ = dQ.view, .dK = dK.view, .dV = dV.view, .captures = &got.all},
                     {}, paramsOf);
  for (const auto& [name, a, b] :
       {std::tuple("dq", &dQ.view, &wantQ.view), {"dk", &dK.view, &wantK.view}, {"dv", &dV.view, &wantV.view}})
    test::compareToLargest(name, *a, *b, 1e-5);
  for (const std::string& name : names)
    test::compareToLargest(name, got.tensors.at(name).view, want.tensors.at(name).view, 1e-4);
  if (!l.ends.empty()) return;
  const Mod derived = take(gradientMod(mod, names));
  const ir::CaptureGradients& places = captureGradients(derived);
  const auto of = take(reference::gradients(derived.module(), l.captures.all, l.operands, places));
  const auto bounds = take(reference::errorBounds(derived.module(), l.captures.all, l.operands, of,
                                                  reference::arithmeticOf(DType::F32, DType::F32, false), places));
  test::checkBounds("dq", dQ.view, of.dQ, bounds.dQ);
  test::checkBounds("dk", dK.view, of.dK, bounds.dK);
  test::checkBounds("dv", dV.view, of.dV, bounds.dV);
  for (const std::string& name : names)
    test::checkBounds(name, got.tensors.at(name).view, of.captures.at(name), bounds.captures.at(name));
}

const std::vector<int32_t> kEnds = {0, 1, 1, 65, 90};

} // namespace

TEST_CASE("a second walk multiplies V by what prob_mod makes of weights", "[on-host]") {
  for (const std::string& text : kMods) {
    checkForward(text, Family::Naive, DType::F32);
    checkForward(text, Family::Naive, DType::F32, kEnds, false);
    for (Family family : {Family::Sm80, Family::Sm90}) {
      checkForward(text, family, DType::BF16, {}, family == Family::Sm80);
      checkForward(text, family, DType::BF16, kEnds);
    }
  }
}

TEST_CASE("decode kernels walk twice, and add up parts", "[on-host]") {
  for (const std::string& text : kMods)
    for (Family family : {Family::Sm80, Family::Sm90}) {
      checkForward(text, family, DType::BF16, {}, family == Family::Sm80, KernelKind::Decode);
      checkForward(text, family, DType::BF16, kEnds, true, KernelKind::Decode);
    }
}

TEST_CASE("outputs read the weights of the first walk", "[on-host]") {
  for (Family family : {Family::Naive, Family::Sm80}) {
    if (!test::isCaseDue()) continue;
    INFO(familyName(family));
    const Mod mod = take(Mod::parse(kMods[1] + "def weight(prob, score, b, h, q_idx, kv_idx):\n  return prob\n"
                                               "sums: f32[B, H, KV_LEN] = reduce_sum(weight)\n"));
    Launch l(mod, DType::F32);
    Named got, want;
    for (Named* each : {&got, &want}) each->add("sums", DType::F32, {l.batch, 4, l.columns}, l.random);
    KernelOptions options = l.options(KernelKind::Forward, family);
    options.features.set(Feature::Reductions);
    const Tensor wanted = l.drawn(4, l.rows);
    test::launchOnHost(mod, options, l.operands, {.out = l.out.view, .reductions = &got.all}, {}, paramsOf);
    take(computeOnCpu(mod, l.operands, {.out = wanted.view, .reductions = &want.all}));
    test::compareToLargest("out", l.out.view, wanted.view, 1e-5);
    test::compareToLargest("sums", got.tensors.at("sums").view, want.tensors.at("sums").view, 1e-5);
  }
}

TEST_CASE("gradients go through a prob_mod that is no multiple of the weight", "[on-host]") {
  for (const std::string& text : kMods) {
    checkBackward(text);
    checkBackward(text, kEnds);
  }
}

NVRTC_TEST_CASE("kernels of two walks compile without spills", "[kernels]") {
  std::vector<test::Job> jobs;
  for (const std::string& text : kMods) {
    const Mod mod = take(Mod::parse(text));
    for (int dim : {64, 128, 256})
      for (auto [family, arch] : {std::pair(Family::Sm80, "sm_80"), {Family::Sm90, "sm_90a"}})
        for (KernelKind kind : {KernelKind::Forward, KernelKind::Decode})
          jobs.push_back({fmt::format("walks {} {} d{} {}", jobs.size(), arch, dim, kindName(kind)),
                          mod,
                          {.kind = kind, .family = family, .arch = arch, .headDim = dim, .headDimV = dim}});
    jobs.push_back({fmt::format("walks {} wide", jobs.size()),
                    mod,
                    {.kind = KernelKind::Decode, .arch = "sm_90a", .headDim = 576, .headDimV = 512}});
    jobs.push_back({fmt::format("walks {} backward", jobs.size()),
                    mod,
                    {.kind = KernelKind::Backward,
                     .family = Family::Naive,
                     .arch = "sm_80",
                     .headDim = 64,
                     .gradients = {"gain"}}});
  }
  CHECK(test::findings(jobs) == "");
}
