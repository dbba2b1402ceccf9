// Gradients of captures of every family against the fp64 reference.
#include "large_scores.h"

#include "api/mod_impl.h"
#include "helpers/plans.h"
#include "helpers/turns.h"
#include "reference/compare.h"
#include "reference/gradients.h"
#include "support/element.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

using namespace attnc;
using namespace attnc::gputest;

namespace {

const std::vector<Family> kFamilies = {Family::Naive, Family::Sm80, Family::Sm90};

/// Whether the family has a backward kernel for this on the device at hand.
bool serves(Family family, DType dtype, int headDim, int headDimV, bool deterministic) {
  if (family != Family::Sm90) return true;
  const bool wide = std::max(headDim, headDimV) > 128 || (headDim <= 64 && headDimV > 64);
  return gpu()->context.info().arch == "sm_90a" && dtype != DType::F32 && !(deterministic && wide);
}

using CaptureValues = std::map<std::string, std::vector<double>>;

struct Asked {
  std::set<std::string> gradients;
  Family family = Family::Sm80;
  bool deterministic = false;
  bool operandsToo = true; ///< dq, dk and dv are asked for
  bool spaced = false;     ///< gradients in the capture's dtype, each second element of a larger tensor
  bool prepared = false;   ///< by Compiler::prepareTraining(), with a block mask where the mod gains from one
};

device::Buffer uploaded(const cli::HostTensor& tensor) {
  device::Buffer buffer = take(device::Buffer::allocate(tensor.bytes.size()));
  take(buffer.upload(tensor.bytes.data(), tensor.bytes.size()));
  return buffer;
}

device::Buffer poisoned(size_t bytes) {
  device::Buffer buffer = take(device::Buffer::allocate(bytes));
  if (bytes) take(buffer.fill(0xff));
  return buffer;
}

TensorView dense(const device::Buffer& buffer, DType dtype, std::array<int64_t, 4> shape) {
  return TensorView::contiguous(buffer.data(), dtype, {shape[0], shape[1], shape[2], shape[3]});
}

/// Where the gradient of a capture goes. `like`: the capture, or no axes for a scalar.
TensorView layOut(const TensorView& like, bool spaced) {
  TensorView view = like;
  if (!spaced) view.dtype = DType::F32;
  int64_t step = spaced ? 2 : 1;
  for (int axis = view.rank; axis-- > 0; step *= view.shape[axis]) view.stride[axis] = step;
  return view;
}

/// Forward, then backward `times` times; gradients of captures as doubles, of the last launch. Fails where launches of
/// a deterministic kernel differ in a bit. Outputs and workspace are poisoned with NaN before each.
CaptureValues run(const Mod& mod, const Problem& problem, const HostOperands& operands, const ResultGradients& given,
                  const Asked& asked, int times = 1) {
  Gpu& gpu = *gputest::gpu();
  const ProblemShape& s = problem.shape;
  const device::Buffer q = uploaded(operands.q), k = uploaded(operands.k), v = uploaded(operands.v),
                       dOut = uploaded(given.dOut), dLse = uploaded(*given.dLse);
  const int64_t kvBatch = problem.kvBatchOne ? 1 : s.batch;
  const std::array<int64_t, 4> shapeQ{s.batch, s.qHeads, s.qLen, problem.headDim},
      shapeK{kvBatch, s.kvHeads, s.kvLen, problem.headDim}, shapeV{kvBatch, s.kvHeads, s.kvLen, problem.headDimV},
      shapeOut{s.batch, s.qHeads, s.qLen, problem.headDimV};
  const device::Buffer out = poisoned(dOut.bytes()), lse = poisoned(dLse.bytes());
  const DeviceCaptures captures = uploadCaptures(operands.captures);
  const Operands forwardOperands{.q = dense(q, problem.dtype, shapeQ),
                                 .k = dense(k, problem.dtype, shapeK),
                                 .v = dense(v, problem.dtype, shapeV),
                                 .captures = &captures.captures};
  BackwardOperands inputs{forwardOperands};
  inputs.out = dense(out, problem.dtype, shapeOut);
  inputs.lse = TensorView::contiguous(lse.data(), DType::F32, {s.batch, s.qHeads, s.qLen});
  inputs.dOut = dense(dOut, problem.dtype, shapeOut);
  inputs.dLse = TensorView::contiguous(dLse.data(), DType::F32, {s.batch, s.qHeads, s.qLen});
  const KernelOptions options{.family = asked.family,
                              .dtype = problem.dtype,
                              .headDim = problem.headDim,
                              .headDimV = problem.headDimV,
                              .features = {Feature::Deterministic, asked.deterministic},
                              .gradients = asked.gradients};
  const ForwardKernel forward = take(test::loadForward(gpu.compiler, mod, options));
  const BackwardKernel backward = take(test::loadBackward(gpu.compiler, mod, options));
  const Outputs results{.out = inputs.out, .lse = inputs.lse};
  device::Buffer ofForward = take(device::Buffer::allocate(take(forward.workspaceBytes(forwardOperands, results))));
  take(ofForward.fill(0));
  take(forward.launch(forwardOperands, results, ofForward.data(), gpu.stream.get()));
  take(gpu.stream.synchronize());

  CaptureValues values;
  std::map<std::string, std::vector<char>> first;
  for (int i = 0; i < times; ++i) {
    const device::Buffer dQ = poisoned(q.bytes()), dK = poisoned(k.bytes()), dV = poisoned(v.bytes());
    BackwardOutputs outputs;
    if (asked.operandsToo)
      outputs = {.dQ = dense(dQ, problem.dtype, shapeQ),
                 .dK = dense(dK, problem.dtype, shapeK),
                 .dV = dense(dV, problem.dtype, shapeV)};
    Captures gradients;
    std::map<std::string, device::Buffer> buffers;
    for (const std::string& name : asked.gradients) {
      const auto* like = std::get_if<TensorView>(operands.captures.find(name));
      TensorView view = layOut(like ? *like : TensorView(), asked.spaced);
      buffers[name] = poisoned(size_t(view.elements() * (asked.spaced ? 2 : 1) * dtypeBytes(view.dtype)));
      view.data = buffers[name].data();
      gradients.set(name, view);
    }
    outputs.captures = &gradients;
    if (asked.prepared) {
      const Prepared training =
          take(gpu.compiler.prepareTraining(mod, inputs, {.out = inputs.out, .lse = inputs.lse}, outputs,
                                            {.family = asked.family, .deterministic = asked.deterministic}));
      CHECK(training.preparation().blockMask);
      const device::Buffer workspace = poisoned(training.workspaceBytes());
      take(training.initialise(inputs, workspace.data(), gpu.stream.get()));
      take(
          training.launch(forwardOperands, {.out = inputs.out, .lse = inputs.lse}, workspace.data(), gpu.stream.get()));
      take(training.launchBackward(inputs, outputs, workspace.data(), gpu.stream.get()));
      take(gpu.stream.synchronize());
    }
    const size_t bytes = take(backward.workspaceBytes(inputs, outputs));
    CHECK(bytes <= take(backward.workspaceBytes(inputs)));
    const device::Buffer workspace = poisoned(bytes);
    if (!asked.prepared) take(backward.launch(inputs, outputs, workspace.data(), gpu.stream.get()));
    take(gpu.stream.synchronize());
    for (const auto& [name, buffer] : buffers) {
      std::vector<char> host(buffer.bytes());
      take(buffer.download(host.data(), host.size()));
      if (asked.deterministic && i > 0) CHECK(host == first[name]);
      const auto& view = std::get<TensorView>(*gradients.find(name));
      values[name].clear();
      for (int64_t element = 0; element < view.elements(); ++element)
        values[name].push_back(readElement(host.data(), view.dtype, element * (asked.spaced ? 2 : 1)).real);
      if (i == 0) first[name] = std::move(host);
    }
  }
  return values;
}

CaptureValues expectedOf(const Mod& mod, const HostOperands& operands, const ResultGradients& given,
                         const std::set<std::string>& wanted) {
  const Mod derived = take(gradientMod(mod, wanted));
  BackwardOperands args{{operands.q.view(), operands.k.view(), operands.v.view()}, {}, {}, given.dOut.view()};
  args.dLse = given.dLse->view();
  return take(reference::gradients(derived.module(), operands.captures, args, captureGradients(derived))).captures;
}

/// g = P (dO v - delta) is off by P times the error of delta, which is that of the rounded out times dO: some u
/// sqrt(DV) for all of a row, and independent from row to row. Sums over rows are off by that times the root of the
/// weight that they get, and so is their own size by dO and v; derivatives of the mods below stay near 1 to 10.
void check(const CaptureValues& got, const CaptureValues& want, const Problem& problem, DType outDtype) {
  REQUIRE(got.size() == want.size());
  for (const auto& [name, expected] : want) {
    const double u = problem.dtype == DType::BF16 ? 0x1p-9 : problem.dtype == DType::F16 ? 0x1p-12 : 0x1p-18;
    const double stored = outDtype == DType::BF16 ? 0x1p-9 : 0;
    double squares = 0;
    for (double x : expected) squares += x * x;
    const double rms = std::sqrt(squares / std::max<double>(1, double(expected.size())));
    const std::vector<double>& actual = got.at(name);
    REQUIRE(actual.size() == expected.size());
    reference::Comparison comparison(
        {.absolute = u * (32 + 12 * rms) * std::max(1.0, std::sqrt(problem.headDimV / 64.)),
         .relative = 8 * u + 2 * stored});
    for (size_t i = 0; i < actual.size(); ++i) comparison.add(actual[i], expected[i]);
    INFO(name << ", rms " << rms << ", max error " << comparison.maxError() << ": " << comparison.firstBadText());
    CHECK(comparison.holds());
  }
}

void checkAll(const std::string& text, const std::set<std::string>& gradients, const Problem& problem,
              const std::vector<Family>& families = kFamilies, const HostOperands* drawn = nullptr) {
  const Mod mod = take(Mod::parse(text));
  const HostOperands operands = drawn ? *drawn : draw(mod, problem);
  const ResultGradients given = drawGradients(problem, /*withLse=*/true);
  const CaptureValues expected = expectedOf(mod, operands, given, gradients);
  for (Family family : families)
    for (bool deterministic : {false, true}) {
      if (!serves(family, problem.dtype, problem.headDim, problem.headDimV, deterministic)) continue;
      INFO(text << "\n" << familyName(family) << ", " << problem.text() << (deterministic ? ", deterministic" : ""));
      check(run(mod, problem, operands, given, {gradients, family, deterministic}, deterministic ? 3 : 1), expected,
            problem, DType::F32);
    }
}

std::string scoreOf(const std::string& captures, const std::string& score,
                    const std::string& mask = "q_idx + 30 >= kv_idx") {
  return captures + "\ndef score_mod(score, b, h, q_idx, kv_idx):\n    return " + score +
         "\n\ndef mask_mod(b, h, q_idx, kv_idx):\n    return " + mask + "\n";
}

struct Access {
  std::string text;
  std::set<std::string> gradients;
};
/// Both passes, for compileAhead().
void addJobs(std::vector<std::pair<Mod, KernelOptions>>& jobs, const Access& access, Family family, DType dtype,
             int headDim) {
  const Mod mod = take(Mod::parse(access.text));
  jobs.push_back({mod, {.family = family, .dtype = dtype, .headDim = headDim}});
  for (bool deterministic : {false, true})
    if (serves(family, dtype, headDim, headDim, deterministic))
      jobs.push_back({mod,
                      {.kind = KernelKind::Backward,
                       .family = family,
                       .dtype = dtype,
                       .headDim = headDim,
                       .features = {Feature::Deterministic, deterministic},
                       .gradients = access.gradients}});
}

const Access kAccesses[] = {
    {scoreOf("bias: f32[H]", "score * bias[h]"), {"bias"}},
    {scoreOf("bias: f32[Q_LEN]", "score * bias[q_idx]"), {"bias"}},
    {scoreOf("bias: f32[KV_LEN]", "score + bias[kv_idx]"), {"bias"}},
    {scoreOf("bias: f32[KV_LEN]", "score + bias[kv_idx]", "True"), {"bias"}},
    {scoreOf("bias: f32[H, 40]", "score + bias[h, q_idx - kv_idx + 10]"), {"bias"}}, // clamped at both ends
    {scoreOf("bias: f32[H, 512]", "score + bias[h, q_idx - kv_idx]", "True"),
     {"bias"}}, // negative ones count from the end
    {scoreOf("import torch\nbias: f32[300]", "score + bias[torch.abs(q_idx - kv_idx)]"), {"bias"}},
    {scoreOf("bias: f32[H, Q_LEN, KV_LEN]", "score + bias[h, q_idx, kv_idx]"), {"bias"}},
    {scoreOf("bias: f32[B, H, Q_LEN, KV_LEN]", "score + bias[b, h, q_idx, kv_idx]"), {"bias"}},
    {scoreOf("bias: f32[B, H, 50]\nidx: i32[Q_LEN]", "score * bias[b, h, idx[q_idx]]"), {"bias"}},
    {scoreOf("bias: f32", "score * bias"), {"bias"}},
    {scoreOf("bias: bf16[KV_LEN]", "score + bias[kv_idx]"), {"bias"}},
    {scoreOf("import torch\ncap: float\ngain: float", "cap * torch.tanh(score * gain)"), {"cap", "gain"}},
    {scoreOf("import torch\nbias: f32[300]\nother: f32[H]",
             "torch.tanh(score) * bias[h] + bias[q_idx] * other[h] + bias[kv_idx - q_idx + 7]"),
     {"bias", "other"}},
    {scoreOf("a: f32[B, H, Q_LEN, 16]\nc: bf16[B, KV_LEN, 16]", "score + 0.1 * (a[b, h, q_idx] @ c[b, kv_idx])"),
     {"a", "c"}},
    {scoreOf("bias: f32[H]\nsink: f32[H]\ntilt: bf16[Q_LEN]\nall: float", "score + bias[h] * (kv_idx % 3)") +
         "\ndef sink_mod(b, h, q_idx):\n    return sink[h] * all + tilt[q_idx] * bias[h]\n",
     {"bias", "sink", "tilt", "all"}},
};

} // namespace

