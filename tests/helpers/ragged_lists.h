// Ragged batches with a block mask, in host memory: operands, what the fp64 reference makes of them, and whether
// results are the same.
#pragma once

#include "attnc/attnc.h"
#include "helpers/take.h"
#include "kernels/host_tensor.h"

#include <catch2/catch.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

namespace attnc::test {

/// Returns a mod with a low-rank term of rank 8, whose factors differ among sequences; those of keys among heads if
/// `perHead`.
inline std::string lowRankMod(bool perHead) {
  std::string sum = "score";
  for (double f : {0.07, 0.13, 0.31, 0.53})
    for (const char* wave : {"cos", "sin"})
      sum += fmt::format(" + torch.{0}({1} * q_idx + b + h) * torch.{0}({1} * kv_idx + b{2})", wave, f,
                         perHead ? " - h" : "");
  return "import torch\ndef score_mod(score, b, h, q_idx, kv_idx):\n  return " + sum +
         "\ndef mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n";
}

struct RaggedCase {
  Family family = Family::Naive;
  std::vector<int32_t> qLengths, kvLengths = {}; ///< kvLengths empty: those of q
  std::string mod = "(q_idx + 2 * kv_idx + b + h) % 3 != 0";
  int64_t heads = 4, kvHeads = 2;
  int headDim = 64;
  DType dtype = DType::BF16; ///< of q, k and v; E4M3 has scales of heads
  int64_t pageSize = 0;
  bool appends = false;
  bool perSequence = true, perHead = true; ///< whether lists differ
  int qBlock = 128, kvBlock = 128;
  bool hasLists = true;

  std::string text() const {
    return fmt::format("{} {}, q {}, kv {}, heads {}:{}, d{} {}, pages of {}, appends {}, blocks {} x {}, lists of "
                       "sequences {} and heads {}",
                       familyName(family), mod, qLengths, kvLengths, heads, kvHeads, headDim, dtypeName(dtype),
                       pageSize, appends, qBlock, kvBlock, perSequence, perHead);
  }
};

/// Lists of a block mask: each block is in none of them, in that of partial or in that of full blocks.
struct DrawnLists {
  std::vector<int32_t> counts[2], indices[2];
  BlockMaskView view;

  DrawnLists(const BlockMaskShape& shape, std::mt19937& random) {
    const int64_t rows = shape.batch * shape.heads * shape.qBlocks(), stride = shape.kvBlocks() + 1;
    for (int kind : {0, 1}) {
      counts[kind].assign(size_t(rows), 0);
      indices[kind].assign(size_t(rows * stride), 1 << 30); // behind a count, no block
    }
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t block = 0; block < shape.kvBlocks(); ++block)
        if (const unsigned kind = unsigned(random() % 3); kind < 2)
          indices[kind][size_t(row * stride + counts[kind][size_t(row)]++)] = int32_t(block);
    view = {shape, counts[0].data(), indices[0].data(), counts[1].data(), indices[1].data(), stride};
  }
  DrawnLists(const DrawnLists&) = delete;
};

/// The tensors of a launch: q, new rows and results packed, k and v packed or in pages. Rows that no sequence has are
/// NaN.
class RaggedBatch {
public:
  explicit RaggedBatch(const RaggedCase& c)
      : c(c), starts(cumulative(c.qLengths)), kvLengths(c.kvLengths.empty() ? c.qLengths : c.kvLengths),
        kvStarts(cumulative(kvLengths)), kvRoom(c.pageSize ? (longest(kvLengths) / c.pageSize + 1) * c.pageSize : 0),
        q(c.dtype, {rows(), c.heads, c.headDim}, random), k(c.dtype, shapeOfKv(), random),
        v(c.dtype, shapeOfKv(), random), newK(c.dtype, {rows(), c.kvHeads, c.headDim}, random),
        newV(c.dtype, {rows(), c.kvHeads, c.headDim}, random),
        lists({c.perSequence ? int64_t(c.qLengths.size()) : 1, c.perHead ? c.heads : 1, longest(c.qLengths),
               longest(kvLengths), c.qBlock, c.kvBlock},
              random) {
    for (int64_t h = 0; h < c.heads; ++h) scales.push_back(0.5f + float(h));
    for (Tensor* tensor : {&q, &newK, &newV}) poison(*tensor, starts);
    if (c.pageSize)
      fillPages();
    else
      for (Tensor* tensor : {&k, &v}) poison(*tensor, kvStarts);
  }

  /// Rows of all sequences, and of none: before the first one and behind the last one.
  int64_t rows() const { return starts.back() + kOutside; }
  int32_t firstRow() const { return starts.front(); }
  int32_t endRow() const { return starts.back(); }

