// Backward kernels of padded batches, run on the host, against the fp64 reference. Rows of k and v behind a sequence's
// length are NaN, and so is what gradients are written to.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "helpers/ragged_lists.h"
#include "kernels/findings.h"
#include "kernels/host_gradients.h"
#include "kernels/host_launch.h"
#include "kernels/host_tensor.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <random>

using namespace attnc;
using test::Tensor;

namespace {

struct Case {
  Family family = Family::Naive;
  DType dtype = DType::F32;
  int headDim = 16, headDimV = headDim;
  std::vector<int32_t> lengths = {75, 0, 1, 33};
  int64_t qLen = 70, kvLen = 75, kvHeads = 1;
  std::string mod = "q_idx >= kv_idx";
  std::vector<int32_t> offsets = {}; ///< empty: the last query stands at the last key
  bool hasLists = false, deterministic = false;
  double tolerance = 1e-5; ///< relative to the largest element
};

void fill(const Tensor& tensor, int64_t begin, int64_t end, double value) {
  for (int64_t i = begin; i < end; ++i) writeElement(static_cast<char*>(tensor.view.data), tensor.view.dtype, i, value);
}

void check(const Case& c) {
  if (!test::isCaseDue()) return;
  INFO(fmt::format("{} {} d{}/{}, lengths {}, offsets {}, {} x {}, lists {}, deterministic {}\n{}",
                   familyName(c.family), dtypeName(c.dtype), c.headDim, c.headDimV, c.lengths, c.offsets, c.qLen,
                   c.kvLen, c.hasLists, c.deterministic, c.mod));
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  std::mt19937 random(3);
  const auto batch = int64_t(c.lengths.size());
  const Mod mod = take(Mod::parse(c.mod));
  const auto drawn = [&](int64_t heads, int64_t rows, int dim) {
    return Tensor(c.dtype, {batch, heads, rows, dim}, random);
  };
  const Tensor q = drawn(2, c.qLen, c.headDim), k = drawn(c.kvHeads, c.kvLen, c.headDim),
               v = drawn(c.kvHeads, c.kvLen, c.headDimV), out = drawn(2, c.qLen, c.headDimV),
               dOut = drawn(2, c.qLen, c.headDimV);
  const Tensor lse(DType::F32, {batch, 2, c.qLen}, random), dLse(DType::F32, {batch, 2, c.qLen}, random);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t head = b * c.kvHeads; head < (b + 1) * c.kvHeads; ++head)
      for (const auto& [tensor, dim] : {std::pair(&k, c.headDim), {&v, c.headDimV}})
        fill(*tensor, (head * c.kvLen + c.lengths[size_t(b)]) * dim, (head + 1) * c.kvLen * dim, kNan);
  std::vector<int32_t> lengths = c.lengths, offsets = c.offsets;
  BackwardOperands operands{{.q = q.view, .k = k.view, .v = v.view}, out.view, lse.view, dOut.view, dLse.view};
  operands.kvLengths = TensorView::contiguous(lengths.data(), DType::I32, {batch});
  if (!offsets.empty()) operands.qOffsets = TensorView::contiguous(offsets.data(), DType::I32, {batch});
  struct Learned {
    std::string name;
    Tensor value, got, want;
  };
  std::vector<Learned> learned;
  Captures captures, ofCaptures, wantedOfCaptures;
  for (const auto& capture : mod.captures()) {
    const std::vector<int64_t> shape =
        capture.name == "slopes" ? std::vector<int64_t>{2} : std::vector<int64_t>{batch, 2, c.kvLen, 16};
    const auto like = [&](DType dtype) { return Tensor(dtype, shape, random); };
    learned.push_back(
        {capture.name, like(shape.size() == 1 ? DType::F32 : DType::BF16), like(DType::F32), like(DType::F32)});
    const Learned& of = learned.back();
    captures.set(of.name, of.value.view), ofCaptures.set(of.name, of.got.view),
        wantedOfCaptures.set(of.name, of.want.view);
    fill(of.got, 0, of.got.view.elements(), 0); // as a launch finds it
    if (shape.size() > 1)
      for (int64_t head = 0; head < 2 * batch; ++head)
        fill(of.value, (head * c.kvLen + c.lengths[size_t(head / 2)]) * 16, (head + 1) * c.kvLen * 16, kNan);
  }
  operands.captures = &captures;
  BlockMask lists;
  BlockMaskView view;
  if (c.hasLists) {
    lists =
        take(BlockMask::fromLists(test::DrawnLists({batch, 2, c.qLen, c.kvLen, 128, 128}, random).view)).withColumns();
    view = lists.view();
    operands.blockMask = &view;
  }
  take(computeOnCpu(mod, operands, {.out = out.view, .lse = lse.view}));
  const auto gradients = [&] {
    std::vector<Tensor> all; // moved, never copied
    for (const Tensor* like : {&q, &k, &v})
      all.emplace_back(c.dtype, std::vector<int64_t>(like->view.shape.begin(), like->view.shape.begin() + 4), random);
    for (const Tensor& each : all) fill(each, 0, each.view.elements(), kNan);
    return all;
  };
  const std::vector<Tensor> got = gradients(), want = gradients();
  take(computeBackwardOnCpu(mod, operands, {want[0].view, want[1].view, want[2].view, &wantedOfCaptures}));
  KernelOptions options = optionsOf(operands, {}, {.arch = c.family == Family::Sm90 ? "sm_90a" : "sm_80"});
  options.kind = KernelKind::Backward, options.family = c.family;
  options.features.set(Feature::Deterministic, c.deterministic);
  for (const Learned& of : learned) options.gradients.insert(of.name);
  test::launchOnHost(mod, options, operands, {}, {got[0].view, got[1].view, got[2].view, &ofCaptures}, {},
                     test::backwardParamsOf);
  for (size_t i : {0, 1, 2})
    test::compareToLargest(std::array{"dq", "dk", "dv"}[i], got[i].view, want[i].view, c.tolerance);
  for (const Learned& of : learned) test::compareToLargest("d_" + of.name, of.got.view, of.want.view, c.tolerance);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t head = b * c.kvHeads; head < (b + 1) * c.kvHeads; ++head)
      for (int64_t row = c.lengths[size_t(b)]; row < c.kvLen; ++row)
        CHECK(got[1].at({b, head % c.kvHeads, row, 0}) == 0);
}

