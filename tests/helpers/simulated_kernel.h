// What a kernel gives, computed on the CPU with the roundings of a kernel: for tests of `attnc run --verify`.
//
// Products are added up in f32, those of e4m3 with 13 bits; single TF32 products round their operands. Weights are
// relative to the maximum so far, and P, dS, out and gradients are rounded to their dtypes; delta is that of the
// rounded out. Kernels differ in order and in scaling, so this is one of many right results.
#pragma once

#include "tools/attnc/commands/result.h"
#include "tools/attnc/problem/oracle.h"

#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/reductions.h"
#include "reference/capture_sums.h"
#include "reference/dense.h"
#include "reference/listed_columns.h"
#include "reference/sequences.h"
#include "reference/vectors.h"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

namespace attnc::test {

class SimulatedKernel {
public:
  SimulatedKernel(const Mod& mod, const cli::HostOperands& operands, const cli::ProblemOptions& options)
      : operands(operands), options(options), problem(taken(cli::referenceProblem(mod, operands, options))),
        shape(taken(reference::problemOf(problem.args))), module(problem.mod.module()),
        bindings(taken(ir::bind(module, operands.captures, shape, &problem.args))), interpreter(module, bindings),
        sequences(module, bindings, shape, problem.args), q(problem.args.q), k(problem.args.k), v(problem.args.v),
        captures(module, bindings, problem.wanted), dtype(operands.q.dtype),
        scale(options.scale ? *options.scale : 1 / std::sqrt(double(q.columns))) {
    if (options.backward) {
      dOut.emplace(problem.args.dOut);
      if (auto slope = module.output(ir::kDScore)) slopes.emplace(module, bindings, *slope);
      if (auto value = module.output(ir::kProbGradient)) ofProb.emplace(module, bindings, *value);
      if (auto value = module.output(ir::kScoreGradient)) ofScore.emplace(module, bindings, *value);
    }
  }

  cli::RunResult result() {
    const std::vector<int64_t> rows = cli::rowsOf(operands);
    std::vector<int64_t> ofOut = rows;
    ofOut.push_back(v.columns);
    cli::RunResult result;
    const DType outDType = options.target.fp8.outOf(dtype);
    out.assign(size_t(rows[0] * rows[1] * rows[2] * v.columns), 0);
    lse.assign(size_t(rows[0] * rows[1] * rows[2]), -INFINITY);
    rowMax = lse;
    dQ.assign(size_t(operands.q.elements()), 0);
    dK.assign(size_t(operands.k.elements()), 0);
    dV.assign(size_t(operands.v.elements()), 0);
    for (const ir::Reduction& each : options.backward ? std::vector<ir::Reduction>() : ir::reductionsOf(module)) {
      outputs.push_back(each);
      ofOutputs.emplace_back(module, bindings, *module.output(each.output()));
      const auto elements = std::get<TensorView>(*operands.reductions.find(each.name)).elements();
      reduced.emplace_back(size_t(elements), each.isMax ? -INFINITY : 0);
    }
    for (int64_t index = 0; index < int64_t(lse.size()); ++index)
      if (const auto row = sequences.rowAt(index)) compute(*row, index, outDType);
    result.out = stored(out, outDType, ofOut);
    result.lse = stored(lse, DType::F32, rows);
    result.rowMax = stored(rowMax, DType::F32, rows);
    for (size_t i = 0; i < reduced.size(); ++i) {
      const auto& like = std::get<TensorView>(*operands.reductions.find(outputs[i].name));
      result.gradients[outputs[i].name] =
          stored(reduced[i], DType::F32, {like.shape.begin(), like.shape.begin() + like.rank});
    }
    if (!options.backward) return result;
    result.gradients["dq"] = stored(dQ, dtype, operands.q.shape);
    result.gradients["dk"] = stored(dK, operands.k.dtype, operands.k.shape);
    result.gradients["dv"] = stored(dV, operands.v.dtype, operands.v.shape);
    for (size_t i = 0; i < problem.wanted.captures.size(); ++i) {
      const std::string& name = problem.wanted.captures[i];
      const auto& found = *operands.gradients.find(name);
      const TensorView like = std::get<TensorView>(found);
      result.gradients["d_" + name] =
          stored(captures.values()[i], like.dtype, {like.shape.begin(), like.shape.begin() + like.rank});
    }
    return result;
  }

private:
  template <class T> static T taken(Expected<T> value) {
    if (!value) FAIL(value.error().message);
    return *std::move(value);
  }
  static cli::HostTensor stored(const std::vector<double>& values, DType dtype, const std::vector<int64_t>& shape) {
    cli::HostTensor tensor = cli::HostTensor::make(dtype, shape);
    for (size_t i = 0; i < values.size(); ++i) writeElement(tensor.bytes.data(), dtype, int64_t(i), values[i]);
    return tensor;
  }
  static double roundedTo(DType dtype, double value) {
    uint64_t bytes = 0;
    writeElement(&bytes, dtype, 0, value);
    return readElement(&bytes, dtype, 0).real;
  }
  bool isTf32() const { return dtype == DType::F32 && options.kernel.tf32; }
  double asOperand(double value) const {
    if (!isTf32()) return value;
    return std::bit_cast<float>((std::bit_cast<uint32_t>(float(value)) + 0x1000) & 0xffffe000u);
  }
  /// Rounds P or dS as an operand of a product.
  double asWeight(double value) const { return dtype == DType::F32 ? asOperand(value) : roundedTo(dtype, value); }