GPU_TEST_CASE("gradients of captures agree with the reference, however they are read", "[gpu][backward][captures]") {
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  for (const Access& access : kAccesses)
    for (Family family : kFamilies)
      for (DType dtype : {DType::BF16, DType::F32}) addJobs(jobs, access, family, dtype, 64);
  compileAhead(jobs);
  for (const Access& access : kAccesses)
    for (DType dtype : {DType::BF16, DType::F32})
      for (const ProblemShape& shape :
           {ProblemShape{2, 4, 2, 130, 190}, {1, 2, 2, 63, 65}, {1, 3, 1, 1, 200}, {1, 2, 2, 200, 1}})
        checkAll(access.text, access.gradients, {shape, 64, 64, dtype});
}

GPU_TEST_CASE("gradients of captures at every kind of head dim agree with the reference", "[gpu][backward][captures]") {
  const Access& access = kAccesses[4];
  for (DType dtype : {DType::F16, DType::F32})
    for (auto [qk, v] : {std::pair(40, 64), {128, 128}, {192, 128}, {256, 256}})
      if (test::isCaseDue()) checkAll(access.text, access.gradients, {{1, 4, 2, 130, 150}, qk, v, dtype});
}

namespace {

/// score + u w, of bf16. `head`: the index of w along the heads, of H or HKV.
std::string lowRank(int rank, const std::string& others = "", const std::string& head = "h",
                    const std::string& after = "", const std::string& mask = "q_idx + 30 >= kv_idx") {
  return scoreOf(fmt::format("u: bf16[B, H, Q_LEN, {0}]\nw: bf16[B, {1}, KV_LEN, {0}]\n{2}", rank,
                             head == "h" ? "H" : "HKV", others),
                 fmt::format("score + 0.125 * (u[b, h, q_idx] @ w[b, {}, kv_idx]){}", head, after), mask);
}

} // namespace

