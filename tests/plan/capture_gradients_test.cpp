// Gradients of captures up to the launch: options, plans, outputs, workspace. Needs no GPU.
#include "tests/plan/planned.h"

#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "families/capture_gradients.h"
#include "helpers/plan_parts.h"

#include <catch2/catch.hpp>

#include <tuple>

using namespace attnc;

namespace {

void* const kSomewhere = reinterpret_cast<void*>(0x1000); // never read
constexpr const char* kArch = "sm_80";

Mod modOf(const std::string& captures, const std::string& score) {
  return take(Mod::parse(captures + "\ndef score_mod(score, b, h, q_idx, kv_idx):\n    return " + score + "\n",
                         {.name = "m.py"}));
}

KernelOptions optionsFor(std::set<std::string> gradients, Family family = Family::Sm80) {
  return {.kind = KernelKind::Backward,
          .family = family,
          .arch = kArch,
          .headDim = 64,
          .headDimV = 64,
          .gradients = std::move(gradients)};
}

TensorView tensor(DType dtype, std::initializer_list<int64_t> shape) {
  return TensorView::contiguous(kSomewhere, dtype, shape);
}

/// Operands of batch 2, 4 heads, 100 rows and 60 columns, with captures.
struct Launch {
  Captures captures, gradients;
  BackwardOperands operands;
  BackwardOutputs outputs;

  Launch() {
    operands.q = operands.out = operands.dOut = tensor(DType::BF16, {2, 4, 100, 64});
    operands.k = operands.v = tensor(DType::BF16, {2, 4, 60, 64});
    operands.lse = tensor(DType::F32, {2, 4, 100});
    operands.captures = &captures;
    outputs = {.dQ = operands.q, .dK = operands.k, .dV = operands.v, .captures = &gradients};
  }
  Launch(const Launch&) = delete;

  /// As a launch checks it.
  Expected<plan::LaunchOperands> check(const Mod& mod, const KernelOptions& options) const {
    auto derived = derive(mod, options);
    if (!derived) return derived.error();
    auto plan = test::choosePlan(*derived, options);
    if (!plan) return plan.error();
    auto checked = plan::checkBackward(operands, outputs, options);
    if (!checked) return checked;
    if (Status ok =
            plan::addCaptureOutputs(*checked, *plan, derived->module(), operands.captures, outputs.captures, true);
        !ok)
      return ok.error();
    return checked;
  }
  size_t workspaceBytes(const Mod& mod, const KernelOptions& options) const {
    auto checked = take(check(mod, options));
    plan::WorkspaceUse sums;
    const plan::Plan plan = test::planOf(mod, options);
    for (const plan::WorkspaceUse& use : plan.workspace)
      if (use.use == plan::Use::CaptureSums) sums = use;
    return sums.bytes(checked);
  }
  std::string error(const Mod& mod, const KernelOptions& options) const {
    auto checked = check(mod, options);
    return checked ? "" : checked.error().message;
  }
};

} // namespace

TEST_CASE("gradients are of captured floats alone", "[api][captures]") {
  const Mod mod = modOf("bias: f32[H]\ngain: float\nidx: i32[Q_LEN]\nn: int", "score * gain + bias[idx[q_idx] + n]");
  const Compiler compiler;
  CHECK(test::sourcesOf(compiler, mod, optionsFor({"bias", "gain"})));
  for (const char* name : {"idx", "n", "nobody"}) {
    const Error source = refusalOf(test::sourcesOf(compiler, mod, optionsFor({name})));
    CHECK(source.message ==
          std::string("a gradient of ") + name + " is asked for, which is no float that m.py captures");
    CHECK(source.remedy == "it captures bias, gain");
  }
}

