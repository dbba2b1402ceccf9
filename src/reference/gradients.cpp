#include "reference/gradients.h"

#include "ir/bind.h"
#include "ir/interpreter.h"
#include "reference/capture_sums.h"
#include "reference/dense.h"
#include "reference/listed_columns.h"
#include "reference/sequences.h"
#include "reference/vectors.h"
#include "support/element.h"
#include "support/parallel.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnc::reference {

Status checkGradients(const BackwardOperands& args) {
  const TensorView& d = args.dOut;
  const auto& q = args.q.shape;
  if (d.rank != 4 || d.shape[0] != q[0] || d.shape[1] != q[1] || d.shape[2] != q[2] || d.shape[3] != args.v.shape[3])
    return Error::environment(fmt::format("dout is not [{}, {}, {}, {}]", q[0], q[1], q[2], args.v.shape[3]));
  if (args.dLse && args.dLse->elements() != q[0] * q[1] * q[2])
    return Error::environment("dlse has another shape than lse");
  return {};
}

namespace {

/// Sums for GradientResult::scoreSlope, weighted by P.
struct SlopeSum {
  double squares = 0, weights = 0;

  void add(double slope, double p) {
    if (!std::isfinite(slope) || p == 0) return;
    squares += p * slope * slope;
    weights += p;
  }
};

/// Computes the gradients of everything that shares one KV head, in one thread.
class Head {
public:
  Head(const BackwardOperands& args, const ir::Module& module, const ir::Bindings& bindings, const Sequences& sequences,
       const AttentionResult& forward, GradientResult& result)
      : args(args), sequences(sequences), forward(forward), problem(forward.problem), result(result), q(args.q),
        k(args.k), v(args.v), dOut(args.dOut), interpreter(module, bindings),
        derivative(module, bindings, *module.output(ir::kDScore)), dProb(evaluatorOf(module, bindings, ir::kDProb)),
        ofProb(evaluatorOf(module, bindings, ir::kProbGradient)),
        ofScore(evaluatorOf(module, bindings, ir::kScoreGradient)), scale(scaleOf(args)) {}

  SlopeSum compute(int64_t kvBatch, int64_t kvHead, CaptureSums& captures) {
    slopes = {};
    const int64_t group = problem.qHeads / problem.kvHeads;
    const bool isShared = args.k.shape[0] == 1;
    for (int64_t b = isShared ? 0 : kvBatch; b < (isShared ? problem.batch : kvBatch + 1); ++b)
      for (int64_t h = kvHead * group; h < (kvHead + 1) * group; ++h)
        for (int64_t row = 0; row < sequences[b].qLength; ++row) computeRow({b, h, row}, kvHead, captures);
    return slopes;
  }

private:
  static std::optional<ir::Evaluator> evaluatorOf(const ir::Module& module, const ir::Bindings& bindings,
                                                  const ir::OutputRole& role) {
    const std::optional<ir::Value> value = module.output(role);
    return value ? std::optional<ir::Evaluator>(std::in_place, module, bindings, *value) : std::nullopt;
  }

  void computeRow(const QueryRow& row, int64_t kvHead, CaptureSums& captures) {
    const int64_t index = sequences.indexOf(row), firstKv = sequences.firstKvOf(row.b, kvHead);
    const int64_t b = row.b, h = row.h, position = sequences[b].qOffset + row.q;
    // Not from lse: a large score would leave no digit of the sum in it.
    const double top = forward.rowTop[size_t(index)], sum = forward.rowSum[size_t(index)];
    if (top == -std::numeric_limits<double>::infinity()) return;
    const double* d = dOut.row(index);
    const double dLse = args.dLse ? readElement(args.dLse->data, DType::F32, index).real : 0;
    const bool isWeight = interpreter.isWeight(); // p is then the score, whose gradient is that of p
    double delta = isWeight ? 0 : (dProb ? 0 : dot(d, &forward.out[size_t(index * v.columns)], v.columns)) - dLse;
    listLiveColumns(args.blockMask, problem, interpreter, row, position, sequences[b].kvLength, live);
    /// Returns what outputs of the mod give to an element's score, itself or by its weight.
    const auto givenBy = [&](const std::optional<ir::Evaluator>& outputs, double score, double p,
                             int64_t kv) -> double {
      if (!outputs || score == -std::numeric_limits<double>::infinity()) return 0;
      return outputs->evaluate(float(score), b, h, position, kv, 0, 0, 0, 0, float(p)).real;
    };
    const double infinity = std::numeric_limits<double>::infinity();
    for (int64_t kv : ofProb || dProb ? live : std::vector<int64_t>()) {
      const double s = scale * dot(q.row(index), k.row(firstKv + kv), q.columns);
      const double score = interpreter.score(s, b, h, position, kv), p = std::exp(score - top) / sum;
      if (float(p) != 0) delta += p * givenBy(ofProb, score, p, kv);
      if (dProb && float(p) != 0)
        delta += p * slopeOfProb(p, row, position, kv) * dot(d, v.row(firstKv + kv), v.columns);
    }
    const double ofSink = std::exp(interpreter.sink(b, h, position) - top) / sum;
    if (!isWeight) captures.add(0, ofSink, -ofSink * delta, b, h, position, 0, 0, 0, /*ofSink=*/true);
    for (int64_t kv : live) {
      const int64_t kvRow = firstKv + kv;
      const double s = scale * dot(q.row(index), k.row(kvRow), q.columns);
      const double score = interpreter.score(s, b, h, position, kv), p = isWeight ? score : std::exp(score - top) / sum;
      if (dProb && score == -infinity) continue;
      const double factor = dProb    ? (float(p) == 0 ? 0 : slopeOfProb(p, row, position, kv))
                            : p == 0 ? 1
                                     : interpreter.probFactor(b, h, position, kv);
      const double weight = dProb ? interpreter.probWeight(p, b, h, position, kv) : p * factor;
      const double share = isWeight ? 1 : p, byProb = float(p) == 0 ? 0 : givenBy(ofProb, score, p, kv);
      const double byScore = givenBy(ofScore, score, p, kv);
      const double g = share * (factor * dot(d, v.row(kvRow), v.columns) + byProb - delta) + byScore;
      captures.add(s, byScore == 0 ? share : 1, g, b, h, position, kv);
      if (dProb) captures.addOfProb(p, dot(d, v.row(kvRow), v.columns), b, h, position, kv);
      if (ofProb && score != -std::numeric_limits<double>::infinity())
        captures.add(score, 1, 1, b, h, position, kv, 0, 0, /*ofSink=*/false, p);
      const double slope =
          derivative.evaluate(float(s), b, h, position, kv, /*grad=*/1).real; // d_score is linear in grad
      slopes.add(slope, share);
      const double dS = scale * (g == 0 ? 0 : g * slope);
      addTimes(&result.dQ[size_t(index * q.columns)], dS, k.row(kvRow), q.columns);
      addTimes(&result.dK[size_t(kvRow * q.columns)], dS, q.row(index), q.columns);
      addTimes(&result.dV[size_t(kvRow * v.columns)], weight, d, v.columns);
    }
  }

