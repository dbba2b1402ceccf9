// Gradients of captures of the reference against central differences of its forward pass.
#include "helpers/traced.h"
#include "passes/autodiff.h"
#include "reference/gradients.h"
#include "support/element.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <map>
#include <random>

using namespace attnc;

namespace {

/// A tensor whose elements are multiples of 1/64 about 0, which bf16 holds as well.
struct Tensor {
  std::vector<char> bytes;
  TensorView view;

  Tensor() = default;
  Tensor(DType dtype, std::vector<int64_t> shape, unsigned seed) {
    view.dtype = dtype;
    view.rank = int(shape.size());
    std::copy(shape.begin(), shape.end(), view.shape.begin());
    int64_t step = 1;
    for (int axis = view.rank; axis-- > 0; step *= shape[size_t(axis)]) view.stride[size_t(axis)] = step;
    bytes.resize(size_t(step * dtypeBytes(dtype)));
    std::mt19937 random(seed);
    for (int64_t i = 0; i < step; ++i) set(i, double(int(random() % 97) - 48) / 64);
  }
  double at(int64_t i) const { return readElement(bytes.data(), view.dtype, i).real; }
  void set(int64_t i, double value) { writeElement(bytes.data(), view.dtype, i, value); }
  TensorView of() const {
    TensorView result = view;
    result.data = const_cast<char*>(bytes.data());
    return result;
  }
};

struct Case {
  Tensor q{DType::F32, {2, 4, 5, 6}, 1}, k{DType::F32, {2, 2, 7, 6}, 2}, v{DType::F32, {2, 2, 7, 3}, 3},
      dOut{DType::F32, {2, 4, 5, 3}, 4}, dLse{DType::F32, {2, 4, 5}, 5};
  std::map<std::string, Tensor> tensors;
  std::map<std::string, double> scalars;
  std::vector<int> idx; ///< a capture of this name, unless empty

  Captures captures() const {
    Captures result;
    for (const auto& [name, tensor] : tensors) result.set(name, tensor.of());
    for (const auto& [name, value] : scalars) result.set(name, value);
    if (!idx.empty()) result.set("idx", TensorView::contiguous(const_cast<int*>(idx.data()), DType::I32, {5}));
    return result;
  }
  BackwardOperands args() const { return {{q.of(), k.of(), v.of()}, {}, {}, dOut.of(), dLse.of()}; }

  double loss(const ir::Module& module) const {
    auto result = take(reference::attention(module, captures(), args()));
    double sum = 0;
    for (size_t i = 0; i < result.out.size(); ++i) sum += result.out[i] * dOut.at(int64_t(i));
    for (size_t i = 0; i < result.lse.size(); ++i)
      if (std::isfinite(result.lse[i])) sum += result.lse[i] * dLse.at(int64_t(i));
    return sum;
  }

  std::map<std::string, std::vector<double>> gradients(const ir::Module& module) const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors) names.push_back(name);
    for (const auto& [name, value] : scalars) names.push_back(name);
    auto derived = take(passes::differentiate(module, names));
    auto result = take(reference::gradients(derived.module, captures(), args(), {names, derived.captures}));
    return std::move(result.captures);
  }
};

void check(double got, double above, double below, double step) {
  CHECK(got == Approx((above - below) / (2 * step)).margin(2e-3).epsilon(2e-3));
}

/// All elements of all captures.
void checkDifferences(const std::string& text, Case c) {
  INFO(text);
  const ir::Module module = test::piped(text);
  const auto gradients = c.gradients(module);
  const double step = 1. / 64;
  double largest = 0;
  for (auto& [name, tensor] : c.tensors) {
    REQUIRE(int64_t(gradients.at(name).size()) == tensor.view.elements());
    for (int64_t i = 0; i < tensor.view.elements(); ++i) {
      INFO(name << " element " << i);
      const double x = tensor.at(i);
      tensor.set(i, x + step);
      const double above = c.loss(module);
      tensor.set(i, x - step);
      const double below = c.loss(module);
      tensor.set(i, x);
      check(gradients.at(name)[size_t(i)], above, below, step);
      largest = std::max(largest, std::fabs(gradients.at(name)[size_t(i)]));
    }
  }
  for (auto& [name, value] : c.scalars) {
    INFO(name);
    REQUIRE(gradients.at(name).size() == 1);
    const double x = value;
    value = x + step;
    const double above = c.loss(module);
    value = x - step;
    const double below = c.loss(module);
    value = x;
    check(gradients.at(name)[0], above, below, step);
    largest = std::max(largest, std::fabs(gradients.at(name)[0]));
  }
  CHECK(largest > 0.01);
}

std::string scoreOf(const std::string& captures, const std::string& score,
                    const std::string& mask = "q_idx + 3 >= kv_idx") {
  return captures + "\ndef score_mod(score, b, h, q_idx, kv_idx):\n    return " + score +
         "\n\ndef mask_mod(b, h, q_idx, kv_idx):\n    return " + mask + "\n";
}

reference::GradientResult resultOf(const std::string& text, const Case& c, const std::vector<std::string>& names) {
  auto derived = take(passes::differentiate(test::piped(text), names));
  return take(reference::gradients(derived.module, c.captures(), c.args(), {names, derived.captures}));
}

Case with(DType dtype, std::vector<int64_t> shape) {
  Case c;
  c.tensors["bias"] = Tensor(dtype, std::move(shape), 6);
  return c;
}

} // namespace