GPU_TEST_CASE("gradients of low-rank terms from columns of dq and dk agree with the reference",
              "[gpu][backward][captures]") {
  const std::vector<Family> families = {Family::Sm80, Family::Sm90};
  const std::set<std::string> both = {"u", "w"};
  checkAll(lowRank(64), both, {{2, 4, 4, 130, 190}, 128, 128, DType::BF16}, families);
  checkAll(lowRank(64), both, {{1, 4, 2, 200, 129}, 64, 64, DType::BF16}, families);
  checkAll(lowRank(16), both, {{2, 4, 2, 65, 257}, 64, 64, DType::BF16}, families);
  checkAll(lowRank(16, "", "h // 2"), both, {{2, 4, 2, 65, 257}, 128, 128, DType::BF16}, families);
  checkAll(lowRank(16), both, {{2, 4, 2, 65, 257}, 72, 40, DType::BF16, /*kvBatchOne=*/true}, families);
  checkAll(lowRank(16, "", "h", "", "True"), {"w"}, {{1, 2, 2, 1, 300}, 64, 64, DType::BF16}, families);
  // Other captures get theirs from scores.
  checkAll(lowRank(16, "gain: f32[H]", "h", " * gain[h]"), {"u", "w", "gain"}, {{2, 4, 2, 130, 190}, 64, 64}, families);
  for (const std::set<std::string>& wanted : {std::set<std::string>{"u", "bias"}, {"bias"}})
    checkAll(lowRank(16, "bias: f32[H, 600]", "h", " + bias[h, q_idx - kv_idx + 300]"), wanted,
             {{2, 4, 2, 130, 190}, 64, 64}, families);
  // Shared by all heads and batch entries, which a thread takes in turn.
  checkAll(scoreOf("u: f32[Q_LEN, 16]\nw: f32[KV_LEN, 16]", "score + 0.125 * (u[q_idx] @ w[kv_idx])"), both,
           {{3, 4, 2, 130, 190}, 128, 128}, families);
  // Only gradients of captures, in their strides and dtype, and by lists.
  for (bool prepared : {false, true}) {
    const Problem problem{{2, 4, 2, 300, 400}, 128, 128, DType::BF16};
    const Mod mod =
        take(Mod::parse(lowRank(64, "", "h", "", "(q_idx // 100 == kv_idx // 100) & ((q_idx + kv_idx) % 7 != 0)")));
    const HostOperands operands = draw(mod, problem);
    const ResultGradients given = drawGradients(problem, true);
    for (Family family : families)
      if (serves(family, DType::BF16, 192, 128, false))
        check(run(mod, problem, operands, given,
                  {both, family, false, /*operandsToo=*/prepared, /*spaced=*/!prepared, prepared}, 2),
              expectedOf(mod, operands, given, both), problem, prepared ? DType::F32 : DType::BF16);
  }
}

