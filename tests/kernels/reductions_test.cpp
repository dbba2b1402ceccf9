// Outputs that mods declare: kernels run on the host, against the fp64 reference; and compiled.
#include "helpers/ragged_lists.h"

#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "kernels/findings.h"
#include "kernels/host_launch.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <random>

using namespace attnc;
using test::Tensor;

namespace {

/// Sums and maxima of all shapes; one reads captures.
const std::string kOutputs = "sizes: f32[KV_LEN]\n"
                             "def weight(prob, score, b, h, q_idx, kv_idx):\n  return prob\n"
                             "def entropy(prob, score, b, h, q_idx, kv_idx):\n"
                             "  return where(prob > 0, -prob * log(prob), 0.0)\n"
                             "def logit(prob, score, b, h, q_idx, kv_idx):\n  return score\n"
                             "def far(prob, score, b, h, q_idx, kv_idx):\n"
                             "  return prob * sizes[kv_idx] * abs(q_idx - kv_idx) + h\n"
                             "columns: f32[B, H, KV_LEN] = reduce_sum(weight)\n"
                             "largest: f32[B, H, KV_LEN] = reduce_max(far)\n"
                             "rows: f32[B, H, Q_LEN] = reduce_sum(entropy)\n"
                             "row_logit: f32[B, H, Q_LEN] = reduce_max(logit)\n"
                             "heads: f32[B, H] = reduce_sum(far)\n"
                             "max_logit: f32[B, H] = reduce_max(logit)\n";
/// Sums of weights only, which have a shorter path.
const std::string kSums = "def weight(prob, score, b, h, q_idx, kv_idx):\n  return prob\n"
                          "columns: f32[B, H, KV_LEN] = reduce_sum(weight)\n"
                          "rows: f32[B, H, Q_LEN] = reduce_sum(weight)\n";
const std::string kCausal = "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx + 100 >= kv_idx\n";
const std::string kMod = "slopes: f32[H]\n"
                         "def score_mod(score, b, h, q_idx, kv_idx):\n"
                         "  return where(kv_idx % 7 == 3, -inf, score + slopes[h] * (q_idx - kv_idx))\n"
                         "def mask_mod(b, h, q_idx, kv_idx):\n"
                         "  return (q_idx >= kv_idx - 9) & (q_idx % 8 != 5) & (h != 3)\n"
                         "def prob_mod(prob, b, h, q_idx, kv_idx):\n  return prob * 0.5\n"
                         "def sink_mod(b, h, q_idx):\n  return 0.25 * h\n";

/// Tensors for all outputs of a mod, at first random.
struct Reduced {
  std::map<std::string, Tensor> tensors;
  Captures captures;

