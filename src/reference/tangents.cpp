#include "reference/tangents.h"

#include "ir/bind.h"
#include "ir/interpreter.h"
#include "reference/capture_sums.h"
#include "reference/dense.h"
#include "reference/gradients.h"
#include "reference/listed_columns.h"
#include "reference/sequences.h"
#include "reference/vectors.h"
#include "support/parallel.h"
#include "support/try.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>

namespace attnc::reference {
namespace {

Status checkDirections(const BackwardOperands& args) {
  for (auto [name, direction, of] : {std::tuple("q_tangent", &args.qTangent, &args.q),
                                     {"k_tangent", &args.kTangent, &args.k},
                                     {"v_tangent", &args.vTangent, &args.v}})
    if (!*direction || (*direction)->rank != 4 || (*direction)->shape != of->shape)
      return Error::environment(
          fmt::format("{} is not [{}, {}, {}, {}]", name, of->shape[0], of->shape[1], of->shape[2], of->shape[3]),
          "give q_tangent, k_tangent and v_tangent, with the shapes of q, k and v");
  return {};
}

/// Computes the tangents of everything that shares one KV head, in one thread.
class MovingHead {
public:
  MovingHead(const BackwardOperands& args, const ir::Module& module, const ir::Bindings& bindings,
             const Sequences& sequences, const AttentionResult& forward, TangentResult& result)
      : args(args), sequences(sequences), forward(forward), problem(forward.problem), result(result), q(args.q),
        k(args.k), v(args.v), dOut(args.dOut), tQ(*args.qTangent), tK(*args.kTangent), tV(*args.vTangent),
        interpreter(module, bindings), tScore(module, bindings, *module.output(ir::kTScore)),
        derivative(module, bindings, *module.output(ir::kDScore)),
        tDerivative(module, bindings, *module.output(ir::kTDScore)), scale(scaleOf(args)) {
    if (const auto sink = module.output(ir::kTSink)) tSink.emplace(module, bindings, *sink);
  }

  void compute(int64_t kvBatch, int64_t kvHead, CaptureSums& captures) {
    const int64_t group = problem.qHeads / problem.kvHeads;
    const bool isShared = args.k.shape[0] == 1;
    for (int64_t b = isShared ? 0 : kvBatch; b < (isShared ? problem.batch : kvBatch + 1); ++b)
      for (int64_t h = kvHead * group; h < (kvHead + 1) * group; ++h)
        for (int64_t row = 0; row < sequences[b].qLength; ++row) computeRow({b, h, row}, kvHead, captures);
  }

private:
  /// A live score, and how it moves: p is its weight, tScore the tangent of score_mod's result.
  struct Pair {
    int64_t kv;
    double s, tS, p, factor, tScore;
  };

  void computeRow(const QueryRow& row, int64_t kvHead, CaptureSums& captures) {
    const auto index = size_t(sequences.indexOf(row));
    const int64_t firstKv = sequences.firstKvOf(row.b, kvHead), position = sequences[row.b].qOffset + row.q;
    const double top = forward.rowTop[index], sum = forward.rowSum[index];
    if (top == -std::numeric_limits<double>::infinity()) return;
    listLiveColumns(args.blockMask, problem, interpreter, row, position, sequences[row.b].kvLength, live);
    pairs.clear();
    const double pSink = std::exp(interpreter.sink(row.b, row.h, position) - top) / sum;
    const double moves = pSink == 0 ? 0 : tSink->evaluate(0, row.b, row.h, position, 0).real; // the sink
    double tLse = pSink * moves;
    for (int64_t kv : live) {
      const double *key = k.row(firstKv + kv), *tKey = tK.row(firstKv + kv);
      Pair pair{kv, scale * dot(q.row(int64_t(index)), key, q.columns)};
      pair.tS = scale * (dot(tQ.row(int64_t(index)), key, q.columns) + dot(q.row(int64_t(index)), tKey, q.columns));
      pair.p = std::exp(interpreter.score(pair.s, row.b, row.h, position, kv) - top) / sum;
      if (pair.p == 0) continue;
      pair.factor = interpreter.probFactor(row.b, row.h, position, kv);
      pair.tScore = tScore.evaluate(float(pair.s), row.b, row.h, position, kv, 0, 0, float(pair.tS)).real;
      tLse += pair.p * pair.tScore;
      pairs.push_back(pair);
    }
    double* tOut = &result.out[index * size_t(v.columns)];
    for (const Pair& pair : pairs) {
      addTimes(tOut, pair.p * pair.factor * (pair.tScore - tLse), v.row(firstKv + pair.kv), v.columns);
      addTimes(tOut, pair.p * pair.factor, tV.row(firstKv + pair.kv), v.columns);
    }
    result.lse[index] = tLse;
    addGradients(row, index, firstKv, position, tLse, pSink, moves, captures);
  }