  double product(const double* x, const double* y, int64_t count) const {
    float sum = 0;
    for (int64_t i = 0; i < count; i += 32) {
      double step = 0, largest = std::fabs(sum);
      for (int64_t j = i; j < std::min(count, i + 32); ++j) {
        const double term = asOperand(x[j]) * asOperand(y[j]);
        step += term, largest = std::max(largest, std::fabs(term));
      }
      double total = sum + step;
      if (dtype == DType::E4M3 && largest > 0) {
        const double unit = std::ldexp(1, std::ilogb(largest) - 13);
        total = std::trunc(total / unit) * unit;
      }
      sum = float(total);
    }
    return sum;
  }

  void compute(const reference::QueryRow& row, int64_t index, DType outDType) {
    const auto [b, h, query] = row;
    const int64_t kvHead = h / (shape.qHeads / shape.kvHeads), firstKv = sequences.firstKvOf(b, kvHead),
                  position = sequences[b].qOffset + query;
    reference::listLiveColumns(problem.args.blockMask, shape, interpreter, row, position, sequences[b].kvLength, live);
    const double ofQ =
        scale * reference::scaleOf(problem.args.qScales, b, h, query, shape.qLen, sequences[b].qStart + query);
    before.clear(), scores.clear();
    float max = -INFINITY, sum = 0;
    const double lift = dtype == DType::E4M3 ? 16 : 1;
    std::vector<double> o(size_t(v.columns), 0);
    for (size_t begin = 0; begin < live.size(); begin += 64) {
      const size_t end = std::min(live.size(), begin + 64);
      float top = max;
      for (size_t i = begin; i < end; ++i) {
        const double factor = ofQ * reference::scaleOf(problem.args.kScales, b, kvHead, live[i], shape.kvLen,
                                                       sequences[b].kvStart + live[i]);
        before.push_back(float(factor * product(q.row(index), k.row(firstKv + live[i]), q.columns)));
        scores.push_back(float(interpreter.score(before.back(), b, h, position, live[i])));
        top = std::max(top, float(scores.back()));
      }
      if (top == -INFINITY) continue;
      const float rescale = std::exp2((max - top) * 1.44269504f);
      max = top, sum *= rescale;
      for (double& each : o) each = float(each * rescale);
      for (size_t i = begin; i < end; ++i) {
        const float weight = std::exp2((float(scores[i]) - max) * 1.44269504f);
        sum += weight;
        const double p =
            asWeight(weight * lift) / lift *
            reference::scaleOf(problem.args.vScales, b, kvHead, live[i], shape.kvLen, sequences[b].kvStart + live[i]);
        for (int64_t c = 0; c < v.columns; ++c)
          o[size_t(c)] = float(o[size_t(c)] + p * asOperand(v.row(firstKv + live[i])[c]));
      }
    }
    if (max == -INFINITY) return;
    for (int64_t c = 0; c < v.columns; ++c)
      out[size_t(index * v.columns + c)] = roundedTo(outDType, std::isfinite(max) ? o[size_t(c)] / sum : NAN);
    lse[size_t(index)] = float(max + std::log(sum)), rowMax[size_t(index)] = max;
    if (interpreter.hasProbWeight()) walkAgain(row, index, firstKv, position, outDType);
    for (size_t n = 0; n < outputs.size(); ++n)
      for (size_t i = 0; i < live.size(); ++i) {
        if (scores[i] == -INFINITY) continue;
        const double p = std::exp2((float(scores[i]) - float(lse[size_t(index)])) * 1.44269504f);
        const float value = ofOutputs[n].evaluate(float(scores[i]), b, h, position, live[i], 0, 0, 0, 0, float(p)).real;
        double& to = reduced[n][size_t(outputs[n].kept == ir::Kept::Keys      ? sequences.firstColumnOf(b, h) + live[i]
                                       : outputs[n].kept == ir::Kept::Queries ? index
                                                                              : b * shape.qHeads + h)];
        to = outputs[n].isMax ? std::max(to, double(value)) : float(to + value);
      }
    if (options.backward) computeGradients(row, index, firstKv, position, max, sum);
  }