  Operands operands() {
    Operands operands{.q = headsFirst(q), .k = k.view, .v = v.view};
    operands.cuSeqlensQ = vectorOf(starts);
    operands.maxQLen = longest(c.qLengths), operands.maxKvLen = longest(kvLengths);
    operands.blockMask = c.hasLists ? &lists.view : nullptr;
    if (c.dtype == DType::E4M3) {
      operands.qScales = TensorView::contiguous(scales.data(), DType::F32, {c.heads});
      operands.kScales = operands.vScales = TensorView::contiguous(scales.data(), DType::F32, {c.kvHeads});
    }
    if (!c.pageSize) {
      operands.k = headsFirst(k), operands.v = headsFirst(v);
      if (!c.kvLengths.empty()) operands.cuSeqlensKv = vectorOf(kvStarts);
      return operands;
    }
    operands.kvLengths = vectorOf(kvLengths);
    operands.pageTable =
        TensorView::contiguous(table.data(), DType::I32, {int64_t(kvLengths.size()), kvRoom / c.pageSize});
    if (c.appends) operands.newK = headsFirst(newK), operands.newV = headsFirst(newV);
    return operands;
  }

  /// [rows, H, D] as [1, H, rows, D].
  static TensorView headsFirst(const Tensor& packed) {
    TensorView view = packed.view;
    const int64_t rows = view.shape[0], heads = view.shape[1], columns = view.shape[2];
    view.rank = 4;
    view.shape = {1, heads, rows, columns};
    view.stride = {rows * heads * columns, columns, heads * columns, 1};
    return view;
  }
  static int32_t longest(const std::vector<int32_t>& lengths) {
    return *std::max_element(lengths.begin(), lengths.end());
  }

private:
  static constexpr int32_t kOutside = 5;
  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

  static std::vector<int32_t> cumulative(const std::vector<int32_t>& lengths) {
    std::vector<int32_t> starts{kOutside};
    for (int32_t length : lengths) starts.push_back(starts.back() + length);
    return starts;
  }
  static TensorView vectorOf(std::vector<int32_t>& values) {
    return TensorView::contiguous(values.data(), DType::I32, {int64_t(values.size())});
  }
  std::vector<int64_t> shapeOfKv() const {
    if (!c.pageSize) return {kvStarts.back() + kOutside, c.kvHeads, c.headDim};
    return {int64_t(c.qLengths.size()) * kvRoom / c.pageSize, c.kvHeads, c.pageSize, c.headDim};
  }
  static void poison(Tensor& packed, const std::vector<int32_t>& starts) {
    for (int64_t row = 0; row < packed.view.shape[0]; ++row)
      for (int64_t h = 0; (row < starts.front() || row >= starts.back()) && h < packed.view.shape[1]; ++h)
        for (int64_t d = 0; d < packed.view.shape[2]; ++d) packed.set({row, h, d}, kNan);
  }
  /// Deals pages in any order, and poisons rows behind lengths and those that a launch appends.
  void fillPages() {
    const int64_t pages = kvRoom / c.pageSize;
    table.resize(size_t(k.view.shape[0]));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random);
    for (size_t b = 0; b < kvLengths.size(); ++b)
      for (int64_t i = 0; i < kvRoom; ++i) {
        int32_t& page = table[b * size_t(pages) + size_t(i / c.pageSize)];
        const bool isNew = c.appends && i >= kvLengths[b] - c.qLengths[b], isDead = i >= kvLengths[b];
        for (int64_t h = 0; (isNew || isDead) && h < c.kvHeads; ++h)
          for (int64_t d = 0; d < c.headDim; ++d)
            for (Tensor* tensor : {&k, &v}) tensor->set({page, h, i % c.pageSize, d}, kNan);
      }
    for (size_t b = 0; b < kvLengths.size(); ++b)
      for (int64_t i = 0; i < pages; ++i)
        if (i * c.pageSize >= kvLengths[b]) table[b * size_t(pages) + size_t(i)] = -1; // no page
  }

  RaggedCase c;
  std::mt19937 random{5};
  std::vector<int32_t> starts, kvLengths, kvStarts, table;
  int64_t kvRoom; ///< of a sequence, with pages
  std::vector<float> scales;

public:
  Tensor q, k, v, newK, newV;
  DrawnLists lists;
};

/// Results of a launch, in host memory.
struct RaggedResults {
  std::mt19937 random{7}; // NaN would do as well
  Tensor out, lse, rowMax;

  RaggedResults(const RaggedCase& c, int64_t rows, DType dtype)
      : out(dtype, {rows, c.heads, c.headDim}, random), lse(DType::F32, {1, c.heads, rows}, random),
        rowMax(DType::F32, {1, c.heads, rows}, random) {}
  Outputs outputs() const { return {RaggedBatch::headsFirst(out), lse.view, rowMax.view}; }
};

