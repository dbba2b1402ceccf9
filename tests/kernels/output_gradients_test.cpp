// Gradients of outputs of mods: naive backward kernels run on the host, against the fp64 reference.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "helpers/ragged_lists.h"
#include "ir/printer.h"
#include "kernels/findings.h"
#include "kernels/host_gradients.h"
#include "kernels/host_launch.h"
#include "kernels/host_tensor.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <tuple>

using namespace attnc;
using test::Tensor;

namespace {

/// Sums of all shapes, by weights, scores, captures and positions. Maxima have no gradients.
const std::string kOutputs = "sizes: f32[KV_LEN]\n"
                             "def weight(prob, score, b, h, q_idx, kv_idx):\n  return prob\n"
                             "def entropy(prob, score, b, h, q_idx, kv_idx):\n"
                             "  return where(prob > 0, -prob * log(prob), 0.0)\n"
                             "def far(prob, score, b, h, q_idx, kv_idx):\n"
                             "  return (prob + 0.01 * score) * sizes[kv_idx] * abs(q_idx - kv_idx) * 0.1\n"
                             "columns: f32[B, H, KV_LEN] = reduce_sum(weight)\n"
                             "largest: f32[B, H, KV_LEN] = reduce_max(far)\n"
                             "rows: f32[B, H, Q_LEN] = reduce_sum(entropy)\n"
                             "heads: f32[B, H] = reduce_sum(far)\n";
const std::string kScores =
    "slopes: f32[H]\n"
    "tilt: f32[H]\n"
    "def score_mod(score, b, h, q_idx, kv_idx):\n"
    "  return where(kv_idx % 7 == 3, -inf, tanh(score) * 2 + slopes[h] * (q_idx - kv_idx) * 0.1)\n"
    "def mask_mod(b, h, q_idx, kv_idx):\n"
    "  return (q_idx >= kv_idx - 9) & (q_idx % 8 != 5) & (h != 3)\n"
    "def sink_mod(b, h, q_idx):\n  return tilt[h]\n";
const std::string kDropped = "def prob_mod(prob, b, h, q_idx, kv_idx):\n  return prob * (kv_idx % 3)\n";

/// Sums of weights, which kernels with tensor cores take.
const std::string kOfWeights = "sizes: f32[KV_LEN]\n"
                               "def weight(prob, score, b, h, q_idx, kv_idx):\n  return prob\n"
                               "def entropy(prob, score, b, h, q_idx, kv_idx):\n"
                               "  return where(prob > 0, -prob * log(prob), 0.0)\n"
                               "def far(prob, score, b, h, q_idx, kv_idx):\n"
                               "  return prob * prob * sizes[kv_idx] * abs(q_idx - kv_idx)\n"
                               "columns: f32[B, H, KV_LEN] = reduce_sum(weight)\n"
                               "rows: f32[B, H, Q_LEN] = reduce_sum(entropy)\n"
                               "heads: f32[B, H] = reduce_sum(far)\n";
const std::string kColumns = "def weight(prob, score, b, h, q_idx, kv_idx):\n  return prob\n"
                             "columns: f32[B, H, KV_LEN] = reduce_sum(weight)\n";
const std::string kCausal = "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n";
const std::string kBiased = "slopes: f32[H]\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
                            "  return score + slopes[h] * (q_idx - kv_idx) * 0.1\n";

/// Named tensors, for each of these names.
struct Named {
  std::map<std::string, Tensor> tensors;
  Captures all;

