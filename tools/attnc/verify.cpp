#include "verify.h"

#include "attnc/explain.h"
#include "reference/gradient_tolerance.h"
#include "support/element.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace attnc::cli {
namespace {

double elementOf(const HostTensor& tensor, int64_t index) {
  return readElement(tensor.bytes.data(), tensor.dtype, index).real;
}

/// Largest magnitude and root mean square of the finite elements.
struct Size {
  double max = 0, rms = 0;
};

template <class Element> Size sizeOf(int64_t count, Element element) {
  Size size;
  double squares = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < count; ++i) {
    double value = element(i);
    if (!std::isfinite(value)) continue;
    size.max = std::max(size.max, std::fabs(value));
    squares += value * value;
    ++finite;
  }
  size.rms = finite ? std::sqrt(squares / double(finite)) : 0;
  return size;
}

Size sizeOf(const HostTensor& tensor) {
  return sizeOf(tensor.elements(), [&](int64_t i) { return elementOf(tensor, i); });
}

Size sizeOf(const std::vector<double>& values) {
  return sizeOf(int64_t(values.size()), [&](int64_t i) { return values[size_t(i)]; });
}

/// Returns the largest factor of elements of e4m3; 1 without factors.
double largestScale(const std::optional<HostTensor>& scales) { return scales ? sizeOf(*scales).max : 1; }

/// Returns the largest Euclidean norm of a row along the last axis.
double largestRow(const HostTensor& tensor) {
  int64_t width = tensor.shape.back();
  double largest = 0;
  for (int64_t row = 0; row < tensor.elements() / std::max<int64_t>(width, 1); ++row) {
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += std::pow(elementOf(tensor, row * width + i), 2);
    largest = std::max(largest, std::sqrt(squares));
  }
  return largest;
}

/// Which elements may be NaN although the reference has a number.
using MayBeNan = std::function<bool(int64_t index)>;

/// `byRow` is an additional tolerance for the elements of each row; none: 0. `passedOver` counts the elements skipped
/// as NaN.
CheckedOutput check(const HostTensor& got, const std::vector<double>& want, const reference::Tolerance& tolerance,
                    const std::vector<double>& byRow = {}, const MayBeNan& mayBeNan = {},
                    int64_t* passedOver = nullptr) {
  CheckedOutput result{reference::Comparison(tolerance), tolerance.absolute + sizeOf(byRow).max};
  const size_t width = byRow.empty() ? 0 : want.size() / byRow.size();
  for (size_t i = 0; i < want.size(); ++i) {
    const double element = elementOf(got, int64_t(i));
    if (mayBeNan && !std::isfinite(element) && std::isfinite(want[i]) && mayBeNan(int64_t(i)))
      ++*passedOver;
    else
      result.comparison.add(element, want[i], width ? byRow[i / width] : 0);
  }
  return result;
}

/// Returns the maximum over rows of the row's largest number, in units of the largest power of two that divides all its
/// numbers. Infinite if some number is not finite. 1: all numbers are -1, 0 or 1, or these times a power of two.
template <class Element> double largestSpan(int64_t count, int64_t width, Element element) {
  double span = 1;
  for (int64_t i = 0; i < count; i += width) {
    double most = 0, least = std::numeric_limits<double>::infinity();
    for (int64_t at = i; at < i + width; ++at) {
      const double value = std::fabs(element(at));
      if (value == 0) continue;
      if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
      int exponent;
      const int64_t bits = int64_t(std::ldexp(std::frexp(value, &exponent), 53));
      most = std::max(most, value);
      least = std::min(least, std::ldexp(double(bits & -bits), exponent - 53));
    }
    if (most > 0) span = std::max(span, most / least);
  }
  return span;
}

double largestSpan(const HostTensor& tensor) {
  return largestSpan(tensor.elements(), tensor.shape.back(), [&](int64_t i) { return elementOf(tensor, i); });
}

/// Whether scores are exact before score_mod: all partial sums of products are exact in f32, and factors in TF32.
bool areProductsExact(const HostOperands& operands, double scale) {
  const double q = largestSpan(operands.q), k = largestSpan(operands.k),
               factor = largestSpan(1, 1, [&](int64_t) { return scale; });
  return std::max(q, k) <= 0x1p11 && double(operands.q.shape[3]) * q * k * factor <= 0x1p24 && !operands.kScales &&
         operands.q.dtype != DType::E4M3;
}

int64_t nonFiniteRows(const HostTensor& tensor) {
  if (tensor.elements() == 0) return 0;
  const int64_t width = tensor.shape.back();
  int64_t count = 0;
  for (int64_t row = 0; row < tensor.elements() / width; ++row) {
    int64_t i = 0;
    while (i < width && std::isfinite(elementOf(tensor, row * width + i))) ++i;
    count += i < width;
  }
  return count;
}