/// Checks results against the reference's, which it computes: out, lse, the row maximum, and k and v with the rows that
/// a launch appended. `batch` and `results`: what a launch left, in host memory.
inline void checkRagged(const RaggedCase& c, const RaggedBatch& batch, const RaggedResults& results) {
  RaggedBatch own(c);
  RaggedResults want(c, own.rows(), DType::F32);
  take(computeOnCpu(take(Mod::parse(c.mod)), own.operands(), want.outputs()));
  const bool isFp8 = c.dtype == DType::E4M3, roundsWeights = isFp8 && c.family != Family::Naive;
  int wrong = 0;
  double errors = 0, squares = 0;
  const auto differ = [&](double is, double wanted, double by) {
    if (is != wanted && !(std::fabs(is - wanted) <= by) && ++wrong < 5) WARN(is << " instead of " << wanted);
  };
  for (int64_t row = own.firstRow(); row < own.endRow(); ++row)
    for (int64_t h = 0; h < c.heads; ++h) {
      const double max = want.rowMax.at({0, h, row}), most = std::isfinite(max) ? std::max(16., std::fabs(max)) : 16.;
      // Products of E4M3 keep some 13 bits of their largest sum, which may be more than the row's maximum.
      const double by = (roundsWeights ? 0x1p-10 : 0x1p-12) * most; // 2^-12: of tanh.approx
      differ(results.lse.at({0, h, row}), want.lse.at({0, h, row}), by);
      differ(results.rowMax.at({0, h, row}), want.rowMax.at({0, h, row}), by);
      for (int64_t d = 0; d < c.headDim; ++d) {
        const double wanted = want.out.at({row, h, d}), error = results.out.at({row, h, d}) - wanted;
        if (!roundsWeights) differ(wanted + error, wanted, 0x1p-7 * (1 + std::fabs(wanted)));
        errors += error * error, squares += wanted * wanted; // NaN stays
      }
    }
  CHECK(wrong == 0);
  if (roundsWeights) CHECK(errors <= 0x1p-9 * squares); // weights are off by 2^-5 of their size in the mean
  for (auto [is, wanted] : {std::pair(&batch.k, &own.k), {&batch.v, &own.v}})
    CHECK(std::equal(static_cast<const char*>(is->view.data),
                     static_cast<const char*>(is->view.data) + is->view.elements() * dtypeBytes(c.dtype),
                     static_cast<const char*>(wanted->view.data)));
}

/// The backward pass of a case in host memory: what it takes, and its results.
struct RaggedGradients {
  std::mt19937 random{9};
  Tensor out, dOut, dQ, dK, dV, lse;
  BlockMask lists; ///< also by column
  BlockMaskView view;

  RaggedGradients(const RaggedCase& c, const RaggedBatch& batch)
      : out(like(c, batch.q)), dOut(like(c, batch.q)), dQ(like(c, batch.q)), dK(like(c, batch.k)), dV(like(c, batch.v)),
        lse(DType::F32, {1, c.heads, batch.rows()}, random),
        lists(take(BlockMask::fromLists(batch.lists.view)).withColumns()), view(lists.view()) {}

  BackwardOperands operands(RaggedBatch& batch) const {
    BackwardOperands all{batch.operands(), RaggedBatch::headsFirst(out), lse.view, RaggedBatch::headsFirst(dOut)};
    if (all.blockMask) all.blockMask = &view;
    return all;
  }
  BackwardOutputs outputs() const {
    return {RaggedBatch::headsFirst(dQ), RaggedBatch::headsFirst(dK), RaggedBatch::headsFirst(dV)};
  }
  /// Computes both passes by the reference.
  void compute(const RaggedCase& c, RaggedBatch& batch) const {
    const Mod mod = take(Mod::parse(c.mod));
    take(computeOnCpu(mod, operands(batch), {.out = RaggedBatch::headsFirst(out), .lse = lse.view}));
    take(computeBackwardOnCpu(mod, operands(batch), outputs()));
  }

private:
  Tensor like(const RaggedCase& c, const Tensor& tensor) {
    const auto& shape = tensor.view.shape;
    return {c.dtype, {shape[0], shape[1], shape[2]}, random};
  }
};

/// Checks gradients of the rows of sequences, relative to the largest.
inline void checkGradients(const RaggedBatch& batch, const RaggedGradients& results, const RaggedGradients& wanted,
                           double tolerance) {
  for (auto [name, got, want] : {std::tuple("dq", &results.dQ, &wanted.dQ), std::tuple("dk", &results.dK, &wanted.dK),
                                 std::tuple("dv", &results.dV, &wanted.dV)}) {
    const auto& shape = got->view.shape;
    double largest = 0, error = 0;
    for (int64_t row = batch.firstRow(); row < shape[0] - batch.firstRow(); ++row)
      for (int64_t i = 0; i < shape[1] * shape[2]; ++i) {
        const double value = want->at({row, i / shape[2], i % shape[2]});
        const double difference = std::fabs(got->at({row, i / shape[2], i % shape[2]}) - value);
        largest = std::max(largest, std::fabs(value));
        error = std::max(error, std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity());
      }
    INFO(name << ": " << error << " of " << largest);
    CHECK(largest > 0);
    CHECK(error <= tolerance * largest);
  }
}

/// None, one, around the edges of tiles and blocks, and more than a block.
inline const std::vector<int32_t> kRaggedLengths = {5, 0, 129, 1, 64, 200}, kOtherLengths = {130, 3, 0, 70, 257, 60};

} // namespace attnc::test
