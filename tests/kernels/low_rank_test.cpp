// Low-rank terms as columns of q and k, or apart from these: the kernel that writes them, run on the host. The products
// of the wider rows are held against the score with the term in fp64.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "helpers/plan_parts.h"
#include "ir/bind.h"
#include "kernels/findings.h"
#include "kernels/host_stage.h"
#include "kernels/host_tensor.h"
#include "launch/launch_operands.h"
#include "launch/workspace.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>

using namespace attnc;
using test::Tensor;

namespace {

struct Case {
  int64_t batch = 2, qHeads = 4, kvHeads = 2, qLen = 70, kvLen = 65;
  int headDim = 64;
  DType u = DType::BF16, w = DType::BF16; ///< of the factors
  bool perHead = false;                   ///< whether those of a column depend on the query head
  bool broadcasts = false;                ///< whether the batch of k and v is 1
  float scale = 0.3f;
  int64_t padding = 0; ///< elements behind a row of q, k and v
  double relative = 0x1p-16;
  double gain = 1.75;
  int pieces = 0;  ///< of q, that are expected; 0: any
  float error = 0; ///< KernelOptions::lowRankError
  int columns = 0; ///< a rank, that are expected; 0: any
};

constexpr int64_t kRank = 16;

/// Runs the kernel, and compares all scores. `change` may put other factors into u and w. Returns the largest error of
/// a term, as a part of the sizes of its products.
template <class Change> double check(const Case& c, Change change) {
  INFO(fmt::format("B {} H {} HKV {} q {} kv {} d {} u {} w {} per head {} broadcast {} scale {} padding {}", c.batch,
                   c.qHeads, c.kvHeads, c.qLen, c.kvLen, c.headDim, dtypeName(c.u), dtypeName(c.w), c.perHead,
                   c.broadcasts, c.scale, c.padding));
  std::mt19937 random(3);
  const int64_t kvBatch = c.broadcasts ? 1 : c.batch, row = c.headDim + c.padding;
  Tensor q(DType::BF16, {c.batch, c.qHeads, c.qLen, c.headDim}, random, row);
  Tensor k(DType::BF16, {kvBatch, c.kvHeads, c.kvLen, c.headDim}, random, row);
  Tensor v(DType::BF16, {kvBatch, c.kvHeads, c.kvLen, c.headDim}, random, row);
  Tensor out(DType::BF16, {c.batch, c.qHeads, c.qLen, c.headDim}, random);
  Tensor u(c.u, {c.batch, c.qHeads, c.qLen, kRank}, random);
  Tensor w(c.w, {c.batch, c.qHeads, c.kvLen, kRank}, random);
  change(u, w);
  Captures captures;
  captures.set("u", u.view).set("w", w.view).set("gain", c.gain);
  const std::string text = fmt::format("u: {}[B, H, Q_LEN, {}]\nw: {}[B, H, KV_LEN, {}]\ngain: float\n"
                                       "score + gain * (u[b, h, q_idx] @ w[b, {}, kv_idx])",
                                       dtypeName(c.u), kRank, dtypeName(c.w), kRank, c.perHead ? "h" : "0");
  auto mod = take(Mod::parse(text));
  const KernelOptions options{
      .family = Family::Sm90, .arch = "sm_90a", .headDim = c.headDim, .headDimV = c.headDim, .lowRankError = c.error};
  auto plan = take(test::choosePlan(mod, options));
  const Operands operands{.q = q.view, .k = k.view, .v = v.view, .scale = c.scale, .captures = &captures};
  auto checked = take(plan::checkForward(operands, {.out = out.view}, plan.options));
  const plan::WorkspaceLayout layout(plan.workspace, checked);
  std::vector<char> memory(layout.bytes() + 2 * kWorkspaceAlignment, char(0xff)); // NaN
  char* const workspace =
      memory.data() + (kWorkspaceAlignment - reinterpret_cast<uintptr_t>(memory.data()) % kWorkspaceAlignment);
  const plan::WorkspaceView view{layout, workspace};
  auto bindings = ir::bind(mod.module(), captures, checked.problem, &checked);
  if (!bindings) FAIL(bindings.error().message);
  checked.bindings = &*bindings;
  size_t first = 0; // of the form that the launch runs
  while (first < plan.stages.size() && !plan::ctasOf(plan.stages[first], checked, {132})) ++first;
  if (c.qLen + c.kvLen == 0) return 0;
  REQUIRE(first < plan.stages.size());
  const plan::Stage& stage = plan.stages[first];
  REQUIRE(stage.templateName == "low_rank.cu");
  if (c.pieces) CHECK(stage.config.lowRank->qPieces == c.pieces);
  if (c.columns)
    CHECK(plan.lowRank.find(fmt::format("rank {}: {} columns", kRank, kRank * c.columns)) != std::string::npos);
  auto form = take(kernelModOf(mod, plan::formOf(stage)));
  uint64_t words[256] = {}, zero = 0;
  codegen::packArgs(form->source.slots, *bindings, &zero, words);
  auto params = take(stage.parameters(stage, checked, {}, view));
  auto sources = take(test::sourcesOf(test::compiler(), mod, options));
  test::HostStage& compiled = test::hostStage(sources.at(first), "LowRankParams");
  const int64_t ctas = plan::ctasOf(stage, checked, {});
  REQUIRE(compiled.run(params.data(), words, unsigned(ctas), unsigned(stage.threads), 1) == std::string());
  for (const plan::WorkspacePart& part : layout.parts()) // nothing is written behind a part
    for (size_t i = part.offset + part.bytes; i % kWorkspaceAlignment; ++i) REQUIRE(workspace[i] == char(0xff));

  const LowRankParams& launched = params.template as<LowRankParams>();
  const bool isApart = stage.config.lowRank->isApart;
  CHECK(isApart == (c.headDim % 64 == 0));
  const int64_t own = isApart ? 0 : c.headDim; // columns of q and k in a row that is written
  const int64_t columns = stage.config.lowRank->wideHeadDim - c.headDim + own;
  const int64_t kHeads = launched.k_heads, kBatch = launched.k_batch;
  const double wideScale = std::fabs(c.scale) < 0x1p-48f ? std::copysign(0x1p-48, c.scale) : c.scale;
  const auto wide = [&](const void* data, int64_t head, int64_t length, int64_t row, int64_t column) {
    return readElement(static_cast<const char*>(data), DType::BF16, (head * length + row) * columns + column).real;
  };
  REQUIRE((launched.q || c.qLen == 0));
  CHECK((launched.k == nullptr) ==
        (c.kvLen == 0 || (isApart && c.w == DType::BF16 && c.pieces == 1))); // then w has them
  int wrong = 0;
  double largest = 0;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.qHeads; ++h)
      for (int64_t i = 0; i < c.qLen; i += 7)
        for (int64_t j = 0; j < c.kvLen; j += 4) {
          double product = 0, size = 0, term = 0, is = 0;
          const int64_t kvHead = h / (c.qHeads / c.kvHeads);
          for (int64_t d = 0; d < c.headDim; ++d)
            product += q.at({b, h, i, d}) * k.at({c.broadcasts ? 0 : b, kvHead, j, d});
          for (int64_t r = 0; r < kRank; ++r) {
            const double product = c.gain * u.at({b, h, i, r}) * w.at({b, c.perHead ? h : 0, j, r});
            term += product, size += std::fabs(product);
          }
          for (int64_t d = 0; d < columns; ++d)
            is +=
                wide(launched.q, b * c.qHeads + h, c.qLen, i, d) *
                (launched.k ? wide(launched.k, (kBatch == 1 ? 0 : b) * kHeads + h / (c.qHeads / kHeads), c.kvLen, j, d)
                            : w.at({b, c.perHead ? h : 0, j, d}));
          is = wideScale * (isApart ? is + product : is);
          const double want = c.scale * product + term;
          const double error = c.relative * size + 1e-9 * std::fabs(want) + std::fabs((wideScale - c.scale) * product);
          const bool isSame = std::isnan(want) ? std::isnan(is) : is == want;
          if (size > 0) largest = std::max(largest, std::fabs(is - want) / size);
          if (!isSame && !(std::fabs(is - want) <= error) && ++wrong < 5)
            WARN(fmt::format("b {} h {} row {} column {}: {} instead of {}", b, h, i, j, is, want));
        }
  CHECK(wrong == 0);
  CHECK((launched.v != nullptr) == (!isApart && kHeads != c.kvHeads));
  for (int64_t b = 0; launched.v && b < launched.v_batch; ++b)
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t j = 0; j < c.kvLen; ++j)
        for (int64_t d = 0; d < c.headDim; ++d)
          if (readElement(static_cast<const char*>(launched.v), DType::BF16,
                          ((b * kHeads + h) * c.kvLen + j) * c.headDim + d)
                  .real != v.at({b, h / (kHeads / c.kvHeads), j, d}))
            ++wrong;
  CHECK(wrong == 0);
  return largest;
}

