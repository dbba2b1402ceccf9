// Kernels of mods with a sink_mod, run on the host, against attention and gradients in fp64; and compiled.
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

/// Heads without a sink, with small ones and with one beyond all scores; some rows have no live score.
const std::string kSinks = "sink: f32[H]\n"
                           "tilt: f32[Q_LEN]\n"
                           "def sink_mod(b, h, q_idx):\n"
                           "  return where(h == 3, float('-inf'), sink[h] + 0.5 * tilt[q_idx] + 0.25 * b)\n";
const std::string kMasked = "slopes: f32[H]\n"
                            "def score_mod(score, b, h, q_idx, kv_idx):\n  return score + slopes[h] * (kv_idx - q_idx) "
                            "+ where(h == 2, 1e9, 0.0)\n"
                            "def mask_mod(b, h, q_idx, kv_idx):\n"
                            "  return (q_idx >= kv_idx) & (q_idx % 8 != 5)\n";

/// A launch on the host, whose captures are those of the texts above.
struct Launch {
  std::mt19937 random{3};
  int64_t qLen, kvLen;
  DType dtype;
  Tensor q, k, v, dOut, dLse, sink, tilt, slopes;
  Captures captures;

  Launch(const std::string& text, int64_t qLen, int64_t kvLen, DType dtype, int64_t dim = 64)
      : qLen(qLen), kvLen(kvLen), dtype(dtype), q(dtype, {2, 4, qLen, dim}, random),
        k(dtype, {2, 2, kvLen, dim}, random), v(dtype, {2, 2, kvLen, dim}, random),
        dOut(dtype, {2, 4, qLen, dim}, random), dLse(DType::F32, {2, 4, qLen}, random), sink(DType::F32, {4}, random),
        tilt(DType::F32, {qLen}, random), slopes(DType::F32, {4}, random) {
    sink.set({1}, 300), sink.set({2}, 1e9), slopes.set({2}, 0); // fp32 cannot normalise by the last's lse
    captures.set("sink", sink.view), captures.set("tilt", tilt.view);
    if (text.find("slopes") != std::string::npos) captures.set("slopes", slopes.view);
  }
  BackwardOperands operands() {
    BackwardOperands all{{.q = q.view, .k = k.view, .v = v.view}, {}, {}, dOut.view, dLse.view};
    all.captures = &captures;
    return all;
  }
};

void compare(const char* name, const TensorView& got, const TensorView& want, double margin) {
  int wrong = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double is = readElement(static_cast<const char*>(got.data), got.dtype, i).real,
                 be = readElement(static_cast<const char*>(want.data), want.dtype, i).real;
    if (!(is == be || std::fabs(is - be) <= margin * (1 + std::fabs(be))) && ++wrong < 5)
      WARN(fmt::format("{} element {}: {} instead of {}", name, i, is, be));
  }
  INFO(name);
  CHECK(wrong == 0);
}

std::string paramsOf(const plan::Stage& stage) {
  const std::string& name = stage.templateName;
  return name == "forward_naive.cu"              ? "naive::Params"
         : name == "forward_sm80.cu"             ? "sm80::Params"
         : name == "forward_sm90.cu"             ? "sm90::Params"
         : name == "decode_lists.cu"             ? "DecodeListsParams"
         : name == "decode_sm90.cu"              ? "decode::CopiesOfEngine::Params"
         : name == "decode_sm80.cu"              ? "decode::CopiesOfThreads::Params"
         : name == "decode_wide_sm90.cu"         ? "decode::Params"
         : name == "decode_merge.cu"             ? "DecodeParams"
         : name == "backward_captures_out.cu"    ? "CaptureOutputParams"
         : name.starts_with("backward_captures") ? "CaptureParams"
         : name == "backward_sinks.cu"           ? "CaptureParams"
         : name == "backward_delta.cu"           ? "BackwardParams"
         : name == "backward_large.cu"           ? "BackwardParams"
         : name == "backward_naive.cu"           ? "BackwardParams"
         : name == "backward_kv_sm80.cu"         ? "BackwardParams"
         : name == "backward_q_sm80.cu"          ? "BackwardParams"
                                                 : "BackwardParamsSm80";
}