  /// `packedRows`: of k, in a ragged batch without pages.
  Reduced(const Mod& mod, const ProblemShape& problem, int64_t packedQ = 0, int64_t packedK = 0) {
    std::mt19937 random(11);
    for (const CaptureInfo& each : mod.reductions()) {
      std::vector<int64_t> shape{problem.batch, problem.qHeads};
      const int64_t packed = each.extent.size() < 3 ? 0 : each.extent[2] == "Q_LEN" ? packedQ : packedK;
      if (packed) shape[0] = 1;
      if (each.extent.size() > 2)
        shape.push_back(packed ? packed : each.extent[2] == "Q_LEN" ? problem.qLen : problem.kvLen);
      captures.set(each.name, tensors.try_emplace(each.name, DType::F32, shape, random).first->second.view);
    }
  }
};

void compare(const Reduced& got, const Reduced& want, double margin) {
  for (const auto& [name, tensor] : want.tensors) {
    const TensorView &is = got.tensors.at(name).view, &be = tensor.view;
    int wrong = 0;
    for (int64_t i = 0; i < be.elements(); ++i) {
      const double a = static_cast<const float*>(is.data)[i], b = static_cast<const float*>(be.data)[i];
      if (!(a == b || std::fabs(a - b) <= margin * (1 + std::fabs(b))) && ++wrong < 5)
        WARN(fmt::format("{} element {}: {} instead of {}", name, i, a, b));
    }
    INFO(name);
    CHECK(wrong == 0);
  }
}

std::string paramsOf(const plan::Stage& stage) {
  const std::string& name = stage.templateName;
  return name == "forward_naive.cu"      ? "naive::Params"
         : name == "reductions_naive.cu" ? "naive::Params"
         : name == "forward_sm80.cu"     ? "sm80::Params"
         : name == "append.cu"           ? "Cached<ForwardParams>"
         : name == "forward_sm90.cu"     ? "sm90::Params"
         : name == "reductions_sm90.cu"  ? "ReductionParamsSm90"
                                         : "ReductionParams";
}

struct Case {
  Family family;
  DType dtype;
  std::string text;
  double margin;
  bool hasLse = false;   ///< whether the caller wants lse and row maxima as well
  bool isCached = false; ///< whether sequences have KV lengths, and queries stand at their last keys
  bool hasLists = false;
  int64_t dim = 24;
  int64_t qLen = 0; ///< 0: a short one
};

void check(const Case& c) {
  if (!test::isCaseDue()) return;
  INFO(familyName(c.family) << " " << dtypeName(c.dtype) << " lists " << c.hasLists << " cached " << c.isCached << "\n"
                            << c.text);
  const Mod mod = take(Mod::parse(c.text));
  std::mt19937 random(3);
  const bool isSm90 = c.family == Family::Sm90;
  const ProblemShape problem{2, 4, 2, c.qLen ? c.qLen : 70, isSm90 ? 300 : c.hasLists ? 140 : 75};
  const int64_t rows = problem.qLen, columns = problem.kvLen;
  Tensor q(c.dtype, {2, 4, rows, c.dim}, random), k(c.dtype, {2, 2, columns, c.dim}, random),
      v(c.dtype, {2, 2, columns, c.dim}, random), out(c.dtype, {2, 4, rows, c.dim}, random),
      lse(DType::F32, {2, 4, rows}, random), rowMax(DType::F32, {2, 4, rows}, random), slopes(DType::F32, {4}, random),
      sizes(DType::F32, {columns}, random);
  Captures captures;
  if (c.text.find("sizes") != std::string::npos) captures.set("sizes", sizes.view);
  if (c.text.find("slopes") != std::string::npos) captures.set("slopes", slopes.view);
  Operands operands{.q = q.view, .k = k.view, .v = v.view, .captures = &captures};
  std::vector<int32_t> lengths{71, 5};
  if (c.isCached) operands.kvLengths = TensorView::contiguous(lengths.data(), DType::I32, {2});
  const int block = isSm90 ? 128 : 64;
  const test::DrawnLists lists({2, 4, rows, columns, block, block}, random);
  if (c.hasLists) operands.blockMask = &lists.view;
  Reduced got(mod, problem), want(mod, problem);
  Outputs outputs{.out = out.view, .reductions = &got.captures};
  if (c.hasLse) outputs.lse = lse.view, outputs.rowMax = rowMax.view;
  KernelOptions options = optionsOf(operands, outputs, {.arch = isSm90 ? "sm_90a" : "sm_80"});
  options.family = c.family;
  test::launchOnHost(mod, options, operands, outputs, {}, paramsOf);
  Tensor wantOut(c.dtype, {2, 4, rows, c.dim}, random);
  take(computeOnCpu(mod, operands, {.out = wantOut.view, .reductions = &want.captures}));
  compare(got, want, c.margin);
}

void checkRagged(test::RaggedCase c, const std::string& text) {
  if (!test::isCaseDue()) return;
  c.mod = text;
  INFO(c.text());
  const Mod mod = take(Mod::parse(text));
  test::RaggedBatch batch(c), own(c);
  test::RaggedResults results(c, batch.rows(), DType::BF16), wanted(c, own.rows(), DType::F32);
  const Operands operands = batch.operands();
  const int64_t sequences = int64_t(c.qLengths.size()), rowsOfK = c.pageSize ? 0 : operands.k.shape[2];
  const ProblemShape problem{sequences, c.heads, c.kvHeads, 0, c.pageSize ? operands.maxKvLen : 0};
  Reduced got(mod, problem, batch.rows(), rowsOfK), want(mod, problem, batch.rows(), rowsOfK);
  Outputs outputs = results.outputs(), expected = wanted.outputs();
  outputs.reductions = &got.captures, expected.reductions = &want.captures;
  KernelOptions options = optionsOf(operands, outputs, {.arch = "sm_80"});
  options.family = c.family;
  test::launchOnHost(mod, options, operands, outputs, {}, paramsOf);
  take(computeOnCpu(mod, own.operands(), expected));
  // Rows outside all sequences are not written.
  for (auto& [name, tensor] : want.tensors) {
    if (tensor.view.rank < 3 || tensor.view.shape[0] != 1) continue;
    Tensor& written = got.tensors.at(name);
    const bool isOfQ = name.starts_with("row");
    const int64_t length = tensor.view.shape[2], end = isOfQ || c.kvLengths.empty() ? own.endRow() : length - 5;
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t row = 0; row < length; ++row)
        if (row < own.firstRow() || row >= end) tensor.set({0, h, row}, written.at({0, h, row}));
  }
  compare(got, want, 2e-4);
}

} // namespace

TEST_CASE("outputs of mods agree with the reference", "[on-host]") {
  check({Family::Naive, DType::F32, kOutputs, 1e-5});
  check({Family::Naive, DType::F32, kMod + kOutputs, 1e-5, /*hasLse=*/true});
  check({Family::Naive, DType::F16, kMod + kOutputs, 1e-4, false, /*isCached=*/true});
  check({Family::Naive, DType::F32, kMod + kOutputs, 1e-4, false, false, /*hasLists=*/true});
  check({Family::Sm80, DType::BF16, kOutputs, 1e-4});
  check({Family::Sm80, DType::BF16, kMod + kOutputs, 1e-4, false, true, true});
  check({Family::Sm80, DType::F16, kMod + kOutputs, 1e-4, true, true});
  check({Family::Sm90, DType::BF16, kOutputs, 1e-4});
  check({Family::Sm90, DType::F16, kCausal + kSums, 1e-4, false, false, false, 64, 1100}); // rings begin anew
  check({Family::Sm90, DType::BF16, kSums, 1e-4, false, false, true, 72, 800});
  check({Family::Sm90, DType::BF16, kMod + kOutputs, 1e-4, false, true, true});
  check({Family::Sm90, DType::F16, kMod + kOutputs, 1e-4, true, true});
}