  /// Computes out by prob_mod of weights, which are found from lse.
  void walkAgain(const reference::QueryRow& row, int64_t index, int64_t firstKv, int64_t position, DType outDType) {
    const int64_t kvHead = row.h / (shape.qHeads / shape.kvHeads);
    std::vector<double> o(size_t(v.columns), 0);
    for (size_t i = 0; i < live.size(); ++i) {
      if (scores[i] == -INFINITY) continue;
      const float prob = std::exp2(std::min(float(scores[i]) - float(lse[size_t(index)]), 0.f) * 1.44269504f);
      const double p = asWeight(float(interpreter.probWeight(prob, row.b, row.h, position, live[i]))) *
                       reference::scaleOf(problem.args.vScales, row.b, kvHead, live[i], shape.kvLen,
                                          sequences[row.b].kvStart + live[i]);
      for (int64_t c = 0; c < v.columns; ++c)
        o[size_t(c)] = float(o[size_t(c)] + p * asOperand(v.row(firstKv + live[i])[c]));
    }
    for (int64_t c = 0; c < v.columns; ++c) out[size_t(index * v.columns + c)] = roundedTo(outDType, o[size_t(c)]);
  }

  void computeGradients(const reference::QueryRow& row, int64_t index, int64_t firstKv, int64_t position, float max,
                        float sum) {
    const double dLse = problem.args.dLse ? readElement(problem.args.dLse->data, DType::F32, index).real : 0;
    const double* d = dOut->row(index);
    float delta = float(reference::dot(d, &out[size_t(index * v.columns)], v.columns) - dLse);
    const float ofRow = float(lse[size_t(index)]);
    const auto weightOf = [&](size_t i) {
      return std::fabs(ofRow) > 4096 ? std::exp(float(scores[i]) - max) / sum
                                     : std::exp2(float(scores[i]) * 1.44269504f - ofRow * 1.44269504f);
    };
    const auto givenBy = [&](const std::optional<ir::Evaluator>& outputs, size_t i, double p) {
      if (!outputs || scores[i] == -INFINITY) return 0.f;
      return float(outputs->evaluate(float(scores[i]), row.b, row.h, position, live[i], 0, 0, 0, 0, float(p)).real);
    };
    for (size_t i = 0; ofProb && i < live.size(); ++i) // a walk of its own, with weights of f32
      if (const float p = weightOf(i)) delta += p * givenBy(ofProb, i, p);
    for (size_t i = 0; i < live.size(); ++i) {
      const int64_t kv = live[i], kvRow = firstKv + kv;
      const float p = weightOf(i), byProb = p == 0 ? 0 : givenBy(ofProb, i, asWeight(p));
      const float g = p * (float(product(d, v.row(kvRow), v.columns)) - delta + byProb) + givenBy(ofScore, i, p);
      const float s = float(before[i]);
      const float slope = slopes ? slopes->evaluate(s, row.b, row.h, position, kv, /*grad=*/1).real : 1;
      captures.add(s, ofScore ? 1 : p, g, row.b, row.h, position, kv);
      if (ofProb && scores[i] != -INFINITY)
        captures.add(scores[i], 1, 1, row.b, row.h, position, kv, 0, 0, /*ofSink=*/false, p);
      const double dS = p == 0 && !ofScore ? 0 : asWeight(g * slope), stored = asWeight(p);
      for (int64_t c = 0; c < q.columns; ++c) {
        dQ[size_t(index * q.columns + c)] += scale * dS * asOperand(k.row(kvRow)[c]);
        dK[size_t(kvRow * q.columns + c)] += scale * dS * asOperand(q.row(index)[c]);
      }
      for (int64_t c = 0; c < v.columns; ++c) dV[size_t(kvRow * v.columns + c)] += stored * asOperand(d[c]);
    }
  }

  const cli::HostOperands& operands;
  const cli::ProblemOptions& options;
  const cli::ReferenceProblem problem;
  const ProblemShape shape;
  const ir::Module& module;
  const ir::Bindings bindings;
  const ir::Interpreter interpreter;
  const reference::Sequences sequences;
  const reference::Dense q, k, v;
  std::optional<reference::Dense> dOut;
  std::optional<ir::Evaluator> slopes, ofProb, ofScore;
  reference::CaptureSums captures;
  const DType dtype;
  const double scale;
  std::vector<double> out, lse, rowMax, dQ, dK, dV, before, scores;
  std::vector<ir::Reduction> outputs; // of a forward pass
  std::vector<ir::Evaluator> ofOutputs;
  std::vector<std::vector<double>> reduced;
  std::vector<int64_t> live;
};

/// Returns the results of a right kernel for a run.
inline cli::RunResult simulated(const Mod& mod, const cli::HostOperands& operands, const cli::ProblemOptions& options) {
  return SimulatedKernel(mod, operands, options).result();
}

} // namespace attnc::test