void checkForward(const std::string& text, KernelOptions options, int64_t qLen, int64_t kvLen,
                  DType dtype = DType::BF16, int64_t dim = 64, int multiprocessors = 3) {
  if (!test::isCaseDue()) return;
  INFO(kindName(options.kind) << " " << familyName(options.family) << ", " << qLen << " x " << kvLen << "\n" << text);
  const Mod mod = take(Mod::parse(text));
  Launch launch(text, qLen, kvLen, dtype, dim);
  Tensor out(dtype, {2, 4, qLen, dim}, launch.random), lse(DType::F32, {2, 4, qLen}, launch.random),
      rowMax(DType::F32, {2, 4, qLen}, launch.random);
  Tensor wantOut(DType::F32, {2, 4, qLen, dim}, launch.random), wantLse(DType::F32, {2, 4, qLen}, launch.random),
      wantMax(DType::F32, {2, 4, qLen}, launch.random);
  options.arch = "sm_90a", options.dtype = dtype;
  options.headDim = options.headDimV = int(dim);
  options.features.set(Feature::RowMax);
  test::launchOnHost(mod, options, launch.operands(), {.out = out.view, .lse = lse.view, .rowMax = rowMax.view}, {},
                     {.multiprocessors = multiprocessors}, paramsOf);
  take(computeOnCpu(mod, launch.operands(), {.out = wantOut.view, .lse = wantLse.view, .rowMax = wantMax.view}));
  compare("out", out.view, wantOut.view, dtype == DType::BF16 ? 0x1p-7 : 1e-5);
  compare("lse", lse.view, wantLse.view, 1e-4);
  compare("row max", rowMax.view, wantMax.view, 1e-4);
}

void checkBackward(const std::string& text, Family family, DType dtype, std::set<std::string> names,
                   bool deterministic = false) {
  if (!test::isCaseDue()) return;
  INFO(familyName(family) << (deterministic ? ", deterministic" : "") << "\n" << text);
  const Mod mod = take(Mod::parse(text));
  Launch l(text, 70, 65, dtype);
  Tensor out(dtype, {2, 4, 70, 64}, l.random), lse(DType::F32, {2, 4, 70}, l.random);
  BackwardOperands operands = l.operands();
  take(computeOnCpu(mod, operands, {.out = out.view, .lse = lse.view}));
  operands.out = out.view, operands.lse = lse.view;
  struct Gradients {
    Tensor dQ, dK, dV, sink, tilt, slopes;
    Captures captures;
    Gradients(DType dtype, const std::set<std::string>& names, std::mt19937& random)
        : dQ(dtype, {2, 4, 70, 64}, random), dK(dtype, {2, 2, 65, 64}, random), dV(dtype, {2, 2, 65, 64}, random),
          sink(DType::F32, {4}, random), tilt(DType::F32, {70}, random), slopes(DType::F32, {4}, random) {
      for (auto [name, tensor] : {std::pair("sink", &sink), {"tilt", &tilt}, {"slopes", &slopes}}) {
        std::fill(tensor->bytes.begin(), tensor->bytes.end(), char(0)); // as a launch does
        if (names.count(name)) captures.set(name, tensor->view);
      }
    }
    BackwardOutputs all() const { return {.dQ = dQ.view, .dK = dK.view, .dV = dV.view, .captures = &captures}; }
  };
  const Gradients got(dtype, names, l.random), want(DType::F32, names, l.random);
  take(computeBackwardOnCpu(mod, operands, want.all()));
  KernelOptions options{.kind = KernelKind::Backward,
                        .family = family,
                        .arch = "sm_80",
                        .dtype = dtype,
                        .headDim = 64,
                        .headDimV = 64,
                        .features = {Feature::Deterministic, deterministic},
                        .gradients = names};
  test::launchOnHost(mod, options, operands, {}, got.all(), {}, paramsOf);
  const double margin = dtype == DType::F32 ? 1e-4 : 0x1p-6;
  compare("dq", got.dQ.view, want.dQ.view, margin);
  compare("dk", got.dK.view, want.dK.view, margin);
  compare("dv", got.dV.view, want.dV.view, margin);
  for (const std::string& name : names) {
    const Tensor Gradients::*of = name == "sink"   ? &Gradients::sink
                                  : name == "tilt" ? &Gradients::tilt
                                                   : &Gradients::slopes;
    compare(name.c_str(), (got.*of).view, (want.*of).view, dtype == DType::F32 ? 1e-4 : 0x1p-5);
  }
}

} // namespace