TEST_CASE("outputs of mods agree with the reference in ragged batches, with lists and in pages", "[on-host]") {
  const std::string text = "def mask_mod(b, h, q_idx, kv_idx):\n  return (q_idx + 2 * kv_idx + b + h) % 3 != 0\n" +
                           kOutputs.substr(kOutputs.find("def weight"));
  const std::string free = text.substr(0, text.find("def far")) +
                           "def far(prob, score, b, h, q_idx, kv_idx):\n"
                           "  return prob * (q_idx - kv_idx)\n" +
                           text.substr(text.find("columns:"));
  checkRagged({.qLengths = {70, 0, 130, 1}}, free);
  checkRagged({.qLengths = {70, 0, 130, 1}, .kvLengths = {3, 60, 200, 129}, .hasLists = false}, free);
  checkRagged({.qLengths = {1, 0, 130, 1}, .kvLengths = {200, 0, 130, 3}, .pageSize = 16, .appends = true}, free);
  checkRagged({.qLengths = {1, 0, 130}, .kvLengths = {200, 0, 130}, .dtype = DType::E4M3, .pageSize = 16}, free);
}

TEST_CASE("tensors for outputs of mods are checked") {
  const Mod mod = take(Mod::parse(kOutputs));
  std::mt19937 random(3);
  Tensor q(DType::F32, {1, 2, 8, 16}, random), out(DType::F32, {1, 2, 8, 16}, random), sizes(DType::F32, {8}, random),
      rows(DType::F32, {1, 2, 8}, random), other(DType::F32, {2, 8}, random), half(DType::F16, {1, 2, 8}, random);
  Captures captures;
  captures.set("sizes", sizes.view);
  const Operands operands{.q = q.view, .k = q.view, .v = q.view, .captures = &captures};
  const auto refusal = [&](const std::string& name, const TensorView& tensor, const Mod& of) {
    Captures given;
    given.set(name, tensor);
    const Outputs outputs{.out = out.view, .reductions = &given};
    const std::string onCpu = refusalOf(computeOnCpu(of, operands, outputs)).message;
    CHECK(refusalOf(Compiler().settle(of, operands, outputs, {.arch = "sm_80"})).message == onCpu);
    return onCpu;
  };
  CHECK(refusal("colums", rows.view, mod) == "the mod has no output colums");
  CHECK(refusal("rows", other.view, mod) == "the output rows is no dense tensor f32 [1, 2, 8]");
  CHECK(refusal("rows", half.view, mod) == "the output rows is no dense tensor f32 [1, 2, 8]");
  CHECK(refusal("rows", rows.view, take(Mod::parse("sizes: f32[KV_LEN]\nscore + sizes[kv_idx]"))) ==
        "the mod has no output rows");
  Captures given;
  given.set("rows", rows.view);
  const KernelOptions options = optionsOf(operands, {.out = out.view}, {.arch = "sm_80"});
  CHECK(refusalOf(plan::checkForward(operands, {.out = out.view, .reductions = &given}, options)).message ==
        "outputs of the mod are asked for, but the kernel was compiled without");
}

NVRTC_TEST_CASE("kernels of outputs of mods compile without spills", "[kernels]") {
  std::vector<test::Job> jobs;
  for (const std::string& text : {kOutputs, kMod + kOutputs})
    for (const char* arch : {"sm_80", "sm_90a"})
      for (auto [dtype, headDim] : {std::pair(DType::BF16, 128), {DType::F32, 64}})
        jobs.push_back({fmt::format("{} {} {} {}", text, arch, dtypeName(dtype), headDim),
                        take(Mod::parse(text)),
                        {.family = Family::Sm80, // other kernels of this mod spill
                         .arch = arch,
                         .dtype = dtype,
                         .headDim = headDim,
                         .features = {Feature::Reductions}}});
  for (const std::string& text : {kOutputs, kMod + kOutputs, kCausal + kSums})
    for (int headDim : {64, 128, 256})
      for (bool hasLists : {false, true}) {
        KernelOptions options{.arch = "sm_90a", .dtype = DType::BF16, .headDim = headDim, .blockSparse = hasLists};
        options.features = {Feature::Reductions};
        jobs.push_back({fmt::format("{} sm90 {} lists {}", text, headDim, hasLists), take(Mod::parse(text)), options, 0,
                        "reductions_sm90"});
      }
  CHECK(test::findings(jobs) == "");
}
