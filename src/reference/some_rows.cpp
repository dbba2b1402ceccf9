#include "reference/some_rows.h"

#include "ir/bind.h"
#include "ir/interpreter.h"
#include "reference/dense.h"
#include "reference/vectors.h"
#include "support/element.h"
#include "support/parallel.h"
#include "support/try.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace attnc::reference {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

/// Consecutive rows of one head of a tensor, dense in double.
struct HeadRows {
  int64_t columns;
  std::vector<double> values;

  HeadRows(const TensorView& tensor, int64_t batch, int64_t head, int64_t begin, int64_t count)
      : columns(tensor.shape[3]) {
    values.reserve(size_t(count * columns));
    const int64_t first = batch * tensor.stride[0] + head * tensor.stride[1];
    for (int64_t row = begin; row < begin + count; ++row)
      for (int64_t column = 0; column < columns; ++column)
        values.push_back(
            readElement(tensor.data, tensor.dtype, first + row * tensor.stride[2] + column * tensor.stride[3]).real);
  }
  const double* operator[](int64_t row) const { return &values[size_t(row * columns)]; }
};

/// Calls `body(begin, end)` for each run of `rows`, which ascend, that lies in one head of `rowsOfHead` rows.
template <class Body> void forHeads(const std::vector<int64_t>& rows, int64_t rowsOfHead, const Body& body) {
  std::vector<size_t> starts;
  for (size_t i = 0; i < rows.size(); ++i)
    if (i == 0 || rows[i] / rowsOfHead != rows[i - 1] / rowsOfHead) starts.push_back(i);
  starts.push_back(rows.size());
  parallelForEach(int64_t(starts.size()) - 1, [&](int64_t i) { body(starts[size_t(i)], starts[size_t(i) + 1]); });
}

/// What one thread needs of a problem to compute rows of it.
struct Worker {
  const BackwardOperands& args;
  const ProblemShape& problem;
  const Sequences& sequences;
  const ir::Interpreter interpreter;
  std::optional<ir::Evaluator> derivative; ///< for gradients
  double scale;

  Worker(const ir::Module& module, const ir::Bindings& bindings, const BackwardOperands& args,
         const ProblemShape& problem, const Sequences& sequences)
      : args(args), problem(problem), sequences(sequences), interpreter(module, bindings), scale(scaleOf(args)) {
    if (const auto dScore = module.output(ir::kDScore)) derivative.emplace(module, bindings, *dScore);
  }

  int64_t batchOf(int64_t b) const { return args.cuSeqlensQ ? 0 : b; }
  HeadRows ofQ(const TensorView& tensor, int64_t b, int64_t h) const {
    return {tensor, batchOf(b), h, sequences[b].qStart, sequences[b].qLength};
  }
  HeadRows ofKv(const TensorView& tensor, int64_t b, int64_t h) const {
    return {tensor, batchOf(b), h, sequences[b].kvStart, sequences[b].kvLength};
  }
  int64_t kvHeadOf(int64_t h) const { return h / (problem.qHeads / problem.kvHeads); }
  double lseAt(int64_t b, int64_t h, int64_t q) const {
    const TensorView& lse = args.lse;
    return readElement(lse.data, DType::F32,
                       batchOf(b) * lse.stride[0] + h * lse.stride[1] + (sequences[b].qStart + q) * lse.stride[2])
        .real;
  }
};

/// The gradient of a score before score_mod, and its weight.
struct ScoreGradient {
  double p = 0, dS = 0;
};

/// `s`: the score before score_mod. `dP`: dot(dout, v). Precondition: the pair is live.
ScoreGradient gradientOf(const Worker& worker, double s, double lse, double dP, double delta, int64_t b, int64_t h,
                         int64_t position, int64_t kv) {
  const double p = std::exp(worker.interpreter.score(s, b, h, position, kv) - lse);
  if (p == 0) return {};
  const double slope = worker.derivative->evaluate(float(s), b, h, position, kv, /*grad=*/1).real;
  return {p, worker.scale * p * (dP - delta) * slope};
}

} // namespace

std::vector<int64_t> drawRows(int64_t rows, int64_t count, uint64_t seed) {
  std::vector<int64_t> drawn;
  if (rows <= 0) return drawn;
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < count; ++i) drawn.push_back(int64_t(random() % uint64_t(rows)));
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

SomeRows::SomeRows(const ir::Module& module, ir::Bindings bound, const ProblemShape& problem,
                   const BackwardOperands& args)
    : module(&module), bindings(std::move(bound)), problem(problem), args(&args),
      sequences(module, bindings, problem, args) {}

Expected<SomeRows> SomeRows::make(const ir::Module& module, const Captures& captures, const BackwardOperands& args) {
  ATTNC_TRY_AS(problem, problemOf(args));
  if (args.blockMask || (args.k.shape[0] == 1 && problem->batch > 1 && !args.cuSeqlensQ))
    return Error::internal("some rows are computed without block masks, and with k and v of each batch entry");
  ATTNC_TRY_AS(bindings, ir::bind(module, captures, *problem, &args));
  return SomeRows(module, *std::move(bindings), *problem, args);
}

