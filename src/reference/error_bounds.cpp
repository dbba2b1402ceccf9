#include "reference/error_bounds.h"

#include "ir/bind.h"
#include "ir/interpreter.h"
#include "reference/capture_bounds.h"
#include "reference/dense.h"
#include "reference/listed_columns.h"
#include "reference/ranges.h"
#include "reference/sequences.h"
#include "reference/vectors.h"
#include "support/parallel.h"
#include "support/try.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace attnc::reference {
namespace {

constexpr double kAny = std::numeric_limits<double>::quiet_NaN(), kNone = -std::numeric_limits<double>::infinity();
constexpr double kLeast = 0x1p-126; // numbers of f32 and bf16 below this may count as 0

/// Returns the sum of |x[i] y[i]|.
double sizeOfDot(const double* x, const double* y, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::fabs(x[i] * y[i]);
  return sum;
}

/// Adds factor |x[i]| to to[i].
void addSizes(double* to, double factor, const double* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += factor * std::fabs(x[i]);
}

/// A live element of a row. Weights are relative to that of the row's maximum.
struct Element {
  int64_t kv, kvRow;
  double before, spread;        ///< the score before score_mod, and its error
  double score, low, high;      ///< behind score_mod
  double weight, lowest, error; ///< exp(score - max), exp(low - max); how far the weight is off
  double ofV;                   ///< the factor of the elements of v
};

/// A number that kernels may be off from.
struct Off {
  double value = 0, error = 0;
};

/// What prob_mod makes of an element's weight, or gives to it, or what outputs of the mod give to its score, by its
/// weight or themselves.
class OutputTerm {
public:
  OutputTerm(const ir::Module& module, const ir::Bindings& bindings, ir::Value value)
      : nominal(module, bindings, value), ranges(module, bindings, value) {}

  Off evaluate(const Element& e, double p, const Range& prob, const QueryRow& at, int64_t position) const {
    if (e.score == kNone) return {};
    const auto valueAt = [&](double p) {
      return double(nominal.evaluate(float(e.score), at.b, at.h, position, e.kv, /*grad=*/1, 0, 0, 0, float(p)).real);
    };
    const double value = valueAt(p);
    const Range range = ranges.evaluate(e.low, e.high, at.b, at.h, position, e.kv, 0, prob);
    const double off = std::max(range.high.real - value, value - range.low.real);
    return {value, prob.low.real > kLeast ? off : std::max(off, std::fabs(valueAt(0) - value))};
  }

private:
  ir::Evaluator nominal;
  RangeEvaluator ranges;
};

/// Bounds of rows, in one thread.
class BoundedRows {
public:
  BoundedRows(const ir::Module& module, const ir::Bindings& bindings, const BackwardOperands& args,
              const Sequences& sequences, const GradientResult& of, const Arithmetic& arithmetic, const Dense& q,
              const Dense& k, const Dense& v, const Dense* dOut, ErrorBounds& bounds, std::vector<double>& squares)
      : args(args), sequences(sequences), forward(of.forward), problem(of.forward.problem), by(arithmetic), q(q), k(k),
        v(v), dOut(dOut), bounds(bounds), squares(squares), interpreter(module, bindings), scale(scaleOf(args)),
        farthest(size_t(v.columns)), sizes(size_t(v.columns)), moved(size_t(v.columns)), squared(size_t(v.columns)) {
    if (by.storesParts)
      partsOfK.resize(size_t(problem.kvLen * q.columns)), partsOfV.resize(size_t(problem.kvLen * v.columns));
    if (const auto score = module.output(ir::kScore)) scores.emplace(module, bindings, *score);
    if (const auto slope = dOut ? module.output(ir::kDScore) : std::nullopt) {
      slopes.emplace(module, bindings, *slope);
      derivative.emplace(module, bindings, *slope);
    }
    if (const auto value = module.output(ir::kProbWeight)) probWeight.emplace(module, bindings, *value);
    if (const auto value = dOut ? module.output(ir::kDProb) : std::nullopt) dProb.emplace(module, bindings, *value);
    if (const auto value = dOut ? module.output(ir::kProbGradient) : std::nullopt)
      ofProb.emplace(module, bindings, *value);
    if (const auto value = dOut ? module.output(ir::kScoreGradient) : std::nullopt)
      ofScore.emplace(module, bindings, *value);
  }