/// A ragged batch with lists. Rows that no sequence has are NaN.
void checkLists(const test::RaggedCase& c, bool deterministic = false, double tolerance = 6e-3) {
  if (!test::isCaseDue()) return;
  INFO(c.text() << ", deterministic " << deterministic);
  test::RaggedBatch batch(c);
  const test::RaggedGradients got(c, batch), want(c, batch);
  want.compute(c, batch);
  got.compute(c, batch); // out and lse; a launch writes the gradients anew
  const BackwardOperands operands = got.operands(batch);
  KernelOptions options = optionsOf(operands, {}, {.arch = c.family == Family::Sm90 ? "sm_90a" : "sm_80"});
  options.kind = KernelKind::Backward, options.family = c.family;
  options.features.set(Feature::Deterministic, deterministic);
  for (const Tensor* tensor : {&got.dQ, &got.dK, &got.dV})
    fill(*tensor, 0, tensor->view.elements(), std::numeric_limits<double>::quiet_NaN());
  test::launchOnHost(take(Mod::parse(c.mod)), options, operands, {}, got.outputs(), {}, test::backwardParamsOf);
  test::checkGradients(batch, got, want, tolerance);
}

const std::string kLearned = "slopes: f32[H]\n"
                             "def score_mod(score, b, h, q_idx, kv_idx):\n"
                             "  return score + slopes[h] * (kv_idx - q_idx) * 0.1\n"
                             "def mask_mod(b, h, q_idx, kv_idx):\n  return (kv_idx * 3 + q_idx) % 7 != 0\n"
                             "def sink_mod(b, h, q_idx):\n  return slopes[h]\n";

} // namespace

TEST_CASE("naive backward kernels end at KV lengths", "[on-host][lengths]") {
  check({.qLen = 40});
  check({.qLen = 40, .kvHeads = 2, .offsets = {0, 0, 3, 35}});
  check({.qLen = 40, .mod = kLearned});
  check({.lengths = {260, 0, 129}, .qLen = 140, .kvLen = 260, .mod = "(q_idx + kv_idx) % 3 != 0", .hasLists = true});
}