std::vector<double> SomeRows::out(const std::vector<int64_t>& rows) const {
  const int64_t columns = args->v.shape[3], depth = args->q.shape[3];
  std::vector<double> result(rows.size() * size_t(columns), 0);
  forHeads(rows, args->q.shape[2], [&](size_t begin, size_t end) {
    const Worker worker(*module, bindings, *args, problem, sequences);
    std::optional<HeadRows> q, k, v;
    int64_t of = -1; // the batch entry that these are of
    std::vector<double> scores;
    std::vector<int64_t> live;
    for (size_t i = begin; i < end; ++i) {
      const auto at = sequences.rowAt(rows[i]);
      if (!at) continue;
      const auto [b, h, row] = *at;
      if (of != b) q = worker.ofQ(args->q, b, h), k = worker.ofKv(args->k, b, worker.kvHeadOf(h));
      if (of != b) v = worker.ofKv(args->v, b, worker.kvHeadOf(h));
      of = b;
      scores.clear(), live.clear();
      const int64_t position = sequences[b].qOffset + row;
      double max = kLowest, sum = 0;
      for (int64_t kv = 0; kv < sequences[b].kvLength; ++kv) {
        if (!worker.interpreter.mask(b, h, position, kv)) continue;
        const double s = worker.scale * dot((*q)[row], (*k)[kv], depth);
        scores.push_back(worker.interpreter.score(s, b, h, position, kv));
        live.push_back(kv);
        max = std::max(max, scores.back());
      }
      if (max == kLowest) continue;
      double* const to = &result[i * size_t(columns)];
      for (size_t j = 0; j < live.size(); ++j) {
        const double weight = std::exp(scores[j] - max);
        sum += weight;
        addTimes(to, weight, (*v)[live[j]], columns);
      }
      for (int64_t column = 0; column < columns; ++column) to[column] /= sum;
    }
  });
  return result;
}

std::vector<double> SomeRows::dQ(const std::vector<int64_t>& rows) const {
  const int64_t columns = args->v.shape[3], depth = args->q.shape[3];
  std::vector<double> result(rows.size() * size_t(depth), 0);
  forHeads(rows, args->q.shape[2], [&](size_t begin, size_t end) {
    const Worker worker(*module, bindings, *args, problem, sequences);
    std::optional<HeadRows> q, k, v, out, dOut;
    int64_t of = -1;
    for (size_t i = begin; i < end; ++i) {
      const auto at = sequences.rowAt(rows[i]);
      if (!at) continue;
      const auto [b, h, row] = *at;
      if (of != b) {
        q = worker.ofQ(args->q, b, h), out = worker.ofQ(args->out, b, h), dOut = worker.ofQ(args->dOut, b, h);
        k = worker.ofKv(args->k, b, worker.kvHeadOf(h)), v = worker.ofKv(args->v, b, worker.kvHeadOf(h));
      }
      of = b;
      const int64_t position = sequences[b].qOffset + row;
      const double lse = worker.lseAt(b, h, row), delta = dot((*dOut)[row], (*out)[row], columns);
      for (int64_t kv = 0; kv < sequences[b].kvLength; ++kv) {
        if (!worker.interpreter.mask(b, h, position, kv)) continue;
        const double s = worker.scale * dot((*q)[row], (*k)[kv], depth);
        const double dP = dot((*dOut)[row], (*v)[kv], columns);
        const ScoreGradient gradient = gradientOf(worker, s, lse, dP, delta, b, h, position, kv);
        addTimes(&result[i * size_t(depth)], gradient.dS, (*k)[kv], depth);
      }
    }
  });
  return result;
}

SomeRows::KvGradients SomeRows::dKv(const std::vector<int64_t>& rows) const {
  const int64_t columns = args->v.shape[3], depth = args->q.shape[3], rowsOfHead = args->k.shape[2];
  const int64_t group = problem.qHeads / problem.kvHeads;
  KvGradients result{std::vector<double>(rows.size() * size_t(depth), 0),
                     std::vector<double>(rows.size() * size_t(columns), 0)};
  forHeads(rows, rowsOfHead, [&](size_t begin, size_t end) {
    const Worker worker(*module, bindings, *args, problem, sequences);
    const int64_t kvHead = rows[begin] / rowsOfHead % problem.kvHeads;
    // Each run of rows is of one head of a tensor; a ragged one holds several sequences.
    const int64_t tensorBatch = rows[begin] / rowsOfHead / problem.kvHeads;
    for (int64_t b = args->cuSeqlensQ ? 0 : tensorBatch; b < (args->cuSeqlensQ ? problem.batch : tensorBatch + 1);
         ++b) {
      const Sequence& of = sequences[b];
      const auto isOfIt = [&](size_t i) {
        const int64_t kv = rows[i] % rowsOfHead - of.kvStart;
        return kv >= 0 && kv < of.kvLength;
      };
      size_t first = begin, last = end; // rows ascend, so those of a sequence are a run
      while (first < end && !isOfIt(first)) ++first;
      while (last > first && !isOfIt(last - 1)) --last;
      if (first == last) continue;
      const HeadRows k = worker.ofKv(args->k, b, kvHead), v = worker.ofKv(args->v, b, kvHead);
      for (int64_t h = kvHead * group; h < (kvHead + 1) * group; ++h) {
        const HeadRows q = worker.ofQ(args->q, b, h), out = worker.ofQ(args->out, b, h),
                       dOut = worker.ofQ(args->dOut, b, h);
        for (int64_t row = 0; row < of.qLength; ++row) {
          const int64_t position = of.qOffset + row;
          const double lse = worker.lseAt(b, h, row), delta = dot(dOut[row], out[row], columns);
          for (size_t i = first; i < last; ++i) {
            const int64_t kv = rows[i] % rowsOfHead - of.kvStart;
            if (!worker.interpreter.mask(b, h, position, kv)) continue;
            const double s = worker.scale * dot(q[row], k[kv], depth);
            const double dP = dot(dOut[row], v[kv], columns);
            const ScoreGradient gradient = gradientOf(worker, s, lse, dP, delta, b, h, position, kv);
            addTimes(&result.dK[i * size_t(depth)], gradient.dS, q[row], depth);
            addTimes(&result.dV[i * size_t(columns)], gradient.p, dOut[row], columns);
          }
        }
      }
    }
  });
  return result;
}

} // namespace attnc::reference