  /// `captures`: null for a forward pass.
  void compute(const QueryRow& row, CaptureBounds* captures) {
    at = row, index = sequences.indexOf(row), position = sequences[row.b].qOffset + row.q;
    kvHead = row.h / (problem.qHeads / problem.kvHeads);
    listLiveColumns(args.blockMask, problem, interpreter, row, position, sequences[row.b].kvLength, live);
    const double max = forward.rowMax[size_t(index)], top = forward.rowTop[size_t(index)];
    if (std::isnan(top)) return; // as in kernels
    sink = interpreter.sink(row.b, row.h, position);
    collect(interpreter.isWeight() ? kNone : top);
    if (interpreter.isWeight()) return boundWeights(captures);
    if (elements.empty() || highest == kNone) { // no live score, wherever kernels round
      if (sink == kNone) return;
      bounds.lse[size_t(index)] = ofSink();
      if (!captures) return;
      captures->add({.weight = 1, .x = dLse()}, row.b, row.h, position, 0, /*ofSink=*/true);
      return captures->endRow(0, 0);
    }
    if (lowest == kNone || !(highest < std::numeric_limits<double>::infinity())) return giveUp(captures);
    boundForward(max);
    if (captures) boundBackward(*captures);
  }

  /// Widens the bounds of dK and dV by the rounding of the parts of a query head, whose rows are computed.
  void endHead(int64_t b, int64_t h) {
    const int64_t first = sequences.firstKvOf(b, h / (problem.qHeads / problem.kvHeads));
    for (auto [parts, to, columns] :
         {std::tuple(&partsOfK, &bounds.dK, q.columns), {&partsOfV, &bounds.dV, v.columns}}) {
      addSizes(&(*to)[size_t(first * columns)], roundoffOf(args.q.dtype), parts->data(),
               sequences[b].kvLength * columns);
      std::fill(parts->begin(), parts->end(), 0);
    }
  }

private:
  /// Returns the error of the sink, and of an lse near it.
  double ofSink() const { return 0x1p-21 * (1 + std::fabs(sink)); }

  double dLse() const { return args.dLse ? readElement(args.dLse->data, DType::F32, index).real : 0; }

  /// `max`: the greatest score or sink, which weights refer to.
  void collect(double max) {
    elements.clear();
    highest = lowest = kNone, lowSum = highSum = errorSum = 0;
    bool isAny = false;
    const int64_t firstKv = sequences.firstKvOf(at.b, kvHead), length = problem.kvLen;
    const double ofQ = scaleOfRow(args, at.b, at.h, at.q, problem.qLen, sequences[at.b].qStart + at.q);
    largestOfV = 0;
    for (int64_t kv : live) {
      const int64_t rowOfTensor = sequences[at.b].kvStart + kv;
      Element e{.kv = kv, .kvRow = firstKv + kv};
      const double factor = ofQ * scaleOf(args.kScales, at.b, kvHead, kv, length, rowOfTensor);
      e.before = factor * dot(q.row(index), k.row(e.kvRow), q.columns);
      e.spread =
          by.isExact ? 0 : std::fabs(factor) * by.scores * sizeOfDot(q.row(index), k.row(e.kvRow), q.columns) + by.term;
      const float single = float(interpreter.score(e.before, at.b, at.h, position, kv));
      e.score = single, e.low = single, e.high = single;
      if (!by.isExact) {
        e.low = e.before - e.spread, e.high = e.before + e.spread;
        if (scores) {
          const Range range = scores->evaluate(e.low, e.high, at.b, at.h, position, kv);
          e.low = range.low.real, e.high = range.high.real;
          isAny |= std::isnan(e.low);
        }
        e.low = std::min(e.low, e.score), e.high = std::max(e.high, e.score);
      }
      const double behind = std::isfinite(e.score)
                                ? 0x1p-21 * (1 + (by.isExact ? 0 : std::fabs(e.score))) +
                                      (max == kNone ? 0 : 0x1p-20 * std::fabs(e.score - max)) + by.penalty
                                : 0;
      e.low -= behind, e.high += behind;
      highest = std::max(highest, e.high), lowest = std::max(lowest, e.low);
      e.ofV = scaleOf(args.vScales, at.b, kvHead, kv, length, rowOfTensor);
      largestOfV = std::max(largestOfV, std::fabs(e.ofV));
      elements.push_back(e);
    }
    if (isAny) highest = std::numeric_limits<double>::infinity();
    for (Element& e : elements) {
      e.weight = std::exp(e.score - max), e.lowest = std::exp(e.low - max);
      const double most = std::exp(std::min(700.0, e.high - max));
      e.error = std::max(most - e.weight, e.weight - e.lowest);
      lowSum += e.lowest, highSum += most, errorSum += e.error;
    }
    sinkWeight = sink == kNone ? 0 : std::exp(sink - max), sinkError = sinkWeight == 0 ? 0 : sinkWeight * ofSink();
    lowSum += sinkWeight - sinkError, highSum += sinkWeight + sinkError, errorSum += sinkError;
    lowSum = std::max(lowSum, std::numeric_limits<double>::min());
  }