TEST_CASE("kernels of dq, dk and dv are the same with and without gradients of captures", "[api][captures]") {
  const Compiler compiler;
  for (const char* name : {"alibi", "softcap", "relative_bias", "latent_rope", "learned_bias"}) {
    const Mod mod = *Mod::load(std::string(ATTNC_SOURCE_DIR "/dsl/mods/") + name + ".py");
    std::set<std::string> floats;
    for (const CaptureInfo& capture : mod.captures())
      if (capture.kind == CaptureInfo::Kind::Float || capture.dtype == DType::F32 || capture.dtype == DType::BF16)
        floats.insert(capture.name);
    for (Family family : {Family::Naive, Family::Sm80}) {
      INFO(name << " " << familyName(family));
      const auto without = *test::sourcesOf(compiler, mod, optionsFor({}, family)),
                 with = *test::sourcesOf(compiler, mod, optionsFor(floats, family));
      // The gradients of a low-rank term's factors are divided by the kernel that also divides dq and dk.
      const auto others = [](const std::vector<KernelSource>& sources) {
        std::vector<std::string> texts;
        for (const KernelSource& source : sources)
          if (source.entry != "attnc_low_rank_gradients" && source.entry.rfind("attnc_backward_captures", 0) != 0)
            texts.push_back(source.flattened());
        return texts;
      };
      CHECK(with.size() > without.size());
      CHECK(others(with) == others(without));
    }
  }
}

TEST_CASE("gradients of captures go to tensors of the captures' shapes", "[api][captures]") {
  const Mod mod = modOf("bias: bf16[H, KV_LEN]\ngain: float", "score * gain + bias[h, kv_idx]");
  const KernelOptions options = optionsFor({"bias", "gain"});
  Launch launch;
  launch.captures.set("bias", tensor(DType::BF16, {4, 60})).set("gain", 2.0);
  CHECK(launch.error(mod, options) ==
        "the gradient of bias is not given, expected a tensor of this name in BackwardOutputs::captures");
  launch.gradients.set("bias", tensor(DType::F32, {4, 60}));
  launch.gradients.set("gain", 1.0);
  CHECK(launch.error(mod, options) == "the gradient of gain is a number, expected a tensor");
  launch.gradients.set("gain", tensor(DType::F32, {1}));
  CHECK(launch.error(mod, options) == "the gradient of gain is f32 [1], expected f32 []");
  launch.gradients.set("gain", tensor(DType::F32, {}));
  CHECK(launch.error(mod, options).empty());
  launch.gradients.set("bias", tensor(DType::F16, {4, 60}));
  CHECK(launch.error(mod, options) == "the gradient of bias is f16 [4, 60], expected bf16 [4, 60], or of f32");
  launch.gradients.set("bias", TensorView::contiguous(nullptr, DType::F32, {4, 60}));
  CHECK(launch.error(mod, options) == "the gradient of bias is null, expected device memory");
}

TEST_CASE("dq, dk and dv are asked for together, or not at all", "[api][captures]") {
  const Mod mod = modOf("bias: f32[H]", "score + bias[h]");
  Launch launch;
  launch.captures.set("bias", tensor(DType::F32, {4}));
  launch.gradients.set("bias", tensor(DType::F32, {4}));
  const KernelOptions options = optionsFor({"bias"});
  launch.outputs.dK.reset();
  CHECK(launch.error(mod, options) == "dk is not given, expected dq, dk and dv, or none of them");
  launch.outputs.dQ.reset();
  launch.outputs.dV.reset();
  CHECK(launch.error(mod, optionsFor({})) == "no gradient is asked for");
  for (Family family : {Family::Naive, Family::Sm80}) {
    const KernelOptions ofFamily = optionsFor({"bias"}, family);
    auto checked = take(launch.check(mod, ofFamily));
    const plan::Plan plan = test::planOf(mod, ofFamily);
    for (const plan::Stage& stage : plan.stages) {
      INFO(stage.templateName);
      const bool runs = stage.templateName == "backward_delta.cu" || stage.templateName == "backward_captures.cu" ||
                        stage.templateName == "backward_large.cu" || stage.entry == "attnc_backward_sums" ||
                        stage.templateName == "backward_captures_naive.cu";
      CHECK((plan::ctasOf(stage, checked, {.multiprocessors = 1}) > 0) == runs);
    }
  }
}