GPU_TEST_CASE("gradients of captures from sums along diagonals agree with the reference", "[gpu][backward][captures]") {
  const std::string captures = "import torch\nbias: f32[H, 1500]\nslopes: f32[H]\ngain: float",
                    causal = "q_idx >= kv_idx";
  const Access accesses[] = {
      {scoreOf(captures, "score + bias[h, q_idx - kv_idx + 700]", "True"), {"bias"}},
      {scoreOf(captures, "score + bias[h, torch.clamp(kv_idx - q_idx, min=-40, max=40) + 40]", causal), {"bias"}},
      {scoreOf(captures, "score + slopes[h] * (0.05 * (kv_idx - q_idx))", causal), {"slopes"}},
      {scoreOf(captures, "score + 0.05 * (slopes[h] * (kv_idx - q_idx))", "q_idx - kv_idx < 90"), {"slopes"}},
      {scoreOf(captures, "score + bias[h, torch.abs(q_idx - kv_idx)] * gain + slopes[h] / gain"),
       {"bias", "slopes", "gain"}},
      // no interval of columns
      {scoreOf(captures, "score + bias[h, q_idx - kv_idx + 700]", "(q_idx + kv_idx) % 5 != 0"), {"bias"}},
  };
  // No step, one, two and many; tails on both sides; heads and batches that follow each other in a tile of K and V.
  const ProblemShape shapes[] = {{2, 4, 2, 130, 190}, {1, 2, 2, 64, 128},  {1, 3, 1, 1, 200},
                                 {1, 2, 2, 200, 1},   {1, 2, 2, 128, 256}, {1, 2, 1, 1000, 700}};
  if (!serves(Family::Sm90, DType::BF16, 128, 128, false)) {
    WARN("SKIPPED: needs sm_90a");
    return;
  }
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  for (const Access& access : accesses)
    for (int headDim : {64, 128})
      for (DType dtype : {DType::BF16, DType::F16}) addJobs(jobs, access, Family::Sm90, dtype, headDim);
  compileAhead(jobs);
  for (const Access& access : accesses)
    for (int headDim : {64, 128})
      for (DType dtype : {DType::BF16, DType::F16})
        for (const ProblemShape& shape : shapes)
          checkAll(access.text, access.gradients, {shape, headDim, headDim, dtype}, {Family::Sm90});
  for (int headDim : {64, 128})
    checkAll(accesses[0].text, accesses[0].gradients,
             {{3, 4, 2, 150, 300}, headDim, headDim, DType::BF16, /*kvBatchOne=*/true});
  checkAll(accesses[0].text, accesses[0].gradients, {{2, 4, 2, 130, 190}, 40, 56, DType::F16});
  checkAll(accesses[0].text, accesses[0].gradients, {{2, 4, 2, 130, 190}, 128, 64, DType::BF16});

  // Only the gradient of the capture: without dq, dk and dv, in the capture's strides, several times.
  const Problem problem{{2, 4, 2, 130, 190}, 128, 128, DType::BF16};
  const Mod mod = take(Mod::parse(accesses[0].text));
  const HostOperands operands = draw(mod, problem);
  const ResultGradients given = drawGradients(problem, true);
  for (bool spaced : {false, true})
    check(run(mod, problem, operands, given, {{"bias"}, Family::Sm90, false, /*operandsToo=*/false, spaced}, 3),
          expectedOf(mod, operands, given, {"bias"}), problem, DType::F32);
}

