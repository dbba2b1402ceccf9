#include "reference/attention.h"

#include "ir/bind.h"
#include "ir/interpreter.h"
#include "reference/dense.h"
#include "reference/listed_columns.h"
#include "reference/sequences.h"
#include "support/element.h"
#include "support/parallel.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnc::reference {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Returns a dense copy in f32, which holds every element of the accepted dtypes exactly.
std::vector<float> decode(const TensorView& tensor) {
  std::vector<float> values(size_t(tensor.elements()));
  const auto& [batches, heads, rows, columns, unused4, unused5] = tensor.shape;
  size_t next = 0;
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t row = 0; row < rows; ++row) {
        int64_t offset = b * tensor.stride[0] + h * tensor.stride[1] + row * tensor.stride[2];
        for (int64_t column = 0; column < columns; ++column)
          values[next++] = float(readElement(tensor.data, tensor.dtype, offset + column * tensor.stride[3]).real);
      }
  return values;
}

/// Computes rows. Each thread has its own object, with its own scratch and interpreter.
class Rows {
public:
  Rows(const Operands& args, const std::vector<float>& k, const std::vector<float>& v,
       const ir::Interpreter& interpreter, std::vector<ir::Evaluator> reductions, const Sequences& sequences,
       AttentionResult& result)
      : args(args), k(k), v(v), interpreter(interpreter), reductions(std::move(reductions)), sequences(sequences),
        result(result), query(size_t(args.q.shape[3])) {}

  /// `row` counts over the rows of q, [B, H, Q_LEN].
  void compute(int64_t row) {
    const std::optional<QueryRow> at = sequences.rowAt(row);
    if (!at) return;
    const auto [b, h, q] = *at;
    const int64_t kvHead = h / (result.problem.qHeads / result.problem.kvHeads);
    const int64_t firstKv = sequences.firstKvOf(b, kvHead);
    const int64_t first = (args.cuSeqlensQ ? 0 : b) * args.q.stride[0] + h * args.q.stride[1] +
                          (sequences[b].qStart + q) * args.q.stride[2];
    for (size_t i = 0; i < query.size(); ++i)
      query[i] = readElement(args.q.data, args.q.dtype, first + int64_t(i) * args.q.stride[3]).real;
    scale = scaleOfRow(args, b, h, q, result.problem.qLen, sequences[b].qStart + q);
    collectScores(b, h, q, firstKv);
    reduce(row, firstKv, b, h, sequences[b].qOffset + q);
    addToReductions(row, b, h, sequences[b].qOffset + q);
  }

private:
  /// Fills `live` and `scores` with the live columns of a row, in order of kv.
  void collectScores(int64_t b, int64_t h, int64_t q, int64_t firstKv) {
    live.clear();
    scores.clear();
    listColumns(args.blockMask, result.problem, b, h, q, ranges);
    const Sequence& of = sequences[b];
    for (const ColumnRange& range : ranges)
      addColumns(b, h, of.qOffset + q, firstKv, range.begin, std::min(range.end, of.kvLength), range.full);
  }

  /// `q`: position of the query.
  void addColumns(int64_t b, int64_t h, int64_t q, int64_t firstKv, int64_t begin, int64_t end, bool full) {
    for (int64_t kv = begin; kv < end; ++kv) {
      if (!full && !interpreter.mask(b, h, q, kv)) continue;
      const float* key = &k[size_t((firstKv + kv) * int64_t(query.size()))];
      double dot = 0;
      for (size_t i = 0; i < query.size(); ++i) dot += query[i] * double(key[i]);
      dot *= scaleOf(args.kScales, b, h / (result.problem.qHeads / result.problem.kvHeads), kv, result.problem.kvLen,
                     sequences[b].kvStart + kv);
      live.push_back(kv);
      const double score = interpreter.score(scale * dot, b, h, q, kv);
      const float single = float(score); // overflows to an infinity beyond f32's range
      scores.push_back(std::isinf(single) ? double(single) : score);
    }
  }

