// A problem, and its ranks, each with its rows. Both passes of all ranks against one process, on the CPU.
#pragma once

#include "shard/engine.h"

#include "attnc/reference.h"
#include "support/element.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <random>

namespace attnc::test {

/// Columns of q and k, and of v.
struct HeadDims {
  int64_t qk = 8, v = 4;
};

/// Rows of memory [B, rows, heads, columns], viewed as [B, heads, rows, columns]. Every byte is 0xff, a NaN.
struct Rows {
  std::vector<char> memory;
  TensorView view;

  Rows(int64_t batch, int64_t heads, int64_t rows, int64_t columns, DType dtype = DType::F32)
      : memory(size_t(batch * heads * rows * columns * dtypeBytes(dtype)), char(0xff)) {
    view = TensorView::contiguous(memory.data(), dtype, {batch, heads, rows, columns});
    view.stride = {rows * heads * columns, columns, heads * columns, 1};
  }
  Rows(const Rows&) = delete;

  double at(int64_t element) const { return readElement(memory.data(), view.dtype, element).real; }
  void draw(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int64_t i = 0; i < view.elements(); ++i)
      writeElement(memory.data(), view.dtype, i, double(int64_t(random() % 2001) - 1000) / 500);
  }
  /// Takes tokens of another tensor.
  void take(const Rows& from, const std::vector<ShardInterval>& tokens) {
    const int64_t row = view.shape[1] * view.shape[3];
    for (int64_t b = 0, to = 0; b < view.shape[0]; ++b)
      for (const ShardInterval& interval : tokens)
        for (int64_t i = interval.begin * row; i < interval.end * row; ++i, ++to)
          writeElement(memory.data(), view.dtype, to, from.at(b * from.view.shape[2] * row + i));
  }
};

/// f32 numbers [B, heads, rows] that go with rows of q.
struct RowNumbers {
  std::vector<float> values;
  TensorView view;
  RowNumbers(int64_t batch, int64_t heads, int64_t rows) : values(size_t(batch * heads * rows), NAN) {
    view = TensorView::contiguous(values.data(), DType::F32, {batch, heads, rows});
  }
  RowNumbers(const RowNumbers&) = delete;
  void take(const RowNumbers& from, const ShardTokens& own) {
    for (int64_t head = 0, i = 0; head < view.shape[0] * view.shape[1]; ++head)
      for (int64_t row = 0; row < view.shape[2]; ++row, ++i)
        values[size_t(i)] = from.values[size_t(head * from.view.shape[2] + own.tokenOfRow(row))];
  }
};

/// Gradients of all floats that a mod captures.
struct CaptureGradients {
  std::map<std::string, std::vector<float>> values;
  Captures captures;

  CaptureGradients(const Mod& mod, const Captures& given) {
    for (const CaptureInfo& capture : mod.captures()) {
      const auto* tensor = std::get_if<TensorView>(given.find(capture.name));
      const bool isFloat =
          tensor ? capture.dtype == DType::F32 || capture.dtype == DType::F16 || capture.dtype == DType::BF16
                 : capture.kind == CaptureInfo::Kind::Float;
      if (!isFloat) continue;
      TensorView view = tensor ? *tensor : TensorView{.rank = 0};
      std::vector<float>& memory = values[capture.name];
      memory.assign(size_t(view.elements()), NAN);
      view.data = memory.data(), view.dtype = DType::F32;
      captures.set(capture.name, view);
    }
  }
  CaptureGradients(const CaptureGradients&) = delete;
};

/// The largest difference of what ranks have from what one process has.
struct Difference {
  double results = 0, gradients = 0;

  static void see(double& largest, double found, double expected, double size = 1) {
    const double error = found == expected ? 0 : std::abs(found - expected) / std::max({1.0, size, std::abs(expected)});
    if (!(error <= largest)) largest = std::isnan(error) ? 1e9 : error;
  }
  static void see(double& largest, const Rows& found, const Rows& expected) {
    double size = 0;
    for (int64_t i = 0; i < expected.view.elements(); ++i) size = std::max(size, std::abs(expected.at(i)));
    for (int64_t i = 0; i < expected.view.elements(); ++i) see(largest, found.at(i), expected.at(i), size);
  }
  void join(const Difference& other) {
    results = std::max(results, other.results), gradients = std::max(gradients, other.gradients);
  }
};

/// Memory at a multiple of kWorkspaceAlignment, with a pattern that is NaN as floats.
struct Workspace {
  std::vector<char> memory;
  void* data;
  explicit Workspace(size_t bytes) : memory(bytes + kWorkspaceAlignment, char(0xff)) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    data = memory.data() + (kWorkspaceAlignment - address % kWorkspaceAlignment) % kWorkspaceAlignment;
  }
};