  /// The row may be NaN, or have no live score.
  void giveUp(CaptureBounds* captures) {
    bounds.loose[size_t(index)] = true;
    bounds.lse[size_t(index)] = bounds.rowMax[size_t(index)] = kAny;
    std::fill_n(&bounds.out[size_t(index * v.columns)], v.columns, kAny);
    if (!captures) return;
    std::fill_n(&bounds.dQ[size_t(index * q.columns)], q.columns, kAny);
    for (const Element& e : elements) {
      std::fill_n(&bounds.dK[size_t(e.kvRow * q.columns)], q.columns, kAny);
      std::fill_n(&bounds.dV[size_t(e.kvRow * v.columns)], v.columns, kAny);
    }
    captures->giveUp(); // any element of a capture may be among those that the row reads
  }

  void boundForward(double max) {
    const double sum = forward.rowSum[size_t(index)], lse = forward.lse[size_t(index)];
    const double low = std::max(lowest, sink), high = std::max(highest, sink); // sums of weights are relative to these
    double ofLow = std::exp(sink - low), ofHigh = std::exp(sink - high);
    for (const Element& e : elements) ofLow += std::exp(e.low - low), ofHigh += std::exp(e.high - high);
    bounds.lse[size_t(index)] = std::max(high + std::log(ofHigh) - lse, lse - low - std::log(ofLow)) +
                                0x1p-21 * (1 + std::fabs(lse)) + (sinkWeight == 0 ? 0 : ofSink());
    bounds.rowMax[size_t(index)] = std::max(highest - max, max - lowest) + 0x1p-21 * (1 + std::fabs(max));
    const bool isLoose = errorSum >= 0.5 * lowSum;
    bounds.loose[size_t(index)] = isLoose;
    if (probWeight) return boundProbWeights(sum, lse);
    for (auto* of : {&farthest, &sizes, &moved, &squared}) std::fill(of->begin(), of->end(), 0);
    const double* out = &forward.out[size_t(index * v.columns)];
    for (const Element& e : elements) {
      const double* value = v.row(e.kvRow);
      const double p = e.weight / sum, move = std::min(1e6, e.error / lowSum), off = std::min(1.0, move),
                   least = by.leastWeight * largestOfV / sum;
      const double size = std::fabs(e.ofV) * ((by.weights + by.products) * std::min(1.0, p + off)) + least,
                   independent = by.weights * p * std::fabs(e.ofV);
      for (int64_t c = 0; c < v.columns; ++c) {
        const double away = std::fabs(e.ofV * value[c] - out[c]), rounding = independent * value[c];
        farthest[size_t(c)] = std::max(farthest[size_t(c)], away);
        moved[size_t(c)] += move * away;
        sizes[size_t(c)] += size * std::fabs(value[c]);
        squared[size_t(c)] += rounding * rounding;
      }
    }
    if (sinkWeight != 0)
      for (int64_t c = 0; c < v.columns; ++c) {
        farthest[size_t(c)] = std::max(farthest[size_t(c)], std::fabs(out[c]));
        moved[size_t(c)] += sinkError / lowSum * std::fabs(out[c]);
      }
    double rowSquares = 0;
    const double rounding = roundoffOf(by.results);
    for (int64_t c = 0; c < v.columns; ++c) {
      const double move = std::min(moved[size_t(c)], farthest[size_t(c)]), of = rounding * std::fabs(out[c]);
      bounds.out[size_t(index * v.columns + c)] = move + sizes[size_t(c)];
      const double small = sizes[size_t(c)] * by.products / (by.weights + by.products) + move;
      rowSquares += squared[size_t(c)] + of * of + small * small;
    }
    squares[size_t(index)] = isLoose ? 0 : rowSquares;
  }