GPU_TEST_CASE("gradients from sums along diagonals by the lists of a block mask agree with the reference",
              "[gpu][backward][captures]") {
  const Mod mod = take(Mod::parse(scoreOf("bias: f32[H, 1024]", "score + bias[h, q_idx - kv_idx + 512]",
                                          "(q_idx // 200 == kv_idx // 200) & ((q_idx + kv_idx) % 7 != 0)")));
  for (int headDim : {64, 128}) {
    const Problem problem{{2, 4, 2, 500, 450}, headDim, headDim, DType::BF16};
    if (!serves(Family::Sm90, DType::BF16, headDim, headDim, false)) continue;
    const HostOperands operands = draw(mod, problem);
    const ResultGradients given = drawGradients(problem, true);
    Asked asked{{"bias"}, Family::Sm90};
    asked.prepared = true;
    check(run(mod, problem, operands, given, asked, 2), expectedOf(mod, operands, given, {"bias"}), problem,
          DType::F32);
  }
}

GPU_TEST_CASE("only the bias wants a gradient, in its own dtype and strides", "[gpu][backward][captures]") {
  const Mod mod = take(Mod::parse(scoreOf("bias: bf16[H, KV_LEN]", "score + bias[h, kv_idx]")));
  const Problem problem{{2, 4, 2, 130, 190}, 64, 64, DType::F16};
  const HostOperands operands = draw(mod, problem);
  const ResultGradients given = drawGradients(problem, true);
  const CaptureValues expected = expectedOf(mod, operands, given, {"bias"});
  for (Family family : kFamilies)
    for (bool deterministic : {false, true})
      if (serves(family, DType::F16, 64, 64, deterministic))
        check(run(mod, problem, operands, given,
                  {{"bias"}, family, deterministic, /*operandsToo=*/false, /*spaced=*/true}, 2),
              expected, problem, DType::BF16);
}