  void add(const std::string& name, const std::vector<int64_t>& shape, std::mt19937& random, DType dtype = DType::F32) {
    all.set(name, tensors.try_emplace(name, dtype, shape, random).first->second.view);
  }
};

struct Case {
  std::string text;
  bool hasLists = false;
  std::vector<int32_t> ends = {}; ///< cumulative lengths of a ragged batch
  bool onlyCaptures = false;      ///< whether q, k and v want no gradients
  Family family = Family::Naive;
  DType dtype = DType::F32;
  int64_t dim = 16;
  double margin = 1e-4;
  std::set<std::string> wanted = {"sizes", "slopes", "tilt"}; ///< captures
  Features features = {};
  bool hasLargeScores = false; ///< whose bounds are wide: keys' gradients may come from any weight
};

/// Compares gradients within the bounds that `attnc run --verify` takes. `of`: dq, dk and dv.
void checkAllBounds(const Mod& mod, const Case& c, const std::set<std::string>& names, const BackwardOperands& operands,
                    const Named& ofCaptures, const Named& of) {
  const Mod derived = take(gradientMod(mod, names, false, /*withOutputs=*/true));
  const Captures& captures = *operands.captures;
  const ir::CaptureGradients& places = captureGradients(derived);
  const auto want = take(reference::gradients(derived.module(), captures, operands, places));
  reference::Arithmetic by = reference::arithmeticOf(c.dtype, c.dtype, false);
  by.penalty = 0x1p-14 * 0.3; // of slopes by the distance, up to 0.3
  const auto bounds = take(reference::errorBounds(derived.module(), captures, operands, want, by, places));
  for (const auto& [name, tensor] : ofCaptures.tensors)
    test::checkBounds(name, tensor.view, want.captures.at(name), bounds.captures.at(name));
  if (c.onlyCaptures) return;
  for (const auto& [name, values, limits] :
       {std::tuple("dq", &want.dQ, &bounds.dQ), {"dk", &want.dK, &bounds.dK}, {"dv", &want.dV, &bounds.dV}})
    test::checkBounds(name, of.tensors.at(name).view, *values, *limits);
}

void check(const Case& c) {
  if (!test::isCaseDue()) return;
  INFO(familyName(c.family) << " lists " << c.hasLists << " ragged " << !c.ends.empty() << "\n" << c.text);
  const Mod mod = take(Mod::parse(c.text));
  std::mt19937 random(3);
  const bool isRagged = !c.ends.empty();
  const int64_t batch = isRagged ? 1 : 2, rows = 70, columns = isRagged ? 70 : c.hasLists ? 128 : 75, dim = c.dim;
  const auto drawn = [&](int64_t heads, int64_t length) {
    return Tensor(c.dtype, {batch, heads, length, dim}, random);
  };
  const Tensor q = drawn(4, rows), k = drawn(2, columns), v = drawn(2, columns), out = drawn(4, rows),
               dOut = drawn(4, rows);
  const Tensor lse(DType::F32, {batch, 4, rows}, random), dLse(DType::F32, {batch, 4, rows}, random);
  Named given, got, want;
  const int64_t sequences = isRagged ? int64_t(c.ends.size()) - 1 : batch;
  given.add("columns_gradient", {batch, 4, columns}, random);
  if (c.text.find("rows:") != std::string::npos) given.add("rows_gradient", {batch, 4, rows}, random);
  if (c.text.find("heads:") != std::string::npos) given.add("heads_gradient", {sequences, 4}, random);
  std::set<std::string> names;
  for (const CaptureInfo& capture : mod.captures()) {
    const std::vector<int64_t> shape{capture.name == "sizes" ? columns : 4};
    given.add(capture.name, shape, random);
    if (!c.wanted.count(capture.name)) continue;
    names.insert(capture.name);
    for (Named* each : {&got, &want}) {
      each->add(capture.name, shape, random);
      Tensor& zeros = each->tensors.at(capture.name); // as a launch finds them
      std::fill(zeros.bytes.begin(), zeros.bytes.end(), char(0));
    }
  }
  BackwardOperands operands{{.q = q.view, .k = k.view, .v = v.view}, {}, {}, dOut.view, dLse.view};
  operands.captures = &given.all;
  std::vector<int32_t> ends = c.ends;
  if (isRagged) operands.cuSeqlensQ = TensorView::contiguous(ends.data(), DType::I32, {int64_t(ends.size())});
  const int64_t block = c.family == Family::Sm90 ? 128 : 64;
  const BlockMask lists =
      take(BlockMask::fromLists(test::DrawnLists({2, 4, rows, columns, int(block), int(block)}, random).view));
  const BlockMask withColumns = lists.withColumns();
  const BlockMaskView view = withColumns.view();
  if (c.hasLists) operands.blockMask = &view;
  take(computeOnCpu(mod, operands, {.out = out.view, .lse = lse.view}));
  operands.out = out.view, operands.lse = lse.view;
  Named gotten, wanted; // dq, dk, dv
  const auto outputsTo = [&](Named& named, const Named& captures) {
    named.add("dq", {batch, 4, rows, dim}, random, c.dtype);
    named.add("dk", {batch, 2, columns, dim}, random, c.dtype);
    named.add("dv", {batch, 2, columns, dim}, random, c.dtype);
    BackwardOutputs all{.captures = &captures.all};
    if (c.onlyCaptures) return all;
    all.dQ = named.tensors.at("dq").view, all.dK = named.tensors.at("dk").view, all.dV = named.tensors.at("dv").view;
    return all;
  };
  KernelOptions options = optionsOf(operands, {}, {.arch = c.family == Family::Sm90 ? "sm_90a" : "sm_80"});
  options.kind = KernelKind::Backward, options.gradients = names, options.family = c.family;
  options.features = options.features | c.features;
  options.features.set(Feature::Reductions);
  take(computeBackwardOnCpu(mod, operands, outputsTo(wanted, want)));
  test::launchOnHost(mod, options, operands, {}, outputsTo(gotten, got), {}, test::backwardParamsOf);
  for (const auto& [name, tensor] : want.tensors)
    test::compareToLargest(name, got.tensors.at(name).view, tensor.view, c.margin);
  if (!isRagged && !c.hasLists && !c.hasLargeScores) checkAllBounds(mod, c, names, operands, got, gotten);
  if (c.onlyCaptures) return;
  for (const auto& [name, tensor] : wanted.tensors)
    test::compareToLargest(name, gotten.tensors.at(name).view, tensor.view, c.margin);
}

} // namespace

