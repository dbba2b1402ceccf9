// Gradients of the reference against central differences of its forward pass.
#include "helpers/take.h"
#include "ir/reader.h"
#include "passes/autodiff.h"
#include "reference/gradients.h"

#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace attnc;

namespace {

ir::Module moduleOf(const std::string& text) {
  auto module = take(ir::read(text, "test.ir"));
  auto gradients = take(passes::differentiate(module));
  return gradients.module;
}

struct Tensor {
  std::vector<float> values;
  TensorView view;

  Tensor(std::initializer_list<int64_t> shape, int seed) : view(TensorView::contiguous(nullptr, DType::F32, shape)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    values.resize(size_t(view.elements()));
    for (float& x : values) x = normal(random);
    view.data = values.data();
  }
  Tensor(const Tensor&) = delete;
};

/// A problem with everything in it: query heads that share a KV head, different head dims, a gradient of lse.
struct Case {
  Tensor q, k, v, dOut, dLse;

  const BlockMaskView* blockMask = nullptr;

  explicit Case(int64_t kvBatch = 2, int64_t qLen = 5, int64_t kvLen = 7)
      : q({2, 4, qLen, 6}, 1), k({kvBatch, 2, kvLen, 6}, 2), v({kvBatch, 2, kvLen, 3}, 3), dOut({2, 4, qLen, 3}, 4),
        dLse({2, 4, qLen}, 5) {}

  Operands forward() const { return {.q = q.view, .k = k.view, .v = v.view, .blockMask = blockMask}; }
  BackwardOperands args() const { return {forward(), {}, {}, dOut.view, dLse.view}; }

  /// The scalar whose gradients are asked for.
  double loss(const ir::Module& module) const {
    auto result = take(reference::attention(module, {}, forward()));
    double sum = 0;
    for (size_t i = 0; i < result.out.size(); ++i) sum += result.out[i] * dOut.values[i];
    for (size_t i = 0; i < result.lse.size(); ++i)
      if (std::isfinite(result.lse[i])) sum += result.lse[i] * dLse.values[i];
    return sum;
  }
};

void checkDifferences(const char* text, int64_t kvBatch = 2, const BlockMaskView* blockMask = nullptr) {
  INFO(text);
  const ir::Module module = moduleOf(text);
  Case c(kvBatch, blockMask ? 70 : 5, blockMask ? 200 : 7);
  c.blockMask = blockMask;
  auto result = take(reference::gradients(module, {}, c.args()));
  for (auto [name, tensor, gradient] :
       {std::tuple("q", &c.q, &result.dQ), {"k", &c.k, &result.dK}, {"v", &c.v, &result.dV}}) {
    REQUIRE(gradient->size() == tensor->values.size());
    // Of long tensors a few elements, in all rows, heads and batches by turns.
    for (size_t i = 0; i < tensor->values.size(); i += blockMask ? 97 : 1) {
      float& x = tensor->values[i];
      const float at = x, step = 1.f / 64;
      x = at + step;
      const double above = c.loss(module);
      x = at - step;
      const double below = c.loss(module);
      x = at;
      INFO(name << " element " << i);
      CHECK((*gradient)[i] == Approx((above - below) / (2.0 * step)).margin(2e-3).epsilon(2e-3));
    }
  }
}

constexpr const char* kCausal = "%0 = le i32 %kv_idx, %q_idx\noutput mask(b, h, q_idx, kv_idx) -> %0\n";

constexpr const char* kSoftcap =
    "%0 = mul f32 %score, 0.5\n%1 = tanh f32 %0\noutput score(score, b, h, q_idx, kv_idx) -> %1\n";
constexpr const char* kSquares = "%0 = mul f32 %score, %score\noutput score(score, b, h, q_idx, kv_idx) -> %0\n";

} // namespace

TEST_CASE("gradients of the reference are the differences of its forward pass", "[reference]") {
  checkDifferences("");
  checkDifferences(kCausal);
  checkDifferences(kSoftcap);
  checkDifferences(kSquares);
  checkDifferences(kCausal, /*kvBatch=*/1);
  checkDifferences("%0 = random f32 7L, %b, %h, %q_idx, %kv_idx\n%1 = lt f32 %0, 0.25\n"
                   "%2 = select f32 %1, 0.0, 1.5\noutput prob_factor(b, h, q_idx, kv_idx) -> %2\n");
  checkDifferences("%0 = mul f32 %prob, %prob\n%1 = add f32 %prob, 0.1\n%2 = sqrt f32 %1\n%3 = sub f32 %2, %0\n"
                   "%4 = lt i32 %kv_idx, %q_idx\noutput mask(b, h, q_idx, kv_idx) -> %4\n"
                   "output sink(b, h, q_idx) -> 0.5\noutput prob_weight(b, h, q_idx, kv_idx, prob) -> %3\n");
  for (const char* size : {"-10000.0", "-1000000000.0", "-3.4028235e+38"}) // differences of larger ones would vanish
    checkDifferences(fmt::format("%0 = lt i32 %kv_idx, 3\n%1 = select f32 %0, {}, 0.0\n%2 = add f32 %score, %1\n"
                                 "output score(score, b, h, q_idx, kv_idx) -> %2\n",
                                 size)
                         .c_str());
}