  /// Bounds of a row whose scores are weights. `captures`: null for a forward pass.
  void boundWeights(CaptureBounds* captures) {
    std::fill(squared.begin(), squared.end(), 0);
    for (const Element& e : elements) {
      const double off = std::max(e.high - e.score, e.score - e.low);
      if (std::isnan(off)) return giveUp(captures);
      addShare(e, {e.score, off});
      if (captures) boundWeight(*captures, e, off);
    }
    endShares();
    if (captures) captures->endRow(0, 0);
  }

  /// Bounds of `out` of a row whose prob_mod is no multiple of the weight.
  void boundProbWeights(double sum, double lse) {
    std::fill(squared.begin(), squared.end(), 0);
    const double ofLse = 0x1p-22 * (1 + std::fabs(lse)); // the second walk normalises rows of any size by lse
    for (const Element& e : elements)
      if (e.score != kNone)
        addShare(e, probWeight->evaluate(e, e.weight / sum, weightsNear(e, sum, ofLse), at, position));
    endShares();
  }

  /// Adds an element to the bounds of `out`. `weight`: what multiplies v.
  void addShare(const Element& e, Off weight) {
    const double value = std::fabs(weight.value), ofV = std::fabs(e.ofV), rounded = ofV * by.weights * value,
                 size = ofV * (weight.error + by.products * (value + weight.error)) + rounded +
                        by.leastWeight * largestOfV;
    addSizes(&bounds.out[size_t(index * v.columns)], size, v.row(e.kvRow), v.columns);
    for (int64_t c = 0; c < v.columns; ++c) {
      const double of = v.row(e.kvRow)[c];
      squared[size_t(c)] += of * of * (rounded * rounded + (size - rounded) * (size - rounded));
    }
  }

  void endShares() {
    double rowSquares = 0;
    for (int64_t c = 0; c < v.columns; ++c) {
      const double of = roundoffOf(by.results) * std::fabs(forward.out[size_t(index * v.columns + c)]);
      rowSquares += squared[size_t(c)] + of * of;
    }
    squares[size_t(index)] = bounds.loose[size_t(index)] ? 0 : rowSquares;
  }

  /// Bounds of the gradients of an element whose score is a weight, which is `off` by so much.
  void boundWeight(CaptureBounds& captures, const Element& e, double off) {
    const double* d = dOut->row(index);
    const double product = dot(d, v.row(e.kvRow), v.columns);
    const double productError = by.products * sizeOfDot(d, v.row(e.kvRow), v.columns) + 0x1p-23 * std::fabs(product);
    const double slope =
        slopes ? derivative->evaluate(float(e.before), at.b, at.h, position, e.kv, /*grad=*/1).real : 1;
    const double slopeError = slopes ? offOf(slope, e) : 0, dS = scale * product * slope;
    double dSError =
        std::fabs(scale) * (productError * (std::fabs(slope) + slopeError) + std::fabs(product) * slopeError);
    dSError += (by.weights + by.products + 0x1p-22) * (std::fabs(dS) + dSError) +
               by.leastWeight * std::max(1.0, std::fabs(scale));
    addSizes(&bounds.dQ[size_t(index * q.columns)], dSError, k.row(e.kvRow), q.columns);
    addSizes(&bounds.dK[size_t(e.kvRow * q.columns)], dSError, q.row(index), q.columns);
    addSizes(&bounds.dV[size_t(e.kvRow * v.columns)],
             off + (by.weights + by.products) * (std::fabs(e.score) + off) + by.leastWeight, d, v.columns);
    captures.add({.low = e.before - e.spread,
                  .high = e.before + e.spread,
                  .score = e.before,
                  .weight = 1,
                  .x = product,
                  .weightError = 0,
                  .productError = productError},
                 at.b, at.h, position, e.kv);
  }