TEST_CASE("naive backward kernels compute gradients of outputs", "[on-host][output-gradients]") {
  check({kOutputs});
  check({kScores + kOutputs});
  check({kScores + kDropped + kOutputs, /*hasLists=*/true});
  check({kScores + kOutputs, false, {0, 31, 31, 70}});
  check({.text = kScores + kOutputs, .onlyCaptures = true});
}

TEST_CASE("backward kernels with tensor cores compute gradients of outputs", "[on-host][output-gradients]") {
  const auto fast = [](Family family, Case c) {
    c.family = family, c.dtype = DType::BF16, c.margin = 2e-2;
    c.wanted.erase("sizes"); // which outputs read
    check(c);
  };
  fast(Family::Sm90, {kCausal + kColumns});
  fast(Family::Sm90, {.text = kOfWeights, .dim = 72});
  fast(Family::Sm90, {.text = kScores + kOfWeights, .dim = 72, .features = {Feature::Deterministic}});
  fast(Family::Sm90, {kScores + kOfWeights, /*hasLists=*/true});
  fast(Family::Sm90, {kScores + kOfWeights, false, {0, 31, 31, 70}});
  fast(Family::Sm90, {.text = kBiased + kCausal + kOfWeights, .onlyCaptures = true});
  fast(Family::Sm80, {kScores + kOfWeights});
  fast(Family::Sm80, {kCausal + kColumns, /*hasLists=*/true});
}

TEST_CASE("two walks of mma.sync compute gradients of outputs in f32, and those that are deterministic",
          "[on-host][output-gradients]") {
  const std::set<std::string> learned = {"slopes", "tilt"};
  for (Case c :
       {Case{.text = kScores + kOfWeights, .dim = 24},
        {.text = kBiased + kCausal + kOfWeights, .dim = 136},
        {.text = kCausal + kColumns, .hasLists = true},
        {.text = kScores + kOfWeights, .ends = {0, 31, 31, 70}},
        {.text = kScores + kOfWeights, .dtype = DType::BF16, .margin = 2e-2, .features = {Feature::Deterministic}}}) {
    c.family = Family::Sm80, c.wanted = learned;
    check(c);
  }
}

TEST_CASE("gradients of outputs hold in rows of large scores", "[on-host][output-gradients]") {
  const std::string low = "def score_mod(score, b, h, q_idx, kv_idx):\n"
                          "  return where(q_idx % 8 == 3, score - 1e9, score)\n";
  for (Family family : {Family::Sm80, Family::Sm90}) {
    Case c{.text = low + kOfWeights, .family = family, .dtype = DType::BF16, .margin = 2e-2, .hasLargeScores = true};
    c.wanted.erase("sizes");
    check(c);
  }
}