TEST_CASE("training is prepared for gradients of captures", "[api][captures]") {
  const Mod mod = modOf("bias: bf16[H, KV_LEN]\ngain: float", "score * gain + bias[h, kv_idx]");
  Launch launch;
  launch.captures.set("bias", tensor(DType::BF16, {4, 60})).set("gain", 2.0);
  const Outputs outputs{.out = launch.operands.out, .lse = launch.operands.lse};
  const Compiler compiler;
  const auto settled = [&](PrepareOptions options = {}) {
    options.arch = kArch;
    return take(compiler.settleTraining(mod, launch.operands, outputs, launch.outputs, options));
  };
  const Preparation without = settled();
  CHECK(without.backward->options().gradients.empty());
  launch.gradients.set("bias", TensorView::contiguous(nullptr, DType::BF16, {4, 60}));
  const Preparation with = settled();
  CHECK(with.backward->options().gradients == std::set<std::string>{"bias"});
  CHECK(with.kernel.options().gradients.empty());
  CHECK(with.workspaceBytes >= without.workspaceBytes + 4 * 60 * 4);
  const Preparation deterministic = settled({.deterministic = true});
  CHECK(deterministic.backward->options().features == Features{Feature::Deterministic});
  CHECK(deterministic.workspaceBytes >= 4 * 60 * 80); // and, for equal bits, no sums of dQ
  launch.outputs.dQ.reset();
  launch.outputs.dK.reset();
  launch.outputs.dV.reset();
  CHECK(settled().workspaceBytes == with.workspaceBytes);
}

TEST_CASE("workspace of gradients of captures is what cannot be summed in place", "[api][captures]") {
  const Mod mod = modOf("bias: bf16[H, KV_LEN]", "score + bias[h, kv_idx]");
  KernelOptions options = optionsFor({"bias"});
  Launch launch;
  launch.captures.set("bias", tensor(DType::BF16, {4, 60}));
  TensorView out = tensor(DType::F32, {4, 60});
  launch.gradients.set("bias", out);
  CHECK(launch.workspaceBytes(mod, options) == 0);
  out.stride[0] = 61;
  launch.gradients.set("bias", out);
  CHECK(launch.workspaceBytes(mod, options) == 4 * 60 * 4);
  launch.gradients.set("bias", tensor(DType::BF16, {4, 60}));
  CHECK(launch.workspaceBytes(mod, options) == 4 * 60 * 4);
  options.features = {Feature::Deterministic};
  launch.gradients.set("bias", tensor(DType::F32, {4, 60}));
  CHECK(launch.workspaceBytes(mod, options) == 4 * 60 * 80);

  // Where every element is written once, order does not matter.
  const Mod perElement = modOf("bias: f32[B, H, Q_LEN, KV_LEN]", "score + bias[b, h, q_idx, kv_idx]");
  launch.captures = {};
  launch.captures.set("bias", tensor(DType::F32, {2, 4, 100, 60}));
  launch.gradients.set("bias", tensor(DType::F32, {2, 4, 100, 60}));
  CHECK(launch.workspaceBytes(perElement, options) == 0);
  CHECK(launch.check(perElement, options)->captureOutputs[0].isOwned);
  CHECK_FALSE(launch.check(perElement, options)->loopsBatches);
  const Mod perHead = modOf("bias: f32[H, Q_LEN, KV_LEN]", "score + bias[h, q_idx, kv_idx]");
  launch.captures = {};
  launch.captures.set("bias", tensor(DType::F32, {4, 100, 60}));
  launch.gradients.set("bias", tensor(DType::F32, {4, 100, 60}));
  CHECK(launch.check(perHead, options)->loopsBatches); // two batch entries add to each, one after the other
  CHECK(launch.workspaceBytes(perHead, options) == 0);
  options.family = Family::Naive; // which does not
  CHECK(launch.workspaceBytes(perHead, options) == 4 * 100 * 60 * 80);
}