GPU_TEST_CASE("gradients of captures by the lists of a block mask agree with the reference",
              "[gpu][backward][captures]") {
  const Mod mod = take(Mod::parse(scoreOf("bias: f32[H, 512]", "score + bias[h, q_idx - kv_idx + 256]",
                                          "(q_idx // 100 == kv_idx // 100) & ((q_idx + kv_idx) % 7 != 0)")));
  const Problem problem{{2, 4, 2, 300, 400}, 64, 64, DType::F16};
  const HostOperands operands = draw(mod, problem);
  const ResultGradients given = drawGradients(problem, true);
  const CaptureValues expected = expectedOf(mod, operands, given, {"bias"});
  for (Family family : {Family::Naive, Family::Sm80})
    for (bool deterministic : {false, true}) {
      Asked asked{{"bias"}, family, deterministic};
      asked.prepared = true;
      check(run(mod, problem, operands, given, asked, 2), expected, problem, DType::F32);
    }
}

GPU_TEST_CASE("masked elements and masked rows add 0 to gradients of captures, whatever the derivative is there",
              "[gpu][backward][captures]") {
  // log has an infinite derivative at 0 and none below; rows 0, 3, 6, ... see nothing.
  const std::string text =
      scoreOf("import torch\nbias: f32[KV_LEN]", "score + torch.log(bias[kv_idx])", "(kv_idx < 40) & (q_idx % 3 != 0)");
  const Problem problem{{1, 2, 2, 70, 90}, 64, 64, DType::F32};
  HostOperands operands = draw(take(Mod::parse(text)), problem);
  std::vector<float> bias;
  for (int i = 0; i < 90; ++i) bias.push_back(i < 40 ? 1 + float(i) / 8 : float(40 - i));
  operands.captures.set("bias", TensorView::contiguous(bias.data(), DType::F32, {90}));
  checkAll(text, {"bias"}, problem, kFamilies, &operands);
}