  /// Computes the softmax over the collected scores, and the weighted sum of v. `position`: of the query.
  void reduce(int64_t row, int64_t firstKv, int64_t b, int64_t h, int64_t position) {
    const int64_t kvHead = h / (result.problem.qHeads / result.problem.kvHeads);
    if (interpreter.isWeight()) return addWeighted(row, firstKv, b, kvHead);
    double max = kMinusInfinity;
    for (double score : scores) max = score > max || std::isnan(score) ? score : max;
    const double sink = interpreter.sink(b, h, position), top = sink > max || std::isnan(sink) ? sink : max;
    if (top == kMinusInfinity) return; // outputs are initialized for rows without terms
    int64_t columns = result.headDimV;
    double* out = result.out.data() + row * columns;
    if (!std::isfinite(top)) {
      if (interpreter.hasProbWeight())
        addWeights(row, firstKv, b, h, position, kNan, 1);
      else
        std::fill(out, out + columns, kNan);
      for (std::vector<double>* of : {&result.lse, &result.rowMax, &result.rowTop, &result.rowSum})
        (*of)[size_t(row)] = kNan;
      return;
    }
    result.rowMax[size_t(row)] = max;
    result.rowTop[size_t(row)] = top;
    double sum = std::exp(sink - top);
    for (size_t i = 0; i < live.size(); ++i) {
      double weight = std::exp(scores[i] - top);
      const float* value = v.data() + (firstKv + live[i]) * columns;
      sum += weight;
      if (weight != 0) weight *= interpreter.probFactor(b, h, position, live[i]);
      weight *= scaleOf(args.vScales, b, kvHead, live[i], result.problem.kvLen, sequences[b].kvStart + live[i]);
      for (int64_t column = 0; column < columns; ++column) out[column] += weight * double(value[column]);
    }
    for (int64_t column = 0; column < columns; ++column) out[column] /= sum;
    if (interpreter.hasProbWeight()) addWeights(row, firstKv, b, h, position, top, sum);
    result.rowSum[size_t(row)] = sum;
    result.lse[size_t(row)] = top + std::log(sum);
  }

  /// Makes `out` the sum of v by what prob_mod makes of the weights of the softmax, if it is no multiple of these.
  void addWeights(int64_t row, int64_t firstKv, int64_t b, int64_t h, int64_t position, double top, double sum) {
    double* const out = result.out.data() + row * result.headDimV;
    std::fill_n(out, result.headDimV, 0);
    const int64_t kvHead = h / (result.problem.qHeads / result.problem.kvHeads);
    for (size_t i = 0; i < live.size(); ++i) {
      if (scores[i] == kMinusInfinity) continue;
      const double weight =
          interpreter.probWeight(std::exp(scores[i] - top) / sum, b, h, position, live[i]) *
          scaleOf(args.vScales, b, kvHead, live[i], result.problem.kvLen, sequences[b].kvStart + live[i]);
      const float* value = v.data() + (firstKv + live[i]) * result.headDimV;
      for (int64_t column = 0; column < result.headDimV; ++column) out[column] += weight * double(value[column]);
    }
  }

  /// Adds up v by the collected scores, which are weights. They refer to 0, and their sum counts as 1.
  void addWeighted(int64_t row, int64_t firstKv, int64_t b, int64_t kvHead) {
    double* out = result.out.data() + row * result.headDimV;
    for (size_t i = 0; i < live.size(); ++i) {
      const double factor =
          scaleOf(args.vScales, b, kvHead, live[i], result.problem.kvLen, sequences[b].kvStart + live[i]);
      const float* value = v.data() + (firstKv + live[i]) * result.headDimV;
      for (int64_t column = 0; column < result.headDimV; ++column)
        out[column] += scores[i] * factor * double(value[column]);
    }
    result.lse[size_t(row)] = result.rowMax[size_t(row)] = result.rowTop[size_t(row)] = 0;
    result.rowSum[size_t(row)] = 1;
  }