  void addGradients(const QueryRow& row, size_t index, int64_t firstKv, int64_t position, double tLse, double pSink,
                    double sinkMoves, CaptureSums& captures) {
    const double* d = dOut.row(int64_t(index));
    const double dLse = args.dLse ? readElement(args.dLse->data, DType::F32, int64_t(index)).real : 0;
    const double delta = dot(d, &forward.out[index * size_t(v.columns)], v.columns) - dLse;
    const double tDelta = dot(d, &result.out[index * size_t(v.columns)], v.columns);
    captures.add(0, pSink, -pSink * delta, row.b, row.h, position, 0, 0, -pSink * ((sinkMoves - tLse) * delta + tDelta),
                 /*ofSink=*/true);
    for (const Pair& pair : pairs) {
      const int64_t kvRow = firstKv + pair.kv;
      const double dWeight = pair.factor * dot(d, v.row(kvRow), v.columns),
                   tDWeight = pair.factor * dot(d, tV.row(kvRow), v.columns), tP = pair.p * (pair.tScore - tLse);
      const double g = pair.p * (dWeight - delta), tG = tP * (dWeight - delta) + pair.p * (tDWeight - tDelta);
      const auto at = [&](const ir::Evaluator& of, float grad, float gradTangent) {
        return of.evaluate(float(pair.s), row.b, row.h, position, pair.kv, grad, 0, float(pair.tS), gradTangent).real;
      };
      // Both are linear in the gradients. Multiplying here avoids rounding these to f32.
      const double dS = scale * g * at(derivative, 1, 0),
                   tDS = scale * (g * at(tDerivative, 1, 0) + tG * at(tDerivative, 0, 1));
      addTimes(&result.dQ[index * size_t(q.columns)], tDS, k.row(kvRow), q.columns);
      addTimes(&result.dQ[index * size_t(q.columns)], dS, tK.row(kvRow), q.columns);
      addTimes(&result.dK[size_t(kvRow * q.columns)], tDS, q.row(int64_t(index)), q.columns);
      addTimes(&result.dK[size_t(kvRow * q.columns)], dS, tQ.row(int64_t(index)), q.columns);
      addTimes(&result.dV[size_t(kvRow * v.columns)], tP * pair.factor, d, v.columns);
      captures.add(pair.s, pair.p, g, row.b, row.h, position, pair.kv, pair.tS, tG);
    }
  }

  const BackwardOperands& args;
  const Sequences& sequences;
  const AttentionResult& forward;
  const ProblemShape& problem;
  TangentResult& result;
  const Dense q, k, v, dOut, tQ, tK, tV;
  const ir::Interpreter interpreter;
  const ir::Evaluator tScore, derivative, tDerivative;
  std::optional<ir::Evaluator> tSink;
  double scale;
  std::vector<int64_t> live;
  std::vector<Pair> pairs;
};

} // namespace

Expected<TangentResult> tangents(const ir::Module& module, const Captures& captures, const BackwardOperands& args,
                                 const ir::CaptureGradients& wanted) {
  ATTNC_TRY_AS(forward, attention(module, captures, args));
  ATTNC_TRY(checkGradients(args));
  ATTNC_TRY(checkDirections(args));
  const ProblemShape& problem = forward->problem;
  ATTNC_TRY_AS(bindings, ir::bind(module, captures, problem, &args));
  TangentResult result;
  result.out.assign(forward->out.size(), 0), result.lse.assign(forward->lse.size(), 0);
  for (auto [sums, like] : {std::pair(&result.dQ, &args.q), {&result.dK, &args.k}, {&result.dV, &args.v}})
    sums->assign(size_t(like->elements()), 0);
  const Sequences sequences(module, *bindings, problem, args);
  std::vector<CaptureSums> sums(size_t(args.k.shape[0] * problem.kvHeads), {module, *bindings, wanted});
  parallelFor(int64_t(sums.size()), [&](int64_t begin, int64_t end) {
    MovingHead worker(args, module, *bindings, sequences, *forward, result);
    for (int64_t i = begin; i < end; ++i) worker.compute(i / problem.kvHeads, i % problem.kvHeads, sums[size_t(i)]);
  });
  for (size_t i = 0; i < wanted.captures.size(); ++i) {
    std::vector<double>& total = result.captures[wanted.captures[i]];
    total = CaptureSums(module, *bindings, wanted).values()[i];
    for (const CaptureSums& part : sums)
      for (size_t j = 0; j < total.size(); ++j) total[j] += part.values()[i][j];
  }
  return result;
}

} // namespace attnc::reference