TEST_CASE("outputs of a sequence of a ragged batch have the gradients of its own", "[output-gradients]") {
  const Mod mod = take(Mod::parse("def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n"
                                  "def weight(prob, score, b, h, q_idx, kv_idx):\n  return prob * score\n"
                                  "columns: f32[B, H, KV_LEN] = reduce_sum(weight)\n"
                                  "rows: f32[B, H, Q_LEN] = reduce_sum(weight)\n"
                                  "heads: f32[B, H] = reduce_sum(weight)\n"));
  std::mt19937 random(3);
  const auto drawn = [&](std::vector<int64_t> shape) { return Tensor(DType::F32, std::move(shape), random); };
  const Tensor q = drawn({1, 2, 9, 8}), k = drawn({1, 2, 9, 8}), v = drawn({1, 2, 9, 8}), dOut = drawn({1, 2, 9, 8}),
               out = drawn({1, 2, 9, 8}), lse = drawn({1, 2, 9}), columns = drawn({1, 2, 9}), rows = drawn({1, 2, 9}),
               heads = drawn({2, 2});
  const auto computed = [&](const std::function<TensorView(const TensorView&)>& part, const TensorView& ofHeads,
                            const std::optional<TensorView>& ends, int64_t length) {
    std::vector<Tensor> results; // dq, dk, dv
    for (int n = 0; n < 3; ++n) results.push_back(drawn({1, 2, length, 8}));
    const Tensor rowsOfLse = drawn({1, 2, length});
    Captures captures;
    captures.set("columns_gradient", part(columns.view)).set("rows_gradient", part(rows.view));
    captures.set("heads_gradient", ofHeads);
    BackwardOperands operands{{.q = part(q.view), .k = part(k.view), .v = part(v.view), .cuSeqlensQ = ends}};
    operands.captures = &captures;
    operands.out = part(out.view), operands.lse = rowsOfLse.view, operands.dOut = part(dOut.view);
    take(computeBackwardOnCpu(mod, operands, {results[0].view, results[1].view, results[2].view}));
    return results;
  };
  std::vector<int32_t> ends{0, 4, 9};
  const auto all = computed([](const TensorView& whole) { return whole; }, heads.view,
                            TensorView::contiguous(ends.data(), DType::I32, {3}), 9);
  for (int64_t b : {0, 1}) {
    const int64_t start = ends[size_t(b)], length = ends[size_t(b) + 1] - start;
    const auto part = [&](TensorView of) {
      of.data = static_cast<float*>(of.data) + start * of.stride[2];
      of.shape[2] = length;
      return of;
    };
    TensorView own = heads.view;
    own.data = static_cast<float*>(own.data) + 2 * b, own.shape[0] = 1;
    const auto alone = computed(part, own, {}, length);
    for (size_t i = 0; i < 3; ++i)
      for (int64_t h : {0, 1})
        for (int64_t row = 0; row < length; ++row)
          for (int64_t d = 0; d < 8; ++d)
            CHECK(all[i].at({0, h, start + row, d}) == Approx(alone[i].at({0, h, row, d})).margin(1e-6));
  }
}

