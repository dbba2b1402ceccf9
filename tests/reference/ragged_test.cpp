// Ragged batches of the reference against its sequences one by one.
#include "helpers/take.h"
#include "ir/reader.h"
#include "passes/autodiff.h"
#include "passes/pipeline.h"
#include "reference/gradients.h"

#include <catch2/catch.hpp>

#include <random>

using namespace attnc;

namespace {

// score + bias[b] * (q_idx - kv_idx), causal
constexpr const char* kMod = R"(tensor bias: f32[B]
%0 = load f32 bias[%b]
%1 = sub i32 %q_idx, %kv_idx
%2 = cast f32 %1
%3 = mul f32 %0, %2
%4 = add f32 %score, %3
output score(score, b, h, q_idx, kv_idx) -> %4
%5 = le i32 %kv_idx, %q_idx
output mask(b, h, q_idx, kv_idx) -> %5
)";

ir::Module moduleFor(passes::SequenceForm form) {
  auto module = take(ir::read(kMod, "test.ir"));
  take(passes::runPipeline(module, {.sequences = form}));
  auto gradients = take(passes::differentiate(module));
  return gradients.module;
}

std::vector<float> normal(int64_t count, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = distribution(random);
  return values;
}

/// Rows [begin, end) of memory [total, heads, columns], as [1, heads, rows, columns].
TensorView rowsOf(std::vector<float>& memory, int64_t heads, int64_t columns, int64_t begin, int64_t end) {
  TensorView view{.data = memory.data() + begin * heads * columns, .dtype = DType::F32, .rank = 4};
  view.shape = {1, heads, end - begin, columns};
  view.stride = {0, columns, heads * columns, 1};
  return view;
}

constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 6;

} // namespace

TEST_CASE("a ragged batch is its sequences, one by one", "[reference]") {
  const auto offsets = GENERATE(QueryOffsets::None, QueryOffsets::FromLengths);
  std::vector<int32_t> starts = {1, 4, 4, 9, 10}, kvStarts = {2, 9, 12, 12, 14};
  const int64_t rows = 12, kvRows = 15;
  std::vector<float> q = normal(rows * kHeads * kDim, 1), k = normal(kvRows * kKvHeads * kDim, 2),
                     v = normal(kvRows * kKvHeads * kDim, 3), dOut = normal(rows * kHeads * kDim, 4),
                     dLse = normal(rows * kHeads, 5), bias = {0.5f, -0.25f, 0.125f, 1.f};
  const auto cumulative = [](std::vector<int32_t>& of) {
    return TensorView::contiguous(of.data(), DType::I32, {int64_t(of.size())});
  };
  BackwardOperands args{
      {rowsOf(q, kHeads, kDim, 0, rows), rowsOf(k, kKvHeads, kDim, 0, kvRows), rowsOf(v, kKvHeads, kDim, 0, kvRows)},
      {},
      {},
      rowsOf(dOut, kHeads, kDim, 0, rows),
      TensorView::contiguous(dLse.data(), DType::F32, {1, kHeads, rows})};
  args.cuSeqlensQ = cumulative(starts);
  args.cuSeqlensKv = cumulative(kvStarts);
  Captures captures;
  captures.set("bias", TensorView::contiguous(bias.data(), DType::F32, {4}));
  auto all = take(reference::gradients(moduleFor({.offsets = offsets, .ragged = true}), captures, args));
  REQUIRE(all.forward.out.size() == size_t(rows * kHeads * kDim));

  const ir::Module plain = moduleFor({.offsets = offsets});
  std::vector<bool> isOfSequence(size_t(rows), false);
  for (size_t b = 0; b + 1 < starts.size(); ++b) {
    const int64_t begin = starts[b], end = starts[b + 1], kvBegin = kvStarts[b], kvEnd = kvStarts[b + 1];
    std::vector<float> ofLse;
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t row = begin; row < end; ++row) ofLse.push_back(dLse[size_t(h * rows + row)]);
    BackwardOperands one{{rowsOf(q, kHeads, kDim, begin, end), rowsOf(k, kKvHeads, kDim, kvBegin, kvEnd),
                          rowsOf(v, kKvHeads, kDim, kvBegin, kvEnd)},
                         {},
                         {},
                         rowsOf(dOut, kHeads, kDim, begin, end),
                         TensorView::contiguous(ofLse.data(), DType::F32, {1, kHeads, end - begin})};
    Captures own;
    own.set("bias", TensorView::contiguous(&bias[b], DType::F32, {1}));
    auto want = take(reference::gradients(plain, own, one));
    INFO("sequence " << b);
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t row = begin; row < end; ++row) {
        isOfSequence[size_t(row)] = true;
        const size_t at = size_t(h * rows + row), wanted = size_t(h * (end - begin) + row - begin);
        CHECK(all.forward.lse[at] == want.forward.lse[wanted]);
        CHECK(all.forward.rowMax[at] == want.forward.rowMax[wanted]);
        for (size_t i = 0; i < size_t(kDim); ++i) {
          CHECK(all.forward.out[at * kDim + i] == want.forward.out[wanted * kDim + i]);
          CHECK(all.dQ[at * kDim + i] == want.dQ[wanted * kDim + i]);
        }
      }
    for (int64_t h = 0; h < kKvHeads; ++h)
      for (int64_t row = kvBegin; row < kvEnd; ++row)
        for (int64_t i = 0; i < kDim; ++i) {
          const size_t at = size_t((h * kvRows + row) * kDim + i);
          const size_t wanted = size_t((h * (kvEnd - kvBegin) + row - kvBegin) * kDim + i);
          CHECK(all.dK[at] == want.dK[wanted]);
          CHECK(all.dV[at] == want.dV[wanted]);
        }
  }
  for (int64_t row = 0; row < rows; ++row)
    if (!isOfSequence[size_t(row)]) CHECK(all.dQ[size_t(row * kDim)] == 0);
}