void check(const Case& c) {
  if (!test::isCaseDue()) return;
  check(c, [](Tensor&, Tensor&) {});
}

} // namespace

TEST_CASE("wider q and k multiply to the score with its low-rank term", "[low_rank][on-host]") {
  check({});
  check({.headDim = 128, .pieces = 2});
  check({.relative = 0, .gain = 2 * double(0.3f), .pieces = 1});
  check({.w = DType::F32, .gain = -double(0.3f), .pieces = 1});
  check({.w = DType::F32});
  check({.u = DType::F32, .relative = 0x1p-23});
  check({.u = DType::F32, .w = DType::F32, .relative = 0x1p-22});
  check({.headDim = 72, .u = DType::F16, .w = DType::F32, .relative = 0x1p-22});
  check({.perHead = true});
  check({.batch = 1, .qHeads = 2, .kvHeads = 2, .qLen = 1, .kvLen = 130, .perHead = true});
  check({.broadcasts = true});
  check({.perHead = true, .broadcasts = true});
  check({.broadcasts = true, .relative = 0, .gain = 2 * double(0.3f), .pieces = 1});
  for (int headDim : {56, 64}) {
    check({.headDim = headDim, .perHead = true});
    check({.headDim = headDim, .perHead = true, .broadcasts = true});
    check({.headDim = headDim, .padding = 8});
  }
  check({.headDim = 56, .perHead = true, .padding = 3}); // rows that no vector of 16 bytes divides
  check({.batch = 1, .qLen = 0});
  check({.batch = 1, .kvLen = 0});
}