TEST_CASE("forward kernels add the sink of a row to its denominator", "[on-host]") {
  for (Family family : {Family::Naive, Family::Sm80, Family::Sm90})
    for (const std::string& text : {kSinks, kSinks + kMasked}) checkForward(text, {.family = family}, 70, 65);
  checkForward(kSinks + kMasked, {.family = Family::Sm90}, 3, 0); // no key: the lse is the sink
}

TEST_CASE("decode kernels add the sink of a row once, however keys are split", "[on-host]") {
  for (int multiprocessors : {1, 7}) {
    checkForward(kSinks + kMasked, {.kind = KernelKind::Decode, .family = Family::Sm90}, 3, 700, DType::BF16, 64,
                 multiprocessors);
    checkForward(kSinks, {.kind = KernelKind::Decode, .family = Family::Sm80}, 2, 700, DType::BF16, 64,
                 multiprocessors);
    checkForward(kSinks + kMasked, {.kind = KernelKind::Decode, .family = Family::Sm90, .packedRows = 64}, 2, 300,
                 DType::BF16, 512, multiprocessors);
  }
}

TEST_CASE("backward kernels give gradients of what sink_mod reads", "[on-host]") {
  checkBackward(kSinks + kMasked, Family::Naive, DType::F32, {"sink", "tilt", "slopes"});
  checkBackward(kSinks, Family::Naive, DType::F32, {"sink"});
  checkBackward(kSinks + kMasked, Family::Naive, DType::F32, {"sink", "tilt"}, /*deterministic=*/true);
  checkBackward(kSinks + kMasked, Family::Sm80, DType::BF16, {"sink", "tilt"});
  checkBackward(kSinks + kMasked, Family::Sm80, DType::BF16, {"sink", "slopes"});
}

TEST_CASE("only what score_mod reads needs another walk over the scores", "[on-host]") {
  const auto stages = [](const std::string& text, std::set<std::string> gradients) {
    const Plan plan = take(Compiler().plan(
        take(Mod::parse(text)),
        {.kind = KernelKind::Backward, .arch = "sm_90a", .headDim = 64, .headDimV = 64, .gradients = gradients}));
    std::string all;
    for (const plan::Stage& stage : PlanAccess::of(plan).plan.stages) all += stage.templateName + " ";
    return all;
  };
  const std::string ofSinks = stages(kSinks + kMasked, {"sink", "tilt"});
  CHECK(ofSinks.find("backward_sinks.cu") != std::string::npos);
  CHECK(ofSinks.find("backward_captures.cu") == std::string::npos);
  CHECK(ofSinks.find("backward_diagonals.cu") == std::string::npos);
  CHECK(stages(kSinks + kMasked, {"slopes"}).find("backward_sinks.cu") == std::string::npos);
}

NVRTC_TEST_CASE("kernels with a sink compile without spills", "[kernels]") {
  std::vector<test::Job> jobs;
  const Mod mod = take(Mod::parse(kSinks + kMasked));
  const auto add = [&](KernelOptions options, const char* arch) {
    options.arch = arch;
    jobs.push_back(
        {fmt::format("sink {} {} {} d{}", kindName(options.kind), familyName(options.family), arch, options.headDim),
         mod, options, options.kind == KernelKind::Backward && options.headDim == 256 ? 72 : 0});
  };
  for (int dim : {64, 128, 256}) {
    for (KernelKind kind : {KernelKind::Forward, KernelKind::Decode}) {
      add({.kind = kind, .family = Family::Sm90, .headDim = dim, .headDimV = dim}, "sm_90a");
      add({.kind = kind, .family = Family::Sm80, .headDim = dim, .headDimV = dim}, "sm_80");
    }
    for (bool deterministic : {false, true})
      add({.kind = KernelKind::Backward,
           .family = Family::Sm80,
           .headDim = dim,
           .headDimV = dim,
           .features = {Feature::Deterministic, deterministic},
           .gradients = {"sink", "tilt"}},
          "sm_80");
  }
  CHECK(test::findings(jobs) == "");
}