/// Tensors of both passes, of some rows and keys.
struct Tensors {
  Rows q, k, v, out, dOut, dQ, dK, dV;
  RowNumbers lse, dLse;
  CaptureGradients dCaptures;

  /// `results`: the dtype of out and gradients.
  Tensors(const Mod& mod, const Captures& captures, const ProblemShape& shape, HeadDims dims, DType dtype,
          DType results)
      : q(shape.batch, shape.qHeads, shape.qLen, dims.qk, dtype),
        k(shape.batch, shape.kvHeads, shape.kvLen, dims.qk, dtype),
        v(shape.batch, shape.kvHeads, shape.kvLen, dims.v, dtype),
        out(shape.batch, shape.qHeads, shape.qLen, dims.v, results),
        dOut(shape.batch, shape.qHeads, shape.qLen, dims.v, dtype),
        dQ(shape.batch, shape.qHeads, shape.qLen, dims.qk, results),
        dK(shape.batch, shape.kvHeads, shape.kvLen, dims.qk, results),
        dV(shape.batch, shape.kvHeads, shape.kvLen, dims.v, results), lse(shape.batch, shape.qHeads, shape.qLen),
        dLse(shape.batch, shape.qHeads, shape.qLen), dCaptures(mod, captures) {}

  BackwardOperands operands(const Captures& captures) const {
    BackwardOperands all;
    all.q = q.view, all.k = k.view, all.v = v.view, all.captures = &captures;
    all.out = out.view, all.lse = lse.view, all.dOut = dOut.view, all.dLse = dLse.view;
    return all;
  }
  Outputs outputs() const { return {.out = out.view, .lse = lse.view}; }
  BackwardOutputs gradients() const {
    return {.dQ = dQ.view, .dK = dK.view, .dV = dV.view, .captures = &dCaptures.captures};
  }
};

/// A problem, computed by one process.
struct Whole {
  ProblemShape shape;
  Mod mod;
  const Captures& captures;
  DType dtype;
  HeadDims dims;
  Tensors tensors;

  /// Draws tensors.
  Whole(const ProblemShape& shape, const Mod& mod, const Captures& captures, DType dtype = DType::F32,
        HeadDims dims = {})
      : shape(shape), mod(mod), captures(captures), dtype(dtype), dims(dims),
        tensors(mod, captures, shape, dims, dtype, DType::F32) {
    tensors.q.draw(5), tensors.k.draw(6), tensors.v.draw(7), tensors.dOut.draw(8);
    for (size_t i = 0; i < tensors.dLse.values.size(); ++i) tensors.dLse.values[i] = float(i % 13) / 6 - 1;
  }

  /// `with`: further operands.
  Status compute(const Operands& with = {}) {
    BackwardOperands all = tensors.operands(captures);
    all.cuSeqlensQ = with.cuSeqlensQ, all.cuSeqlensKv = with.cuSeqlensKv, all.qOffsets = with.qOffsets;
    all.maxQLen = with.maxQLen, all.maxKvLen = with.maxKvLen;
    if (Status done = computeOnCpu(mod, all, tensors.outputs()); !done) return done;
    return computeBackwardOnCpu(mod, all, tensors.gradients());
  }
};

/// The tensors of one rank.
struct RankTensors : Tensors {
  RankTensors(const Whole& whole, const ShardTokens& own)
      : Tensors(whole.mod, whole.captures,
                {whole.shape.batch, whole.shape.qHeads, whole.shape.kvHeads, own.rowCount(), own.keyCount()},
                whole.dims, whole.dtype, whole.dtype) {
    q.take(whole.tensors.q, own.rows), k.take(whole.tensors.k, own.keys), v.take(whole.tensors.v, own.keys);
    dOut.take(whole.tensors.dOut, own.rows), dLse.take(whole.tensors.dLse, own);
  }

  Difference results(const Whole& whole, const ShardTokens& own) const {
    Difference all;
    Rows wanted(out.view.shape[0], out.view.shape[1], out.view.shape[2], whole.dims.v);
    wanted.take(whole.tensors.out, own.rows);
    Difference::see(all.results, out, wanted);
    RowNumbers ofLse(out.view.shape[0], out.view.shape[1], out.view.shape[2]);
    ofLse.take(whole.tensors.lse, own);
    for (size_t i = 0; i < lse.values.size(); ++i) Difference::see(all.results, lse.values[i], ofLse.values[i]);
    return all;
  }
  Difference gradients(const Whole& whole, const ShardTokens& own) const {
    Difference all;
    const auto see = [&](const Rows& found, const Rows& from, const std::vector<ShardInterval>& tokens) {
      const auto& shape = found.view.shape;
      Rows wanted(shape[0], shape[1], shape[2], shape[3]);
      wanted.take(from, tokens);
      Difference::see(all.gradients, found, wanted);
    };
    see(dQ, whole.tensors.dQ, own.rows);
    see(dK, whole.tensors.dK, own.keys), see(dV, whole.tensors.dV, own.keys);
    return all;
  }
  using Tensors::gradients;
};