TEST_CASE("columns of f32 factors keep the error that is allowed", "[low_rank][on-host]") {
  // The parts that one piece, and two, leave out are the largest, of one sign in u, w and their products.
  constexpr double kTie = 1 + 0x1p-8, kBehindTwo = 1 + 0x1p-8 - 0x1p-17 - 0x1p-23;
  struct Row {
    float error;
    int columns;
    double u, w;
    double reaches; // what the error is at least for these numbers
  };
  for (const Row& row : std::initializer_list<Row>{{0.0078f, 1, kTie, kTie, 0.99 * 0x1p-7},
                                                   {0.0039f, 2, kTie, kBehindTwo, 0.99 * 0x1p-8},
                                                   {6.1e-5f, 3, kBehindTwo, kBehindTwo, 0.97 * 0x1p-15},
                                                   {1.5e-5f, 5, kBehindTwo, kBehindTwo, 0.97 * 0x1p-17},
                                                   {4.8e-7f, 6, kBehindTwo, kBehindTwo, 0.9 * 0x1p-24}}) {
    Case c{.batch = 1, .qHeads = 1, .kvHeads = 1, .u = DType::F32, .w = DType::F32, .scale = 1};
    c.relative = c.error = row.error, c.columns = row.columns, c.gain = 1;
    INFO(row.columns << " columns");
    const auto fill = [&](Tensor& tensor, double with, bool isMixed) {
      std::mt19937 random(11);
      std::uniform_int_distribution<int> exponent(-40, 40), kind(0, 3);
      std::uniform_real_distribution<double> mantissa(1, 2);
      for (int64_t i = 0; i < tensor.view.shape[2]; ++i)
        for (int64_t r = 0; r < kRank; ++r) {
          const double numbers[] = {with, -with, float(mantissa(random)), 1 + 0x1p-7 + 0x1p-8};
          tensor.set({0, 0, i, r}, isMixed ? std::ldexp(numbers[kind(random)], exponent(random)) : with);
        }
    };
    const double worst = check(c, [&](Tensor& u, Tensor& w) { fill(u, row.u, false), fill(w, row.w, false); });
    CHECK(worst >= row.reaches);
    CHECK(check(c, [&](Tensor& u, Tensor& w) { fill(u, row.u, true), fill(w, row.w, true); }) > 0);
    c.scale = 0.3f, c.gain = 1.75, c.headDim = 56; // wider copies, and numbers that are rounded in f32 first
    check(c);
  }
  check({.w = DType::F32, .relative = 0x1p-8, .gain = 2 * double(0.3f), .pieces = 1, .error = 0.005f, .columns = 1});
  check({.w = DType::F32, .relative = 0x1p-8, .pieces = 1, .error = 0.005f});
  check({.relative = 0x1p-22, .pieces = 3, .error = 1e-6f});
  check({.u = DType::F32, .relative = 0x1p-8, .pieces = 1, .error = 0.005f, .columns = 1}); // w is the columns of k
  check({.w = DType::F16, .relative = 0x1p-7, .pieces = 1, .error = 0.01f, .columns = 1});
}

TEST_CASE("any scale goes with a low-rank term", "[low_rank][on-host]") {
  check({.scale = 1});
  check({.scale = 0, .relative = 0, .gain = -4, .pieces = 1});
  check({.scale = -0.125f});
  check({.scale = 1e20f});
  check({.scale = 0});
  check({.scale = -0x1p-70f, .padding = 3});
}

TEST_CASE("huge factors and factors that are not finite give the score that they would give", "[low_rank][on-host]") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (DType dtype : {DType::BF16, DType::F32}) {
    const Case c{.u = dtype, .w = dtype};
    check(c, [](Tensor& u, Tensor& w) { u.set({0, 1, 7, 3}, -1e9), w.set({0, 0, 4, 3}, 1e20); });
    check(c, [&](Tensor& u, Tensor&) {
      u.set({0, 1, 7, 3}, inf), u.set({0, 1, 14, 3}, -inf), u.set({1, 0, 7, 3}, nan);
    });
    check(c, [&](Tensor&, Tensor& w) {
      w.set({0, 0, 4, 3}, inf), w.set({0, 0, 8, 3}, -inf), w.set({1, 0, 4, 3}, nan);
    });
  }
}