/// Returns whether a column of v has a number that is not finite, by [batch, KV head, column].
std::vector<bool> nonFiniteColumns(const HostTensor& v) {
  const int64_t rows = v.shape[2], columns = v.shape[3];
  std::vector<bool> found(size_t(v.shape[0] * v.shape[1] * columns));
  for (int64_t i = 0; i < v.elements(); ++i)
    if (!std::isfinite(elementOf(v, i))) found[size_t(i / columns / rows * columns + i % columns)] = true;
  return found;
}

/// Returns the element size that scales the errors of gradients: that of most elements, or of outliers that are more
/// than five times larger.
template <class Elements> double elementSize(const Elements& elements) {
  const Size size = sizeOf(elements);
  return std::max(size.rms, size.max / 5);
}

/// Returns the largest lse by which backward kernels normalise; templates/algo/gradients.cuh handles larger ones apart.
double largestLse(const std::vector<double>& lse) {
  constexpr double kMost = 4096;
  return sizeOf(int64_t(lse.size()), [&](int64_t i) { return std::fabs(lse[size_t(i)]) <= kMost ? lse[size_t(i)] : 0; })
      .max;
}

reference::GradientScales scalesOf(const HostOperands& operands, const reference::GradientResult& wanted, double scale,
                                   bool isCoarse) {
  return {.dtype = operands.q.dtype,
          .isCoarse = isCoarse,
          .scale = scale,
          .headDimV = operands.v.shape[3],
          .scoreSlope = wanted.scoreSlope,
          .lse = largestLse(wanted.forward.lse),
          .q = elementSize(operands.q),
          .k = elementSize(operands.k),
          .v = elementSize(operands.v),
          .out = elementSize(wanted.forward.out),
          .dOut = elementSize(operands.dOut),
          .dLse = operands.dLse ? elementSize(*operands.dLse) : 0};
}

/// Returns the unit roundoff; see Verification.
double roundoff(DType dtype, bool tf32) {
  if (dtype == DType::BF16) return 0x1p-8;
  if (dtype == DType::F16) return 0x1p-11;
  if (dtype == DType::E4M3) return 0x1p-5; // of weights
  return tf32 ? 0x1p-10 : 0x1p-20;
}

std::string line(const std::string& name, const CheckedOutput& output) {
  const reference::Comparison& comparison = output.comparison;
  std::string misplaced = comparison.misplaced() ? fmt::format(", {} infinite or NaN", comparison.misplaced()) : "";
  std::string rmseLimit = std::isfinite(output.rmseLimit) ? fmt::format(" (limit {:.1e})", output.rmseLimit) : "";
  std::string text =
      fmt::format("verify      {:7} RMSE {:.3e}{}, max error {:.3e} (limit {:.1e}){}: {}\n", name, comparison.rmse(),
                  rmseLimit, comparison.maxError(), output.maxLimit, misplaced, output.holds() ? "ok" : "DIFFERS");
  if (!comparison.holds()) text += fmt::format("            {}\n", comparison.firstBadText());
  return text;
}

} // namespace

std::string Verification::text() const {
  std::string text = line("out", out) + line("lse", lse) + line("row max", rowMax);
  for (const auto& [name, output] : gradients) text += line(name, output);
  for (const auto& [name, rows] : nonFiniteRows)
    text +=
        fmt::format("note        {} of {} {} infinite or NaN: where a mask hides them, kernels give NaN all the same\n",
                    rows == 1 ? "a row" : fmt::format("{} rows", rows), name, rows == 1 ? "is" : "are");
  if (roundedRows)
    text += fmt::format(
        "note        {} {} of scores so large that rounding decides their weights: out was not compared there\n",
        roundedRows, roundedRows == 1 ? "row is" : "rows are");
  if (passedOver) text += fmt::format("            {} elements are NaN by that, and were not compared\n", passedOver);
  return text;
}

JsonReport Verification::json() const {
  JsonReport outputs = JsonReport::object();
  const auto add = [&](const std::string& name, const CheckedOutput& output) {
    JsonReport one{{"holds", output.holds()},
                   {"rmse", output.comparison.rmse()},
                   {"maxError", output.comparison.maxError()},
                   {"maxLimit", output.maxLimit}};
    if (std::isfinite(output.rmseLimit)) one["rmseLimit"] = output.rmseLimit;
    if (output.comparison.misplaced()) one["misplaced"] = output.comparison.misplaced();
    outputs[name] = std::move(one);
  };
  add("out", out);
  add("lse", lse);
  add("row_max", rowMax);
  for (const auto& [name, output] : gradients) add(name, output);
  return {
      {"holds", holds()}, {"outputs", std::move(outputs)}, {"roundedRows", roundedRows}, {"passedOver", passedOver}};
}

bool Verification::holds() const {
  return out.holds() && lse.holds() && rowMax.holds() &&
         std::all_of(gradients.begin(), gradients.end(), [](const auto& named) { return named.second.holds(); });
}