TEST_CASE("backward kernels with tensor cores end at KV lengths", "[on-host][lengths]") {
  const std::string unbounded = "(q_idx + kv_idx) % 3 != 0";
  for (Case c : {
           Case{.family = Family::Sm80, .headDim = 64, .lengths = {200, 0, 1, 129}, .kvLen = 200},
           {.family = Family::Sm80,
           .headDim = 72,
           .headDimV = 64,
           .lengths = {128, 70},
           .kvLen = 200,
           .kvHeads = 2,
           .mod = kLearned,
           .offsets = {0, 9}},
           {.family = Family::Sm80,
           .headDim = 64,
           .lengths = {260, 0, 129},
           .qLen = 140,
           .kvLen = 260,
           .mod = unbounded,
           .hasLists = true},
           {.family = Family::Sm80, .lengths = {200, 0, 65}, .kvLen = 200, .mod = kLearned, .deterministic = true},
           {.family = Family::Sm90, .headDim = 64, .lengths = {260, 0, 1, 129}, .kvLen = 260},
           {.family = Family::Sm90,
           .headDim = 128,
           .lengths = {200, 0, 70},
           .kvLen = 200,
           .kvHeads = 2,
           .mod = kLearned,
           .offsets = {0, 9, 30}},
           {.family = Family::Sm90,
           .headDim = 64,
           .lengths = {300, 0, 129},
           .qLen = 140,
           .kvLen = 300,
           .mod = unbounded,
           .hasLists = true,
           .deterministic = true},
           {.family = Family::Sm90, .headDim = 192, .headDimV = 128, .lengths = {200, 0, 70}, .kvLen = 200},
           {.family = Family::Sm90, .headDim = 256, .lengths = {130, 0, 70}, .kvLen = 130, .mod = unbounded},
           {.family = Family::Sm90,
           .headDim = 64,
           .lengths = {4, 500, 500},
           .qLen = 40,
           .kvLen = 4250,
           .mod = unbounded,
           .hasLists = true,
           .deterministic = true}, // lists of more than 32 blocks
       }) {
    c.dtype = DType::F16, c.tolerance = 6e-3;
    check(c);
  }
}

TEST_CASE("low-rank terms of padded batches have gradients in columns", "[on-host][lengths][low_rank]") {
  const std::string term = "import torch\nu: bf16[B, H, KV_LEN, 16]\nw: bf16[B, H, KV_LEN, 16]\n"
                           "def score_mod(score, b, h, q_idx, kv_idx):\n"
                           "  return score + u[b, h, q_idx] @ torch.tanh(w[b, h, kv_idx])\n"
                           "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n";
  for (Family family : {Family::Sm80, Family::Sm90}) {
    const Case c{.family = family,
                 .dtype = DType::BF16,
                 .headDim = 32,
                 .headDimV = 32,
                 .lengths = {100, 0, 45},
                 .qLen = 40,
                 .kvLen = 100,
                 .mod = term,
                 .tolerance = 2e-2};
    const KernelOptions options{.kind = KernelKind::Backward,
                                .family = family,
                                .arch = family == Family::Sm90 ? "sm_90a" : "sm_80",
                                .headDim = 32,
                                .features = {Feature::Lengths},
                                .offsets = QueryOffsets::FromLengths,
                                .gradients = {"u", "w"}};
    const auto plan = take(test::choosePlan(take(derive(take(Mod::parse(term)), options)), options));
    CHECK(plan.lowRank.rfind("rank 16", 0) == 0);
    check(c);
  }
}

TEST_CASE("low-rank terms of ragged batches have gradients in columns", "[on-host][low_rank]") {
  for (Family family : {Family::Sm80, Family::Sm90})
    for (bool perHead : {false, true})
      checkLists({.family = family,
                  .qLengths = {5, 0, 129, 200},
                  .kvLengths = {130, 3, 0, 70},
                  .mod = test::lowRankMod(perHead),
                  .headDim = 32,
                  .dtype = DType::BF16,
                  .hasLists = false},
                 perHead, 2e-2);
}

TEST_CASE("backward kernels walk lists of a ragged batch", "[on-host][lengths]") {
  const std::vector<int32_t> lengths = {5, 0, 129, 200}, others = {130, 3, 0, 70};
  checkLists({.family = Family::Naive, .qLengths = lengths, .kvLengths = others, .headDim = 16, .dtype = DType::F32},
             false, 1e-5);
  checkLists({.family = Family::Naive, .qLengths = lengths, .headDim = 16, .dtype = DType::F32, .perSequence = false},
             false, 1e-5);
  for (Family family : {Family::Sm80, Family::Sm90}) {
    checkLists({.family = family, .qLengths = lengths, .kvLengths = others, .dtype = DType::F16});
    checkLists({.family = family, .qLengths = {5, 0, 129, 200}, .dtype = DType::F16, .perSequence = false}, true);
  }
  checkLists({.family = Family::Sm90, .qLengths = {300, 70}, .dtype = DType::F16, .perHead = false, .kvBlock = 256},
             true);
  checkLists({.family = Family::Sm90, .qLengths = others, .kvLengths = lengths, .headDim = 256, .dtype = DType::F16});
}
