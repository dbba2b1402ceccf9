// Gradients of the reference against central differences of its forward pass.
#include "ir/reader.h"
#include "passes/autodiff.h"
#include "reference/gradients.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <random>

using namespace attnc;

namespace {

ir::Module moduleOf(const std::string& text) {
  auto module = ir::read(text, "test.ir");
  if (!module) FAIL(module.error().message);
  auto gradients = passes::differentiate(*module);
  if (!gradients) FAIL(gradients.error().message);
  return std::move(gradients->module);
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

  explicit Case(int64_t kvBatch = 2)
      : q({2, 4, 5, 6}, 1), k({kvBatch, 2, 7, 6}, 2), v({kvBatch, 2, 7, 3}, 3), dOut({2, 4, 5, 3}, 4), dLse({2, 4, 5}, 5) {}

  reference::AttentionArgs forward() const { return {q.view, k.view, v.view, {}, nullptr}; }
  reference::GradientArgs args() const { return {forward(), dOut.view, dLse.view}; }

  /// The scalar whose gradients are asked for.
  double loss(const ir::Module& module) const {
    auto result = reference::attention(module, {}, forward());
    if (!result) FAIL(result.error().message);
    double sum = 0;
    for (size_t i = 0; i < result->out.size(); ++i) sum += result->out[i] * dOut.values[i];
    for (size_t i = 0; i < result->lse.size(); ++i)
      if (std::isfinite(result->lse[i])) sum += result->lse[i] * dLse.values[i];
    return sum;
  }
};

void checkDifferences(const char* text, int64_t kvBatch = 2) {
  INFO(text);
  const ir::Module module = moduleOf(text);
  Case c(kvBatch);
  auto result = reference::gradients(module, {}, c.args());
  if (!result) FAIL(result.error().message);
  for (auto [name, tensor, gradient] : {std::tuple("q", &c.q, &result->dQ), {"k", &c.k, &result->dK}, {"v", &c.v, &result->dV}}) {
    REQUIRE(gradient->size() == tensor->values.size());
    for (size_t i = 0; i < tensor->values.size(); ++i) {
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

constexpr const char* kSoftcap = "%0 = mul f32 %score, 0.5\n%1 = tanh f32 %0\noutput score(score, b, h, q_idx, kv_idx) -> %1\n";
constexpr const char* kSquares = "%0 = mul f32 %score, %score\noutput score(score, b, h, q_idx, kv_idx) -> %0\n";

} // namespace

TEST_CASE("gradients of the reference are the differences of its forward pass", "[reference]") {
  checkDifferences("");
  checkDifferences(kCausal);
  checkDifferences(kSoftcap);
  checkDifferences(kSquares);
  checkDifferences(kCausal, /*kvBatch=*/1);
}

TEST_CASE("a row without live columns has gradient 0", "[reference]") {
  const ir::Module module = moduleOf("%0 = lt i32 %q_idx, 3\noutput mask(b, h, q_idx, kv_idx) -> %0\n");
  const Case c;
  auto result = reference::gradients(module, {}, c.args());
  REQUIRE(result);
  for (size_t i = 0; i < result->dQ.size(); ++i)
    if (i / 6 % 5 >= 3) CHECK(result->dQ[i] == 0);
    else CHECK(std::isfinite(result->dQ[i]));
}

TEST_CASE("gradients of results of another shape are refused", "[reference]") {
  const Case c;
  const Tensor other({2, 4, 5, 4}, 1), rows({2, 4, 4}, 1);
  reference::GradientArgs args = c.args();
  args.dOut = other.view;
  CHECK(reference::gradients(moduleOf(""), {}, args).error().message == "d_out is not [2, 4, 5, 3]");
  args = c.args();
  args.dLse = rows.view;
  CHECK(reference::gradients(moduleOf(""), {}, args).error().message == "d_lse has another shape than lse");
}