  /// Returns how far a weight of the row may be off, as outputs of the mod read it.
  double errorOfWeight(const Element& e, double sum, double ofLse) const {
    const double p = e.weight / sum;
    return std::min(1.0, std::max((e.weight + e.error) / lowSum - p, p - e.lowest / highSum) + ofLse * p + kLeast);
  }

  /// Kernels normalise by lse up to a size, and larger rows by their maximum and sum.
  static double ofLse(double lse) { return 0x1p-22 * (std::fabs(lse) <= 16384 ? 1 + std::fabs(lse) : 1); }

  /// Returns what a weight of the row may be.
  Range weightsNear(const Element& e, double sum, double ofLse) const {
    const double p = e.weight / sum, off = errorOfWeight(e, sum, ofLse);
    return {{.real = std::max(kLeast, p - off)}, {.real = std::min(1.0, p + off)}};
  }

  void boundBackward(CaptureBounds& captures) {
    const int64_t b = at.b, h = at.h;
    const double sum = forward.rowSum[size_t(index)], lse = forward.lse[size_t(index)];
    const double *d = dOut->row(index), *out = &forward.out[size_t(index * v.columns)];
    const double dLse = this->dLse(), sizeOfDelta = (dProb ? 0 : sizeOfDot(d, out, v.columns)) + std::fabs(dLse);
    double delta = (dProb ? 0 : dot(d, out, v.columns)) - dLse;
    const double ofLse = this->ofLse(lse);
    dP.clear();
    double deltaError = (0x1p-22 + by.products) * sizeOfDelta, deltaSquares = 0;
    for (int64_t c = 0; c < (dProb ? 0 : v.columns); ++c) {
      const double rounding = roundoffOf(by.results) * std::fabs(d[c] * out[c]);
      deltaError += rounding, deltaSquares += rounding * rounding;
    }
    for (const Element& e : elements) {
      const double product = dot(d, v.row(e.kvRow), v.columns);
      const double error = by.products * sizeOfDot(d, v.row(e.kvRow), v.columns) + 0x1p-23 * std::fabs(product);
      dP.push_back({product, error});
      if (dProb) {
        const double p = e.weight / sum, off = errorOfWeight(e, sum, ofLse);
        const Off slope = dProb->evaluate(e, p, weightsNear(e, sum, ofLse), at, position);
        const Off term{slope.value * product,
                       std::fabs(slope.value) * error + slope.error * (std::fabs(product) + error)};
        dP.back() = float(p) == 0 ? Off{0, std::fabs(term.value) + term.error} : term;
        delta += p * dP.back().value;
        const double moved = (p + off) * dP.back().error + (off + 0x1p-22 * p) * std::fabs(dP.back().value);
        deltaError += moved, deltaSquares += moved * moved;
        continue;
      }
      const double rounding = (by.weights * e.weight + by.leastWeight) / sum * std::fabs(product);
      deltaError += rounding + std::min(1.0, e.error / lowSum) * std::fabs(product - delta - dLse);
      deltaSquares += rounding * rounding;
    }
    if (!dProb) deltaError += std::min(1.0, sinkError / lowSum) * std::fabs(delta + dLse);
    given.assign(elements.size(), {});
    double ofOutputs = 0; // error of what outputs add to delta: that of lse, which all elements share
    for (size_t i = 0; ofProb && i < elements.size(); ++i) {
      const Element& e = elements[i];
      const double p = e.weight / sum, off = errorOfWeight(e, sum, ofLse);
      const auto near = [&](double reach) {
        return Range{{.real = std::max(kLeast, p - reach)}, {.real = std::min(1.0, p + reach)}};
      };
      // Delta has the gradient at the weight of f32, dS at the weight as it is rounded for the product with dout.
      Off byProb = ofProb->evaluate(e, p, near(off), at, position);
      const double term = p * byProb.value;
      ofOutputs += (p + off) * byProb.error + off * std::fabs(byProb.value) + (0x1p-22 + by.products) * std::fabs(term);
      delta += term;
      given[i] = {.prob = near(off + by.weights * (p + off) + by.leastWeight / sum)};
      byProb = ofProb->evaluate(e, p, given[i].prob, at, position);
      given[i].byProb = float(p) == 0 ? Off{0, std::fabs(byProb.value) + byProb.error} : byProb;
      if (ofScore) given[i].byScore = ofScore->evaluate(e, p, given[i].prob, at, position);
    }
    deltaError += ofOutputs, deltaSquares += ofOutputs * ofOutputs;
    const double pOfSink = sinkWeight / sum;
    const double sinkOff =
        std::max((sinkWeight + sinkError) / lowSum - pOfSink, pOfSink - (sinkWeight - sinkError) / highSum);
    captures.add({.weight = pOfSink, .x = -delta, .weightError = sinkOff + ofLse * pOfSink}, b, h, position, 0,
                 /*ofSink=*/true);
    for (const Element& e : elements) {
      const double* value = v.row(e.kvRow);
      const Given& more = given[size_t(&e - elements.data())];
      const Off& product = dP[size_t(&e - elements.data())];
      const double p = e.weight / sum, x = product.value - delta + more.byProb.value, g = p * x + more.byScore.value;
      const double pError = errorOfWeight(e, sum, ofLse);
      const double productError = product.error + more.byProb.error + 0x1p-23 * std::fabs(more.byProb.value);
      const double slope = slopes ? derivative->evaluate(float(e.before), b, h, position, e.kv, /*grad=*/1).real : 1;
      const double slopeError = slopes ? offOf(slope, e) : 0;
      const double error = pError * std::fabs(x) + std::min(1.0, p + pError) * (productError + deltaError) +
                           more.byScore.error + 0x1p-23 * std::fabs(more.byScore.value);
      const double dS = scale * g * slope;
      double dSError = std::fabs(scale) * (error * (std::fabs(slope) + slopeError) + std::fabs(g) * slopeError);
      // Kernels round the weight times the slope, then dS, with or without the scale.
      dSError += (2 * by.weights + 0x1p-22) * (std::fabs(dS) + dSError) +
                 by.leastWeight * std::max(1.0, std::fabs(scale)) * (1 + std::min(std::fabs(x), 1e300));
      if (e.weight == 0 && !std::isfinite(dSError)) dSError = kAny;
      const double ofProducts = by.products * (p == 0 ? 0 : std::fabs(dS));
      addSizes(&bounds.dQ[size_t(index * q.columns)], dSError + ofProducts, k.row(e.kvRow), q.columns);
      addSizes(&bounds.dK[size_t(e.kvRow * q.columns)], dSError + ofProducts, q.row(index), q.columns);
      Off share{std::min(1.0, p + pError), pError};
      if (dProb) {
        const Range prob = weightsNear(e, sum, ofLse);
        share = probWeight->evaluate(e, p, prob, at, position);
        share.value = std::fabs(share.value) + share.error;
        const double ofV = dot(d, value, v.columns),
                     error = by.products * sizeOfDot(d, value, v.columns) + 0x1p-23 * std::fabs(ofV);
        if (e.score != kNone)
          captures.add({.more = ofV, .moreError = error, .prob = prob, .p = p, .ofProb = true}, b, h, position, e.kv);
      }
      addSizes(&bounds.dV[size_t(e.kvRow * v.columns)],
               share.error + (by.weights + by.products) * share.value + by.leastWeight, d, v.columns);
      if (by.storesParts) {
        addTimes(&partsOfK[size_t(e.kv * q.columns)], dS, q.row(index), q.columns);
        addTimes(&partsOfV[size_t(e.kv * v.columns)], p, d, v.columns);
      }
      captures.add({.low = e.before - e.spread,
                    .high = e.before + e.spread,
                    .score = e.before,
                    .weight = p,
                    .x = x,
                    .more = more.byScore.value,
                    .weightError = pError,
                    .productError = productError,
                    .moreError = more.byScore.error},
                   b, h, position, e.kv);
      if (ofProb && e.score != kNone)
        captures.add({.low = e.low, .high = e.high, .score = e.score, .more = 1, .prob = more.prob, .p = p}, b, h,
                     position, e.kv);
    }
    captures.endRow(deltaError, std::sqrt(deltaSquares));
  }