TEST_CASE("gradients of captures of the reference are the differences of its forward pass", "[reference]") {
  using enum DType;
  checkDifferences(scoreOf("bias: f32[H]", "score * bias[h]"), with(F32, {4}));
  checkDifferences(scoreOf("bias: f32[Q_LEN]", "score * bias[q_idx]"), with(F32, {5}));
  checkDifferences(scoreOf("bias: f32[KV_LEN]", "score + bias[kv_idx]"), with(F32, {7}));
  checkDifferences(scoreOf("bias: bf16[KV_LEN]", "score + bias[kv_idx]"), with(BF16, {7}));
  checkDifferences(scoreOf("bias: f32[9]", "score + bias[q_idx - kv_idx + 3]"), with(F32, {9}));
  checkDifferences(scoreOf("import torch\nbias: f32[5]", "score + bias[torch.abs(q_idx - kv_idx)]"), with(F32, {5}));
  checkDifferences(scoreOf("bias: f32[H, Q_LEN, KV_LEN]", "score + bias[h, q_idx, kv_idx]"), with(F32, {4, 5, 7}));
  Case gathered = with(F32, {2, 4, 5});
  gathered.idx = {4, 1, 1, 7, -2}; // below 0 and beyond the end as well
  checkDifferences(scoreOf("bias: f32[B, H, 5]\nidx: i32[Q_LEN]", "score + kv_idx * bias[b, h, idx[q_idx]]"), gathered);
  checkDifferences(scoreOf("bias: f32", "score * bias"), with(F32, {}));
  checkDifferences(
      scoreOf("import torch\nbias: f32[7]", "torch.tanh(score * bias[h]) + bias[q_idx] * bias[kv_idx] + bias[0]"),
      with(F32, {7}));
  checkDifferences(scoreOf("bias: f32[KV_LEN, 16]", "score + bias[kv_idx].sum()"), with(F32, {7, 16}));
  Case large = with(F32, {7});
  large.tensors["bias"].set(1, -1e9);
  large.tensors["bias"].set(4, -double(std::numeric_limits<float>::max()));
  checkDifferences(scoreOf("bias: f32[KV_LEN]", "score + bias[kv_idx]"), large);
  Case scalars;
  scalars.scalars = {{"cap", 1.5}, {"gain", 0.5}};
  checkDifferences(scoreOf("import torch\ncap: float\ngain: float", "cap * torch.tanh(score * gain / cap)"), scalars);
}

TEST_CASE("masked elements add exactly 0 to gradients of captures, whatever the derivative is there", "[reference]") {
  // log(bias) has an infinite derivative where it is 0, and NaN below.
  const ir::Module module =
      test::piped(scoreOf("import torch\nbias: f32[KV_LEN]", "score + torch.log(bias[kv_idx])", "kv_idx < 4"));
  Case c = with(DType::F32, {7});
  for (int i = 0; i < 7; ++i) c.tensors["bias"].set(i, i < 4 ? 1 + i : 4 - i);
  const auto gradients = c.gradients(module);
  for (size_t i = 0; i < 7; ++i) {
    INFO(i);
    if (i < 4)
      CHECK(std::isfinite(gradients.at("bias")[i]));
    else
      CHECK(gradients.at("bias")[i] == 0);
  }
}

TEST_CASE("a capture that no gradient reaches has gradient 0", "[reference]") {
  const ir::Module module = test::piped(scoreOf("bias: f32[KV_LEN]", "score + bias[kv_idx].detach()"));
  const auto gradients = with(DType::F32, {7}).gradients(module);
  CHECK(gradients.at("bias") == std::vector<double>(7, 0.0));
}

TEST_CASE("squared derivatives add up over what reads an element", "[reference]") {
  // Weights of a row add up to 1: 2 batch entries of 5 rows read an element of a, 8 heads and entries one of c.
  Case c;
  c.tensors["a"] = Tensor(DType::F32, {4}, 6);
  c.tensors["c"] = Tensor(DType::F32, {5}, 7);
  c.scalars["x"] = 0.5;
  const std::string captures = "import torch\na: f32[H]\nc: f32[Q_LEN]\nx: float";
  auto squares =
      resultOf(scoreOf(captures, "score + 3 * a[h] - 0.5 * c[q_idx] + x"), c, {"a", "c", "x"}).captureSquares;
  CHECK(squares.at("a") == Approx(9 * 10));
  CHECK(squares.at("c") == Approx(0.25 * 8));
  CHECK(squares.at("x") == Approx(40));
  // Where a function is approximate, a derivative counts as 1 at least.
  squares = resultOf(scoreOf(captures, "tanh_approx(score) + 3 * a[h] + 0.01 * x"), c, {"a", "c", "x"}).captureSquares;
  CHECK(squares.at("a") == Approx(9 * 10));
  CHECK(squares.at("c") == 0);
  CHECK(squares.at("x") == Approx(40));
}

TEST_CASE("slopes of scores count by their weights", "[reference]") {
  const auto slopeOf = [](const std::string& score) {
    return resultOf(scoreOf("import torch", score), {}, {}).scoreSlope;
  };
  CHECK(slopeOf("score") == 1);
  CHECK(slopeOf("score * -3.0 + q_idx") == Approx(3));
  CHECK(slopeOf("score * (q_idx + 1)") == Approx(std::sqrt(11.0))); // (1 + 4 + 9 + 16 + 25) / 5
  CHECK(slopeOf("torch.where(kv_idx == 0, score * 9.0 - 1000.0, score)") == Approx(1).epsilon(0.5));
}