Verification verify(const Mod& mod, const HostOperands& operands, const RunOptions& options, const RunResult& got,
                    const reference::GradientResult& wanted) {
  const reference::AttentionResult& want = wanted.forward;
  DType dtype = operands.q.dtype;
  bool tf32 = dtype == DType::F32 && options.kernel.tf32;
  double scale = std::fabs(options.scale ? *options.scale : 1 / std::sqrt(double(operands.q.shape[3])));
  double u = roundoff(dtype, tf32);
  const ScoreFacts facts = scoreFactsOf(mod);
  const bool isFp8 = dtype == DType::E4M3; // its sums of products keep some 13 bits
  bool coarse = tf32 || facts.approximates;
  const bool exactProducts = areProductsExact(operands, scale), exactScores = exactProducts && facts.addsAtMost;
  const double ofSize = exactScores ? 0 : coarse ? 0x1p-10 : isFp8 ? 0x1p-12 : 0x1p-20;
  // Kernels count positions of a penalty by distance from a row of their tile, so near keys cost it up to 256 slopes.
  const auto slope = distanceSlope(mod, operands.captures, want.problem);
  const auto lowRank = dtype == DType::BF16 ? lowRankSize(mod, operands.captures, want.problem) : 0.;
  const double common = (exactProducts ? 0x1p-16 : ofSize * scale * largestRow(operands.q) * largestRow(operands.k)) *
                            largestScale(operands.qScales) * largestScale(operands.kScales) +
                        256 * 0x1p-22 * (slope ? *slope : 0) +
                        std::max(0x1p-14, double(options.kernel.lowRankError)) * (lowRank ? *lowRank : 0);
  std::vector<double> s; // by row
  for (double score : want.rowMax) s.push_back(common + ofSize * (std::isfinite(score) ? std::fabs(score) : 0));

  Size v = sizeOf(operands.v);
  v.max *= largestScale(operands.vScales), v.rms *= largestScale(operands.vScales);
  double spread = std::max(sizeOf(want.out).rms, v.rms / std::sqrt(double(std::max<int64_t>(1, want.problem.kvLen))));
  auto checkRows = [&](const HostTensor& rows, const std::vector<double>& expected) {
    return check(rows, expected, {.absolute = 0x1p-20, .relative = 0x1p-20}, s);
  };
  std::vector<double> ofOut, seen; // of s
  for (double each : s) {
    if (each < 0.5) seen.push_back(each);
    ofOut.push_back(each < 0.5 ? 2 * each * v.max : std::numeric_limits<double>::infinity());
  }
  int64_t passedOver = 0;
  const std::vector<bool> ofColumn = nonFiniteColumns(operands.v);
  const auto& outShape = got.out.shape;
  const auto reachesOut = [&](int64_t i) {
    const int64_t column = i % outShape[3], h = i / outShape[3] / outShape[2] % outShape[1],
                  b = i / outShape[3] / outShape[2] / outShape[1], kvHeads = operands.v.shape[1];
    return ofColumn[size_t(((operands.v.shape[0] == 1 ? 0 : b) * kvHeads + h / (outShape[1] / kvHeads)) * outShape[3] +
                           column)];
  };
  Verification result{.out = check(got.out, want.out, {.absolute = 2 * u * v.max}, ofOut, reachesOut, &passedOver),
                      .lse = checkRows(got.lse, want.lse),
                      .rowMax = checkRows(got.rowMax, want.rowMax)};
  // Errors of fp8 scores are independent: they move a mean as roundings of weights do.
  result.out.rmseLimit = 2 * u * spread + 2 * sizeOf(seen).rms * (isFp8 ? spread : v.rms);
  result.roundedRows = int64_t(s.size() - seen.size());
  if (const int64_t rows = nonFiniteRows(operands.v)) result.nonFiniteRows.emplace_back("v", rows);
  result.passedOver = passedOver;
  if (!options.backward) return result;
  for (auto [name, tensor] : {std::pair("q", &operands.q), {"k", &operands.k}, {"dout", &operands.dOut}})
    if (const int64_t rows = nonFiniteRows(*tensor)) result.nonFiniteRows.emplace_back(name, rows);
  const auto reachesAll = [&](int64_t) { return !result.nonFiniteRows.empty(); };
  const reference::GradientTolerance tolerance(scalesOf(operands, wanted, scale, coarse));
  const auto add = [&](const std::string& name, const std::vector<double>& expected,
                       const reference::Tolerance& limit) {
    result.gradients.emplace_back(
        name, check(got.gradients.find(name)->second, expected, limit, {}, reachesAll, &result.passedOver));
  };
  add("dq", wanted.dQ, tolerance.dQ(wanted.dQ));
  add("dk", wanted.dK, tolerance.dK(wanted.dK));
  add("dv", wanted.dV, tolerance.dV(wanted.dV));
  for (const auto& [name, expected] : wanted.captures) {
    const DType dtype = got.gradients.find("d_" + name)->second.dtype;
    add("d_" + name, expected, tolerance.capture(expected, wanted.captureSquares.at(name), dtype));
  }
  return result;
}

} // namespace attnc::cli