GPU_TEST_CASE("gradients of captures are exact for scores of any size", "[gpu][backward][captures]") {
  const Problem problem{{1, 2, 1, 200, 300}, 64, 64, DType::BF16};
  for (const LargeCase& large : largeCases()) {
    if (large.way == LargeCase::Way::Product) continue;
    if (large.way == LargeCase::Way::Row) continue;
    const bool byColumn = large.way == LargeCase::Way::Column;
    const HostOperands operands = drawLarge(large, problem);
    checkAll(byColumn ? scoreOf("bias: f32[KV_LEN]", "score + bias[kv_idx]", "kv_idx >= 0")
                      : scoreOf("bias: f32[Q_LEN, KV_LEN]", "score + bias[q_idx, kv_idx]", "kv_idx >= 0"),
             {"bias"}, problem, kFamilies, &operands);
  }
}

GPU_TEST_CASE("gradients of captures of empty problems are 0", "[gpu][backward][captures]") {
  const Mod mod = take(
      Mod::parse("bias: f32[H, 40]\ndef score_mod(score, b, h, q_idx, kv_idx):\n    return score + bias[h, kv_idx]\n"));
  const Mod byDiagonals = take(Mod::parse(scoreOf("bias: f32[H, 40]", "score + bias[h, q_idx - kv_idx]")));
  for (const ProblemShape& shape : {ProblemShape{1, 2, 2, 0, 5}, {1, 2, 2, 5, 0}, {0, 2, 2, 5, 5}}) {
    const Problem problem{shape, 64, 64, DType::BF16};
    const HostOperands operands = draw(mod, problem);
    const ResultGradients given = drawGradients(problem, true);
    for (Family family : kFamilies)
      for (bool deterministic : {false, true})
        if (serves(family, DType::BF16, 64, 64, deterministic))
          for (const Mod* each : {&mod, &byDiagonals})
            CHECK(run(*each, problem, operands, given, {{"bias"}, family, deterministic}).at("bias") ==
                  std::vector<double>(80, 0.0));
  }
}