TEST_CASE("with a block mask, gradients are the differences of a forward pass with it", "[reference]") {
  // Blocks of 64 x 64, a mask for each head: head 0 sees blocks 3, full, and 1 in its first rows and block 0 in its
  // last; head 2 nothing at first, then a full block past the end; the others see all, full but for the last block.
  std::vector<int32_t> partialCount{1, 1, 1, 1, 0, 0, 1, 1}, fullCount{1, 0, 3, 3, 0, 1, 3, 3};
  std::vector<int32_t> partialIndex(8 * 4), fullIndex(8 * 4);
  const auto set = [](std::vector<int32_t>& index, int row, std::vector<int32_t> blocks) {
    std::copy(blocks.begin(), blocks.end(), index.begin() + row * 4);
  };
  set(partialIndex, 0, {1}), set(partialIndex, 1, {0}), set(fullIndex, 0, {3}), set(fullIndex, 5, {3});
  for (int row : {2, 3, 6, 7}) set(partialIndex, row, {3}), set(fullIndex, row, {0, 1, 2});
  const BlockMaskView mask{.shape = {.batch = 1, .heads = 4, .qLen = 70, .kvLen = 200, .qBlock = 64, .kvBlock = 64},
                           .partialCount = partialCount.data(),
                           .partialIndex = partialIndex.data(),
                           .fullCount = fullCount.data(),
                           .fullIndex = fullIndex.data(),
                           .indexStride = 4};
  // Full blocks are taken as they are listed, though causal says otherwise.
  checkDifferences(kCausal, 2, &mask);
  checkDifferences("", 1, &mask);

  Case c(2, 70, 200);
  c.blockMask = &mask;
  auto result = take(reference::gradients(moduleOf(kCausal), {}, c.args()));
  const auto isZero = [&](const std::vector<double>& d, int64_t begin, int64_t end) {
    return std::all_of(d.begin() + begin, d.begin() + end, [](double x) { return x == 0; });
  };
  CHECK(isZero(result.dQ, 2 * 70 * 6, (2 * 70 + 64) * 6)); // head 2, its first block of rows
  CHECK_FALSE(isZero(result.dQ, (2 * 70 + 64) * 6, 3 * 70 * 6));
}

TEST_CASE("a row without live columns has gradient 0", "[reference]") {
  const ir::Module module = moduleOf("%0 = lt i32 %q_idx, 3\noutput mask(b, h, q_idx, kv_idx) -> %0\n");
  const Case c;
  auto result = take(reference::gradients(module, {}, c.args()));
  for (size_t i = 0; i < result.dQ.size(); ++i)
    if (i / 6 % 5 >= 3)
      CHECK(result.dQ[i] == 0);
    else
      CHECK(std::isfinite(result.dQ[i]));
}

TEST_CASE("a row of scores of any one size gives their average, and its gradients", "[reference]") {
  // Even in f64, an lse of 1e38 has no digit for the number of columns.
  for (const char* size : {"-1e+09", "1e+09", "-1e+38", "3e+38"}) {
    INFO(size);
    const Case c;
    auto result = take(reference::gradients(
        moduleOf("%0 = add f32 %score, " + std::string(size) + "\noutput score(score, b, h, q_idx, kv_idx) -> %0\n"),
        {}, c.args()));
    for (int64_t kv = 0; kv < 7; ++kv)
      for (int64_t column = 0; column < 3; ++column) {
        double sum = 0; // of the rows of two heads, in batch entry 0
        for (int64_t row = 0; row < 10; ++row) sum += c.dOut.values[size_t(row * 3 + column)];
        CHECK(result.dV[size_t(kv * 3 + column)] == Approx(sum / 7));
      }
  }
}

TEST_CASE("gradients of results of another shape are refused", "[reference]") {
  const Case c;
  const Tensor other({2, 4, 5, 4}, 1), rows({2, 4, 4}, 1);
  BackwardOperands args = c.args();
  args.dOut = other.view;
  CHECK(reference::gradients(moduleOf(""), {}, args).error().message == "dout is not [2, 4, 5, 3]");
  args = c.args();
  args.dLse = rows.view;
  CHECK(reference::gradients(moduleOf(""), {}, args).error().message == "dlse has another shape than lse");
}