  /// Returns how far the slope of score_mod may be from that of the reference.
  double offOf(double slope, const Element& e) const {
    const Range range = slopes->evaluate(e.before - e.spread, e.before + e.spread, at.b, at.h, position, e.kv);
    const double off = std::max(range.high.real - slope, slope - range.low.real);
    return std::isnan(off) && e.weight == 0 ? 0 : off;
  }

  const BackwardOperands& args;
  const Sequences& sequences;
  const AttentionResult& forward;
  const ProblemShape& problem;
  const Arithmetic& by;
  const Dense &q, &k, &v;
  const Dense* dOut;
  ErrorBounds& bounds;
  std::vector<double>& squares; ///< of the row's elements of out, for the RMSE
  ir::Interpreter interpreter;
  std::optional<RangeEvaluator> scores, slopes;
  std::optional<ir::Evaluator> derivative;
  std::optional<OutputTerm> probWeight, dProb; // set if prob_mod is no multiple of the weight
  std::optional<OutputTerm> ofProb, ofScore;   // set if outputs of the mod have gradients
  double scale;

  struct Given {
    Range prob;
    Off byProb, byScore;
  };
  std::vector<Given> given; // by outputs of the mod to the row's elements
  QueryRow at = {};
  int64_t index = 0, position = 0, kvHead = 0;
  double highest = 0, lowest = 0, lowSum = 0, highSum = 0, errorSum = 0, largestOfV = 0;
  double sink = 0, sinkWeight = 0, sinkError = 0; ///< of the row
  std::vector<int64_t> live;
  std::vector<Element> elements;
  std::vector<double> farthest, sizes, moved, squared;
  std::vector<Off> dP; ///< dot(dout, v); with prob_mod's derivative if it is no multiple of the weight
  std::vector<double> partsOfK, partsOfV; ///< of a query head, if the arithmetic stores them: [KV_LEN, columns]
};

} // namespace

