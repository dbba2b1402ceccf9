#include "verify.h"

#include "ir/element.h"
#include "ir/walk.h"
#include "reference/gradient_tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace attnc::cli {
namespace {

double elementOf(const HostTensor& tensor, int64_t index) {
  return ir::readElement(tensor.bytes.data(), tensor.dtype, index).real;
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

/// The largest Euclidean norm of a row of the last axis.
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

/// Which elements may be NaN where the reference has a number.
using MayBeNan = std::function<bool(int64_t index)>;

/// `passedOver`: counts those that are.
CheckedOutput check(const HostTensor& got, const std::vector<double>& want, const reference::Tolerance& tolerance,
                    const MayBeNan& mayBeNan = {}, int64_t* passedOver = nullptr) {
  CheckedOutput result{reference::Comparison(tolerance), tolerance.absolute};
  for (size_t i = 0; i < want.size(); ++i) {
    const double element = elementOf(got, int64_t(i));
    if (mayBeNan && !std::isfinite(element) && std::isfinite(want[i]) && mayBeNan(int64_t(i)))
      ++*passedOver;
    else
      result.comparison.add(element, want[i]);
  }
  return result;
}

CheckedOutput check(const HostTensor& got, const std::vector<double>& want, double maxLimit, double rmseLimit,
                    const MayBeNan& mayBeNan = {}, int64_t* passedOver = nullptr) {
  CheckedOutput result = check(got, want, {.absolute = maxLimit}, mayBeNan, passedOver);
  result.rmseLimit = rmseLimit;
  return result;
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

/// Whether a column of v is not finite somewhere, by [batch, KV head, column].
std::vector<bool> nonFiniteColumns(const HostTensor& v) {
  const int64_t rows = v.shape[2], columns = v.shape[3];
  std::vector<bool> found(size_t(v.shape[0] * v.shape[1] * columns));
  for (int64_t i = 0; i < v.elements(); ++i)
    if (!std::isfinite(elementOf(v, i))) found[size_t(i / columns / rows * columns + i % columns)] = true;
  return found;
}

/// The size of elements as gradients' errors go by it: that of most, or of outliers that are more than five times that.
template <class Elements> double elementSize(const Elements& elements) {
  const Size size = sizeOf(elements);
  return std::max(size.rms, size.max / 5);
}

reference::GradientScales scalesOf(const HostOperands& operands, const reference::GradientResult& wanted, double scale,
                                   bool isCoarse) {
  return {.dtype = operands.q.dtype,
          .isCoarse = isCoarse,
          .scale = scale,
          .headDimV = operands.v.shape[3],
          .scoreSlope = wanted.scoreSlope,
          .q = elementSize(operands.q),
          .k = elementSize(operands.k),
          .v = elementSize(operands.v),
          .out = elementSize(wanted.forward.out),
          .dOut = elementSize(operands.dOut),
          .dLse = operands.dLse ? elementSize(*operands.dLse) : 0};
}

/// Unit roundoff; see Verification.
double roundoff(DType dtype, bool tf32) {
  if (dtype == DType::BF16) return 0x1p-8;
  if (dtype == DType::F16) return 0x1p-11;
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
  if (passedOver) text += fmt::format("            {} elements are NaN by that, and were not compared\n", passedOver);
  return text;
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
  bool coarse = tf32 || ir::uses(mod.module(), ir::Op::TanhApprox);
  double product = scale * largestRow(operands.q) * largestRow(operands.k);
  double s = (coarse ? 0x1p-10 : 0x1p-20) * (product + sizeOf(want.rowMax).max);

  Size v = sizeOf(operands.v);
  double spread = std::max(sizeOf(want.out).rms, v.rms / std::sqrt(double(std::max<int64_t>(1, want.problem.kvLen))));
  auto checkRows = [&](const HostTensor& rows, const std::vector<double>& expected) {
    double limit = s + 0x1p-20 * (1 + sizeOf(expected).max);
    return check(rows, expected, limit, limit);
  };
  int64_t passedOver = 0;
  const std::vector<bool> ofColumn = nonFiniteColumns(operands.v);
  const auto& outShape = got.out.shape;
  const auto reachesOut = [&](int64_t i) {
    const int64_t column = i % outShape[3], h = i / outShape[3] / outShape[2] % outShape[1],
                  b = i / outShape[3] / outShape[2] / outShape[1], kvHeads = operands.v.shape[1];
    return ofColumn[size_t(((operands.v.shape[0] == 1 ? 0 : b) * kvHeads + h / (outShape[1] / kvHeads)) * outShape[3] +
                           column)];
  };
  Verification result{
      .out = check(got.out, want.out, (2 * u + 2 * s) * v.max, 2 * u * spread + 2 * s * v.rms, reachesOut, &passedOver),
      .lse = checkRows(got.lse, want.lse),
      .rowMax = checkRows(got.rowMax, want.rowMax)};
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
        name, check(got.gradients.find(name)->second, expected, limit, reachesAll, &result.passedOver));
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