TEST_CASE("backward passes know whether outputs have gradients, and what is wrong with these", "[output-gradients]") {
  const Mod mod = take(Mod::parse("def f(prob, score, b, h, q_idx, kv_idx):\n  return prob * score\n"
                                  "sums: f32[B, H] = reduce_sum(f)\nrows: f32[B, H, Q_LEN] = reduce_sum(f)\n"
                                  "top: f32[B, H] = reduce_max(f)\n"));
  std::vector<char> memory(1 << 16);
  const auto at = [&](DType dtype, std::initializer_list<int64_t> shape) {
    return TensorView::contiguous(memory.data(), dtype, shape);
  };
  const TensorView x = at(DType::BF16, {1, 2, 128, 64}), ofRows = at(DType::F32, {1, 2, 128}),
                   ofHeads = at(DType::F32, {1, 2});
  Captures captures;
  BackwardOperands operands{{.q = x, .k = x, .v = x}, x, ofRows, x, {}};
  operands.captures = &captures;
  const BackwardOutputs to{.dQ = x, .dK = x, .dV = x};
  const Compiler compiler({.cacheMode = CompilerOptions::CacheMode::Off});
  const auto settled = [&](const Mod& mod) {
    return compiler.settleTraining(mod, operands, {.out = x, .lse = ofRows}, to, {.arch = "sm_90a"});
  };
  CHECK(take(settled(mod)).backward->options().family == Family::Sm90);
  captures.set("sums_gradient", ofHeads);
  CHECK(refusalOf(settled(mod)).message.find("capture 'rows_gradient' is missing") != std::string::npos);
  captures.set("rows_gradient", ofRows);
  const Preparation preparation = take(settled(mod));
  CHECK(preparation.backward->options().family == Family::Naive);
  CHECK(preparation.kernel.options().family == Family::Sm90);
  const Mod taken = take(Mod::parse("sums_gradient: f32[B, H]\n"
                                    "def score_mod(score, b, h, q_idx, kv_idx):\n  return score * sums_gradient[b, h]\n"
                                    "def f(prob, score, b, h, q_idx, kv_idx):\n  return prob\n"
                                    "sums: f32[B, H] = reduce_sum(f)\n"));
  CHECK(refusalOf(gradientMod(taken, {}, false, true)).message ==
        "a capture is named sums_gradient, which is that of the gradient of sums");
  const Mod partly =
      take(Mod::parse("sums_gradient: f32[B, H]\n"
                      "def score_mod(score, b, h, q_idx, kv_idx):\n  return score * sums_gradient[b, h]\n"
                      "def f(prob, score, b, h, q_idx, kv_idx):\n  return prob\n"
                      "sums: f32[B, H] = reduce_sum(f)\nrows: f32[B, H, Q_LEN] = reduce_sum(f)\n"));
  CHECK(take(gradientMod(partly, {}, false, true)).captures().size() == 2); // the mod's own, and rows_gradient
  CHECK(refusalOf(gradientMod(mod, {}, true, true)).message.find("no second derivatives") != std::string::npos);
  const auto familyFor = [&](const std::string& prefix, const std::string& value) {
    const Mod other = take(Mod::parse(prefix + "def f(prob, score, b, h, q_idx, kv_idx):\n  return " + value +
                                      "\nsums: f32[B, H] = reduce_sum(f)\nrows: f32[B, H, Q_LEN] = reduce_sum(f)\n"));
    const Plan plan = *take(settled(other)).backward;
    return plan.options().family == Family::Naive ? plan.passedOver() : std::string(familyName(plan.options().family));
  };
  CHECK(familyFor("", "prob") == "sm90");
  CHECK(familyFor("", "prob * score") == "sm90 takes no gradients of outputs that read scores");
  CHECK(familyFor("", "where(score > 0, prob, 0.0)") == "sm90 takes no gradients of outputs that read scores");
  CHECK(familyFor("def prob_mod(prob, b, h, q_idx, kv_idx):\n  return where(random(1, b, h, q_idx, kv_idx) < 0.5, 0.0, "
                  "prob * 2)\n",
                  "prob") == "sm90 takes no gradients of outputs next to a prob_mod");
  const Mod entropy = take(gradientMod(take(Mod::load(ATTNC_SOURCE_DIR "/dsl/mods/entropy.py")), {}, false, true));
  CHECK(ir::print(entropy.module()).find("div") == std::string::npos); // a weight by itself is 1
  captures.set("top_gradient", ofHeads);
  for (const Error& error : {refusalOf(settled(mod)), refusalOf(computeBackwardOnCpu(mod, operands, to))})
    CHECK(error.message == "top_gradient is given, and top is a maximum, which has no gradient");
}

NVRTC_TEST_CASE("kernels of gradients of outputs compile", "[kernels]") {
  std::vector<test::Job> jobs;
  for (Features features : {Features{Feature::Reductions}, {Feature::Reductions, Feature::Deterministic}})
    jobs.push_back({fmt::format("deterministic {}", features.has(Feature::Deterministic)),
                    take(Mod::parse(kScores + kDropped + kOutputs)),
                    {.kind = KernelKind::Backward,
                     .family = Family::Naive,
                     .arch = "sm_90a",
                     .headDim = 64,
                     .features = features,
                     .gradients = {"sizes", "slopes", "tilt"}}});
  for (auto [name, text] : {std::pair("columns", kCausal + kColumns),
                            {"three", kCausal + kOfWeights},
                            {"biased", kBiased + kCausal + kOfWeights}})
    for (auto [family, arch] : {std::pair(Family::Sm90, "sm_90a"), {Family::Sm80, "sm_80"}, {Family::Sm80, "sm_90a"}})
      for (int headDim : {64, 128})
        for (Features features : {Features{Feature::Reductions}, {Feature::Reductions, Feature::Deterministic}})
          jobs.push_back(
              {fmt::format("{} {} {} {} deterministic {}", name, familyName(family), arch, headDim,
                           features.has(Feature::Deterministic)),
               take(Mod::parse(text)),
               {.kind = KernelKind::Backward, .family = family, .arch = arch, .headDim = headDim, .features = features},
               std::string_view(name) == "columns" ? 0 : 72});
  CHECK(test::findings(jobs) == "");
}