double roundoffOf(DType dtype) {
  return dtype == DType::BF16 ? 0x1p-8 : dtype == DType::F16 ? 0x1p-11 : dtype == DType::E4M3 ? 0x1p-4 : 0x1p-24;
}

void addRounding(std::vector<double>& bounds, const std::vector<double>& of, DType stored) {
  const double relative = roundoffOf(stored), least = stored == DType::F16 ? 0x1p-25 : kLeast;
  for (size_t i = 0; i < bounds.size(); ++i)
    if (std::isfinite(of[i])) bounds[i] += relative * (std::fabs(of[i]) + bounds[i]) + least;
}

Arithmetic arithmeticOf(DType q, DType results, bool tf32) {
  Arithmetic by{.results = results};
  if (q == DType::F32) {
    if (tf32) by.scores = by.products = 0x1p-10;
    return by;
  }
  by.weights = roundoffOf(q);
  // The tensor cores' sums of products of e4m3 keep some 13 bits: scores of normal operands were off by up to 2^-11.6
  // of the sum of the products' sizes. The smallest weights are no normal numbers.
  if (q == DType::E4M3) by.scores = 0x1p-11, by.products = 0x1p-12, by.leastWeight = 0x1p-14;
  if (q == DType::F16) by.leastWeight = 0x1p-25;
  return by;
}

