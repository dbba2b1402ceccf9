// Some rows of the reference against its whole results, and what they catch.
#include "helpers/take.h"
#include "ir/reader.h"
#include "passes/autodiff.h"
#include "passes/pipeline.h"
#include "reference/gradients.h"
#include "reference/some_rows.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

using namespace attnc;
using reference::SomeRows;

namespace {

// 3 * tanh(score / 3) + 0.25 * (kv_idx - q_idx), causal
constexpr const char* kCapped = R"(%0 = div f32 %score, 3.0
%1 = tanh f32 %0
%2 = mul f32 %1, 3.0
%3 = sub i32 %kv_idx, %q_idx
%4 = cast f32 %3
%5 = mul f32 %4, 0.25
%6 = add f32 %2, %5
output score(score, b, h, q_idx, kv_idx) -> %6
%7 = le i32 %kv_idx, %q_idx
output mask(b, h, q_idx, kv_idx) -> %7
)";

ir::Module gradientModule(passes::SequenceForm form) {
  auto module = take(ir::read(kCapped, "test.ir"));
  take(passes::runPipeline(module, {.sequences = form}));
  auto gradients = take(passes::differentiate(module));
  return gradients.module;
}

struct Drawn {
  std::vector<float> values;
  TensorView view;

  Drawn(std::initializer_list<int64_t> shape, int seed) : view(TensorView::contiguous(nullptr, DType::F32, shape)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    values.resize(size_t(view.elements()));
    for (float& x : values) x = normal(random);
    view.data = values.data();
  }
  Drawn(const Drawn&) = delete;
};

/// Checks rows against those of a whole result, [all, width].
void checkRows(const std::vector<double>& some, const std::vector<int64_t>& rows, const std::vector<double>& whole,
               int64_t width) {
  REQUIRE(int64_t(some.size()) == int64_t(rows.size()) * width);
  for (size_t i = 0; i < rows.size(); ++i)
    for (int64_t column = 0; column < width; ++column) {
      const double expected = whole[size_t(rows[i] * width + column)];
      INFO("row " << rows[i]);
      REQUIRE(some[i * size_t(width) + size_t(column)] == Approx(expected).margin(1e-5)); // out and lse are f32
    }
}

std::vector<int64_t> allRows(int64_t count) {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

/// Checks all rows, and a few, of a problem.
void checkProblem(BackwardOperands args, passes::SequenceForm form) {
  const ir::Module module = gradientModule(form);
  auto whole = take(reference::gradients(module, {}, args));
  const auto& [q, k, v] = std::tie(args.q.shape, args.k.shape, args.v.shape);
  std::vector<float> out(whole.forward.out.begin(), whole.forward.out.end()),
      lse(whole.forward.lse.begin(), whole.forward.lse.end());
  args.out = TensorView::contiguous(out.data(), DType::F32, {q[0], q[1], q[2], v[3]});
  args.lse = TensorView::contiguous(lse.data(), DType::F32, {q[0], q[1], q[2]});
  auto some = take(SomeRows::make(module, {}, args));
  const int64_t ofQ = q[0] * q[1] * q[2], ofKv = k[0] * k[1] * k[2];
  for (const auto& rows : {allRows(ofQ), reference::drawRows(ofQ, 5, 1), {}}) {
    checkRows(some.out(rows), rows, whole.forward.out, v[3]);
    checkRows(some.dQ(rows), rows, whole.dQ, q[3]);
  }
  for (const auto& rows : {allRows(ofKv), reference::drawRows(ofKv, 5, 2), {}}) {
    const SomeRows::KvGradients gradients = some.dKv(rows);
    checkRows(gradients.dK, rows, whole.dK, q[3]);
    checkRows(gradients.dV, rows, whole.dV, v[3]);
  }
}

} // namespace

TEST_CASE("some rows are those of the whole result", "[reference]") {
  const int64_t qLen = GENERATE(1, 5, 9), kvLen = GENERATE(1, 7);
  const Drawn q({2, 4, qLen, 6}, 1), k({2, 2, kvLen, 6}, 2), v({2, 2, kvLen, 3}, 3), dOut({2, 4, qLen, 3}, 4);
  checkProblem({{q.view, k.view, v.view}, {}, {}, dOut.view, {}}, {});
}

TEST_CASE("some rows of a ragged batch are those of the whole result", "[reference]") {
  // Two sequences begin behind rows of none, one is empty, and rows of none follow.
  std::vector<int32_t> starts = {1, 4, 4, 9, 10}, kvStarts = {2, 9, 12, 12, 14};
  const auto offsets = GENERATE(QueryOffsets::None, QueryOffsets::FromLengths);
  const Drawn q({1, 4, 12, 6}, 1), k({1, 2, 15, 6}, 2), v({1, 2, 15, 3}, 3), dOut({1, 4, 12, 3}, 4);
  BackwardOperands args{{q.view, k.view, v.view}, {}, {}, dOut.view, {}};
  args.cuSeqlensQ = TensorView::contiguous(starts.data(), DType::I32, {5});
  args.cuSeqlensKv = TensorView::contiguous(kvStarts.data(), DType::I32, {5});
  checkProblem(args, {.offsets = offsets, .ragged = true});
}

TEST_CASE("drawn rows are below the count, the same in every run, and catch a share of wrong rows", "[reference]") {
  CHECK(reference::drawRows(0, 10, 1).empty());
  CHECK(reference::drawRows(1, 3, 1) == std::vector<int64_t>{0, 0, 0});
  CHECK(reference::drawRows(1000, 64, 7) == reference::drawRows(1000, 64, 7));
  CHECK(reference::drawRows(1000, 64, 7) != reference::drawRows(1000, 64, 8));
  // 1 row of 1000 is wrong, wherever it lies: 1024 rows catch it with probability 1 - (1 - 1/1000)^1024 = 0.641.
  const int64_t rows = 1'000'000;
  for (const int64_t begin : {int64_t(0), int64_t(123'456), rows - 1000}) {
    int caught = 0;
    for (uint64_t seed = 0; seed < 400; ++seed) {
      const std::vector<int64_t> drawn = reference::drawRows(rows, 1024, seed);
      REQUIRE(drawn.size() == 1024);
      REQUIRE((drawn.front() >= 0 && drawn.back() < rows));
      const auto first = std::lower_bound(drawn.begin(), drawn.end(), begin);
      caught += first != drawn.end() && *first < begin + 1000;
    }
    CHECK(caught > 220); // of 400, 256 are expected, with a deviation of 10
    CHECK(caught < 292);
  }
}