  /// Returns the derivative of prob_mod by its weight.
  double slopeOfProb(double p, const QueryRow& row, int64_t position, int64_t kv) const {
    return dProb->evaluate(0, row.b, row.h, position, kv, /*grad=*/1, 0, 0, 0, float(p)).real;
  }

  const BackwardOperands& args;
  const Sequences& sequences;
  const AttentionResult& forward;
  const ProblemShape& problem;
  GradientResult& result;
  const Dense q, k, v, dOut;
  const ir::Interpreter interpreter;
  const ir::Evaluator derivative;
  const std::optional<ir::Evaluator> dProb;           // set if prob_mod is no multiple of the weight
  const std::optional<ir::Evaluator> ofProb, ofScore; // set if outputs of the mod have gradients
  double scale;
  SlopeSum slopes;
  std::vector<int64_t> live;
};

/// Adds up `total` (zeros) and the parts, element by element, in the order of the parts.
template <class Of> std::vector<double> added(std::vector<double> total, const std::vector<CaptureSums>& parts, Of of) {
  for (const CaptureSums& part : parts)
    for (size_t i = 0; i < total.size(); ++i) total[i] += of(part)[i];
  return total;
}

} // namespace

Expected<GradientResult> gradients(const ir::Module& module, const Captures& captures, const BackwardOperands& args,
                                   const ir::CaptureGradients& wanted) {
  ATTNC_TRY_AS(forward, attention(module, captures, args));
  const ProblemShape& problem = forward->problem;
  ATTNC_TRY(checkGradients(args));
  ATTNC_TRY_AS(bindings, ir::bind(module, captures, problem, &args));
  GradientResult result;
  result.dQ.assign(size_t(args.q.elements()), 0);
  result.dK.assign(size_t(args.k.elements()), 0);
  result.dV.assign(size_t(args.v.elements()), 0);
  const Sequences sequences(module, *bindings, problem, args);
  // Everything that shares a KV head is summed in one place, so a KV head is the unit of work.
  std::vector<CaptureSums> sums(size_t(args.k.shape[0] * problem.kvHeads), {module, *bindings, wanted});
  std::vector<SlopeSum> slopes(sums.size());
  parallelFor(int64_t(sums.size()), [&](int64_t begin, int64_t end) {
    Head worker(args, module, *bindings, sequences, *forward, result);
    for (int64_t i = begin; i < end; ++i)
      slopes[size_t(i)] = worker.compute(i / problem.kvHeads, i % problem.kvHeads, sums[size_t(i)]);
  });
  SlopeSum slope;
  for (const SlopeSum& part : slopes) {
    slope.squares += part.squares;
    slope.weights += part.weights;
  }
  if (slope.weights > 0) result.scoreSlope = std::sqrt(slope.squares / slope.weights);
  const CaptureSums zeros(module, *bindings, wanted);
  for (size_t i = 0; i < wanted.captures.size(); ++i) {
    const std::string& name = wanted.captures[i];
    const auto values = [&](const CaptureSums& part) -> auto& { return part.values()[i]; };
    const auto squaresOf = [&](const CaptureSums& part) -> auto& { return part.squares()[i]; };
    result.captures[name] = added(values(zeros), sums, values);
    const std::vector<double> squares = added(squaresOf(zeros), sums, squaresOf);
    result.captureSquares[name] = squares.empty() ? 0 : *std::max_element(squares.begin(), squares.end());
  }
  result.forward = *std::move(forward);
  return result;
}

} // namespace attnc::reference