Expected<ErrorBounds> errorBounds(const ir::Module& module, const Captures& captures, const BackwardOperands& args,
                                  const GradientResult& of, const Arithmetic& arithmetic,
                                  const ir::CaptureGradients& wanted) {
  const AttentionResult& forward = of.forward;
  const ProblemShape& problem = forward.problem;
  ATTNC_TRY_AS(bindings, ir::bind(module, captures, problem, &args));
  const bool isBackward = !of.dQ.empty();
  ErrorBounds bounds{.out = std::vector<double>(forward.out.size()),
                     .lse = std::vector<double>(forward.lse.size()),
                     .rowMax = std::vector<double>(forward.lse.size()),
                     .loose = std::vector<char>(forward.lse.size()),
                     .dQ = std::vector<double>(of.dQ.size()),
                     .dK = std::vector<double>(of.dK.size()),
                     .dV = std::vector<double>(of.dV.size()),
                     .captures = {}};
  const Sequences sequences(module, *bindings, problem, args);
  const Dense q(args.q), k(args.k), v(args.v);
  const std::optional<Dense> dOut = isBackward ? std::optional<Dense>(args.dOut) : std::nullopt;
  std::vector<double> squares(forward.lse.size());
  const auto workerOf = [&] {
    return BoundedRows(module, *bindings, args, sequences, of, arithmetic, q, k, v, dOut ? &*dOut : nullptr, bounds,
                       squares);
  };
  if (!isBackward) {
    parallelFor(int64_t(squares.size()), [&](int64_t begin, int64_t end) {
      BoundedRows worker = workerOf();
      for (int64_t i = begin; i < end; ++i)
        if (const auto row = sequences.rowAt(i)) worker.compute(*row, nullptr);
    });
  } else {
    // As in gradients(), a KV head is the unit of work.
    const bool isShared = args.k.shape[0] == 1;
    const int64_t batches = isShared ? 1 : problem.batch, group = problem.qHeads / problem.kvHeads;
    std::vector<CaptureBounds> parts(size_t(batches * problem.kvHeads),
                                     {module, *bindings, wanted, arithmetic.weights});
    parallelFor(int64_t(parts.size()), [&](int64_t begin, int64_t end) {
      BoundedRows worker = workerOf();
      for (int64_t i = begin; i < end; ++i) {
        const int64_t batch = i / problem.kvHeads, head = i % problem.kvHeads;
        for (int64_t b = isShared ? 0 : batch; b < (isShared ? problem.batch : batch + 1); ++b)
          for (int64_t h = head * group; h < (head + 1) * group; ++h) {
            for (int64_t row = 0; row < sequences[b].qLength; ++row) worker.compute({b, h, row}, &parts[size_t(i)]);
            if (arithmetic.storesParts) worker.endHead(b, h);
          }
      }
    });
    const DType results = args.q.dtype;
    addRounding(bounds.dQ, of.dQ, results);
    addRounding(bounds.dK, of.dK, results);
    addRounding(bounds.dV, of.dV, results);
    for (size_t i = 1; i < parts.size(); ++i) parts[0] += parts[i];
    for (size_t i = 0; i < wanted.captures.size() && !parts.empty(); ++i) {
      std::vector<double>& limits = bounds.captures[wanted.captures[i]] = parts[0].bounds(i);
      // Gradients of a low-rank term's numbers come from further columns of dq and dk.
      if (arithmetic.term > 0) addRounding(limits, of.captures.at(wanted.captures[i]), results);
    }
  }
  addRounding(bounds.out, forward.out, arithmetic.results);
  double sum = 0;
  int64_t rows = 0;
  for (size_t i = 0; i < squares.size(); ++i) {
    sum += squares[i];
    rows += !bounds.loose[i];
  }
  // The roundings of few rows may all be large.
  if (rows) bounds.rmse = std::sqrt(sum / double(rows * v.columns)) * (1 + 1 / std::sqrt(double(rows)));
  return bounds;
}

} // namespace attnc::reference