  /// Adds a row's live scores to the outputs of the mod, behind reduce().
  void addToReductions(int64_t row, int64_t b, int64_t h, int64_t position) {
    for (size_t n = 0; n < reductions.size(); ++n) {
      auto& [what, shape, values] = result.reduced[n];
      for (size_t i = 0; i < live.size(); ++i) {
        if (scores[i] == kMinusInfinity) continue;
        const double value = reductions[n]
                                 .evaluate(float(scores[i]), b, h, position, live[i], 0, 0, 0, 0,
                                           float(std::exp(scores[i] - result.lse[size_t(row)])))
                                 .real;
        double& to = values[size_t(what.kept == ir::Kept::Keys      ? sequences.firstColumnOf(b, h) + live[i]
                                   : what.kept == ir::Kept::Queries ? row
                                                                    : b * result.problem.qHeads + h)];
        to = !what.isMax ? to + value : value > to || std::isnan(value) ? value : to;
      }
    }
  }

  const Operands& args;
  const std::vector<float>& k;
  const std::vector<float>& v;
  ir::Interpreter interpreter;
  std::vector<ir::Evaluator> reductions;
  const Sequences& sequences;
  AttentionResult& result;
  double scale = 1; // of the row
  std::vector<double> query, scores;
  std::vector<int64_t> live;
  std::vector<ColumnRange> ranges;
};

} // namespace

Expected<AttentionResult> attention(const ir::Module& module, const Captures& captures, const Operands& args,
                                    bool reduces) {
  if (Features other = featuresOf(args).without(kTakes); !other.empty())
    return Error::internal(fmt::format("the reference takes no {}", featureText(other.first())));
  ATTNC_TRY_AS(problem, problemOf(args));
  ATTNC_TRY_AS(bindings, ir::bindOnHost(module, captures, *problem, &args));

  int64_t rows = args.q.shape[0] * args.q.shape[1] * args.q.shape[2];
  AttentionResult result{*problem, args.v.shape[3], {}, {}, {}, {}, {}};
  result.out.assign(size_t(rows * result.headDimV), 0);
  result.lse.assign(size_t(rows), kMinusInfinity);
  result.rowMax.assign(size_t(rows), kMinusInfinity);
  result.rowTop.assign(size_t(rows), kMinusInfinity);
  result.rowSum.assign(size_t(rows), 0);

  const std::vector<float> k = decode(args.k), v = decode(args.v);
  const ir::Interpreter interpreter(module, *bindings);
  const Sequences sequences(module, *bindings, *problem, args);
  std::vector<ir::Evaluator> reductions;
  for (const ir::Reduction& each : reduces ? ir::reductionsOf(module) : std::vector<ir::Reduction>()) {
    reductions.emplace_back(module, *bindings, *module.output(each.output()));
    std::vector<int64_t> shape = each.kept == ir::Kept::Heads ? std::vector{problem->batch, problem->qHeads}
                                 : each.kept == ir::Kept::Keys
                                     ? std::vector{sequences.isPacked ? 1 : problem->batch, problem->qHeads,
                                                   sequences.isPacked ? args.k.shape[2] : problem->kvLen}
                                     : std::vector{args.q.shape[0], problem->qHeads, args.q.shape[2]};
    int64_t elements = 1;
    for (int64_t extent : shape) elements *= extent;
    result.reduced.push_back({each, std::move(shape), std::vector(size_t(elements), each.isMax ? kMinusInfinity : 0)});
  }
  const int64_t atOnce = reductions.empty() ? 1 : std::max<int64_t>(args.q.shape[2], 1); // columns' sums are of heads
  parallelFor(rows / atOnce, [&](int64_t begin, int64_t end) {
    Rows worker(args, k, v, interpreter, reductions, sequences, result);
    for (int64_t row = begin * atOnce; row < end * atOnce; ++row) worker.compute(row);
  });
  return result;
}

void store(const std::vector<double>& values, const TensorView& target) {
  std::array<int64_t, TensorView::kMaxRank> position{};
  for (double value : values) {
    int64_t offset = 0;
    for (int axis = 0; axis < target.rank; ++axis) offset += position[axis] * target.stride[axis];
    writeElement(target.data, target.dtype, offset, value);
    for (int axis = target.rank - 1; axis >= 0 && ++position[axis] == target.shape[axis]; --axis) position[axis] = 0;
  }
}

} // namespace attnc::reference