/// Runs launches for inference on all ranks, twice with one workspace.
inline Expected<Difference> inferredDifference(const Whole& whole, const ShardPlan& plan, int mask = 0) {
  Post post;
  std::vector<Difference> most(size_t(plan.world));
  const Status done = onRanks(plan.world, [&](int rank) -> Status {
    const ShardTokens& own = plan.ranks[size_t(rank)];
    RankTensors mine(whole, own);
    const Operands operands = mine.operands(whole.captures);
    auto sharded = ShardedAttention::prepare(nullptr, whole.mod, plan, mask, rank, operands, mine.outputs());
    if (!sharded) return sharded.error();
    Workspace workspace(sharded->workspaceBytes());
    const ShardEngine engine = post.engineOf(rank);
    if (Status ready = sharded->initialise(operands, workspace.data, nullptr); !ready) return ready;
    for (int launch = 0; launch < 2; ++launch) {
      Status launched = sharded->launch(operands, mine.outputs(), engine, workspace.data, nullptr, nullptr);
      if (!launched) return launched;
    }
    most[size_t(rank)] = mine.results(whole, own);
    return {};
  });
  if (!done) return done.error();
  CHECK(post.isEmpty());
  Difference all;
  for (const Difference& one : most) all.join(one);
  return all;
}

/// Runs both passes on all ranks. Between them, another launch uses the workspace.
inline Expected<Difference> difference(const Whole& whole, const ShardPlan& plan, int mask = 0) {
  Post post;
  std::vector<Difference> most(size_t(plan.world));
  std::map<std::string, std::vector<double>> sums; // of the ranks' gradients of captures
  for (const auto& [name, values] : whole.tensors.dCaptures.values) sums[name].assign(values.size(), 0);
  std::mutex mutex;
  const Status done = onRanks(plan.world, [&](int rank) -> Status {
    const ShardTokens& own = plan.ranks[size_t(rank)];
    RankTensors mine(whole, own), other(whole, own);
    const BackwardOperands operands = mine.operands(whole.captures);
    auto sharded = ShardedAttention::prepareTraining(nullptr, whole.mod, plan, mask, rank, operands, mine.outputs(),
                                                     mine.gradients());
    if (!sharded) return sharded.error();
    Workspace workspace(sharded->workspaceBytes()), kept(sharded->keptBytes()), ofOther(sharded->keptBytes());
    const ShardEngine engine = post.engineOf(rank);
    if (Status ready = sharded->initialise(operands, workspace.data, nullptr); !ready) return ready;
    Operands otherOperands = other.operands(whole.captures);
    otherOperands.scale = 0.01F;
    for (const auto& [from, to, memory] :
         {std::tuple(static_cast<const Operands*>(&operands), &mine, &kept), {&otherOperands, &other, &ofOther}})
      if (Status launched =
              sharded->launch(*from, to->outputs(), engine, workspace.data, nullptr, nullptr, memory->data);
          !launched)
        return launched;
    Difference& largest = most[size_t(rank)];
    largest = mine.results(whole, own);
    for (int launch = 0; launch < 2; ++launch)
      if (Status launched =
              sharded->launchBackward(operands, mine.gradients(), engine, workspace.data, nullptr, nullptr, kept.data);
          !launched)
        return launched;
    largest.join(mine.gradients(whole, own));
    const std::lock_guard lock(mutex);
    for (const auto& [name, values] : mine.dCaptures.values)
      for (size_t i = 0; i < values.size(); ++i) sums[name][i] += values[i];
    return {};
  });
  if (!done) return done.error();
  CHECK(post.isEmpty());
  Difference all;
  for (const Difference& one : most) all.join(one);
  for (const auto& [name, values] : sums) {
    const std::vector<float>& wanted = whole.tensors.dCaptures.values.at(name);
    double size = 0;
    for (const float value : wanted) size = std::max(size, std::abs(double(value)));
    for (size_t i = 0; i < values.size(); ++i) Difference::see(all.gradients, values[i], wanted[i], size);
  }
  return all;
}

} // namespace attnc::test