TEST_CASE("on Hopper gradients of relative biases come of sums along diagonals", "[api][captures]") {
  const auto isByDiagonals = [](const Mod& mod, std::set<std::string> gradients, int headDim = 128,
                                bool deterministic = false) {
    KernelOptions options = optionsFor(std::move(gradients), Family::Auto);
    options.arch = "sm_90a";
    options.headDim = options.headDimV = headDim;
    options.features = {Feature::Deterministic, deterministic};
    const plan::Plan plan = test::planOf(mod, options);
    bool runs = false;
    for (const plan::Stage& stage : plan.stages) {
      runs |= stage.templateName == "backward_diagonals.cu";
      CHECK_FALSE((plan::sumsDiagonals(plan) && stage.templateName == "backward_captures.cu"));
    }
    CHECK(runs == plan::sumsDiagonals(plan));
    return runs;
  };
  const Mod bias = modOf("bias: f32[H, N]\nother: f32[KV_LEN]", "score + bias[h, q_idx - kv_idx] + other[kv_idx]");
  CHECK(isByDiagonals(bias, {"bias"}));
  CHECK(isByDiagonals(bias, {"bias"}, 64));
  CHECK_FALSE(isByDiagonals(bias, {"bias", "other"})); // all or none
  CHECK_FALSE(isByDiagonals(bias, {}));
  CHECK_FALSE(isByDiagonals(bias, {"bias"}, 128, /*deterministic=*/true));
  CHECK_FALSE(isByDiagonals(bias, {"bias"}, 256));
  const Mod gate = take(Mod::parse("pen: f32[H]\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                                   "  return (q_idx >= kv_idx) & (pen[h] > 0)\n"));
  CHECK_FALSE(isByDiagonals(gate, {"pen"})); // no gradient arrives at it
  for (auto [name, capture, expected] :
       {std::tuple("alibi", "slopes", true), {"relative_bias", "bias", true}, {"learned_bias", "bias", false}}) {
    INFO(name);
    CHECK(isByDiagonals(*Mod::load(std::string(ATTNC_SOURCE_DIR "/dsl/mods/") + name + ".py"), {capture}) == expected);
  }
}

TEST_CASE("sums along diagonals take workspace, and run for captures alone", "[api][captures]") {
  const Mod mod = modOf("bias: f32[H, N]", "score + bias[h, q_idx - kv_idx]");
  KernelOptions options = optionsFor({"bias"}, Family::Sm90);
  options.arch = "sm_90a";
  const plan::Plan plan = test::planOf(mod, options);
  Launch launch;
  launch.captures.set("bias", tensor(DType::F32, {4, 200}));
  launch.gradients.set("bias", tensor(DType::F32, {4, 200}));
  launch.outputs.dQ.reset();
  launch.outputs.dK.reset();
  launch.outputs.dV.reset();
  auto checked = take(launch.check(mod, options));
  for (const plan::Stage& stage : plan.stages) {
    INFO(stage.templateName);
    const bool runs = stage.templateName == "backward_delta.cu" || stage.templateName == "backward_sm90.cu" ||
                      stage.templateName == "backward_large.cu" || stage.templateName == "backward_diagonals.cu";
    CHECK((plan::ctasOf(stage, checked, {.multiprocessors = 1}) > 0) == runs);
    if (stage.templateName == "backward_diagonals.cu") CHECK(plan::ctasOf(stage, checked, {}) == 2 * 4 * 2);
  }
  size_t bytes = 0;
  for (const plan::WorkspaceUse& use : plan.workspace)
    if (use.use == plan::Use::DiagonalSums) {
      bytes = use.bytes(checked);
      CHECK(use.zeroed == plan::WorkspaceUse::Zeroed::EveryLaunch);
    }
  CHECK(bytes == 4 * 2 * 4 * (100 + 60));
  checked.problem.kvLen = 0; // nothing to add up
  for (const plan::Stage& stage : plan.stages)
    if (stage.templateName == "backward_diagonals.cu") CHECK(plan::ctasOf(stage, checked, {}) == 0);
}
