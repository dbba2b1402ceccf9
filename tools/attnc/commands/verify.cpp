#include "commands/verify.h"

#include "support/element.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace attnc::cli {
namespace {

double elementOf(const HostTensor& tensor, int64_t index) {
  return readElement(tensor.bytes.data(), tensor.dtype, index).real;
}

/// Which elements may be NaN although the reference has a number.
using MayBeNan = std::function<bool(int64_t index)>;

/// `bounds`: of the error of each element; NaN: it is not compared. `counts`: by row, whether errors count in the RMSE.
/// `passedOver` counts the elements skipped as NaN.
CheckedOutput check(const HostTensor& got, const std::vector<double>& want, const std::vector<double>& bounds,
                    const std::vector<char>& loose = {}, const MayBeNan& mayBeNan = {}, int64_t* passedOver = nullptr) {
  CheckedOutput result{reference::Comparison({})};
  const size_t width = loose.empty() ? 0 : want.size() / loose.size();
  for (size_t i = 0; i < want.size(); ++i) {
    const double element = elementOf(got, int64_t(i));
    if (std::isnan(bounds[i])) continue;
    if (mayBeNan && !std::isfinite(element) && std::isfinite(want[i]) && mayBeNan(int64_t(i))) {
      ++*passedOver;
      continue;
    }
    result.comparison.add(element, want[i], bounds[i], !width || !loose[i / width]);
    result.maxLimit = std::max(result.maxLimit, bounds[i]);
  }
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

/// Returns whether a column of v has a number that is not finite, by [batch, KV head, column].
std::vector<bool> nonFiniteColumns(const HostTensor& v) {
  const int64_t rows = v.shape[2], columns = v.shape[3];
  std::vector<bool> found(size_t(v.shape[0] * v.shape[1] * columns));
  for (int64_t i = 0; i < v.elements(); ++i)
    if (!std::isfinite(elementOf(v, i))) found[size_t(i / columns / rows * columns + i % columns)] = true;
  return found;
}

std::string line(const std::string& name, const CheckedOutput& output) {
  const reference::Comparison& comparison = output.comparison;
  std::string misplaced = comparison.misplaced() ? fmt::format(", {} infinite or NaN", comparison.misplaced()) : "";
  std::string rmseLimit = std::isfinite(output.rmseLimit) ? fmt::format(" (limit {:.1e})", output.rmseLimit) : "";
  std::string text = fmt::format("verify      {:7} RMSE {:.3e}{}, max error {:.3e} (up to {:.2f} of a limit){}: {}\n",
                                 name, comparison.rmse(), rmseLimit, comparison.maxError(), comparison.largestShare(),
                                 misplaced, output.holds() ? "ok" : "DIFFERS");
  if (!comparison.holds()) text += fmt::format("            {}\n", comparison.firstBadText());
  return text;
}

} // namespace

std::string Verification::text() const {
  std::string text = line("out", out);
  if (hasSoftmax) text += line("lse", lse) + line("row max", rowMax);
  for (const auto& [name, output] : gradients) text += line(name, output);
  for (const auto& [name, rows] : nonFiniteRows)
    text +=
        fmt::format("note        {} of {} {} infinite or NaN: where a mask hides them, kernels give NaN all the same\n",
                    rows == 1 ? "a row" : fmt::format("{} rows", rows), name, rows == 1 ? "is" : "are");
  if (roundedRows)
    text += fmt::format("note        rounding decides the weights of {} {}: out has wide limits there\n", roundedRows,
                        roundedRows == 1 ? "row" : "rows");
  if (passedOver) text += fmt::format("            {} elements are NaN by that, and were not compared\n", passedOver);
  return text;
}

JsonReport Verification::json() const {
  JsonReport outputs = JsonReport::object();
  const auto add = [&](const std::string& name, const CheckedOutput& output) {
    JsonReport one{{"holds", output.holds()},
                   {"rmse", output.comparison.rmse()},
                   {"maxError", output.comparison.maxError()},
                   {"maxLimit", output.maxLimit},
                   {"largestShare", output.comparison.largestShare()}};
    if (std::isfinite(output.rmseLimit)) one["rmseLimit"] = output.rmseLimit;
    if (output.comparison.misplaced()) one["misplaced"] = output.comparison.misplaced();
    outputs[name] = std::move(one);
  };
  add("out", out);
  if (hasSoftmax) add("lse", lse), add("row_max", rowMax);
  for (const auto& [name, output] : gradients) add(name, output);
  return {
      {"holds", holds()}, {"outputs", std::move(outputs)}, {"roundedRows", roundedRows}, {"passedOver", passedOver}};
}

double Verification::largestShare() const {
  double share = std::max({out.comparison.largestShare(), lse.comparison.largestShare(),
                           rowMax.comparison.largestShare(), out.comparison.rmse() / std::max(out.rmseLimit, 1e-300)});
  for (const auto& [name, output] : gradients) share = std::max(share, output.comparison.largestShare());
  return share;
}

bool Verification::holds() const {
  return out.holds() && lse.holds() && rowMax.holds() &&
         std::all_of(gradients.begin(), gradients.end(), [](const auto& named) { return named.second.holds(); });
}

Expected<Verification> verify(const Mod& mod, const HostOperands& operands, const ProblemOptions& options,
                              const RunResult& got, const reference::GradientResult& wanted) {
  const reference::AttentionResult& want = wanted.forward;
  ATTNC_TRY_AS(bounds, boundsOf(mod, operands, options, wanted));
  int64_t passedOver = 0;
  const std::vector<bool> ofColumn = nonFiniteColumns(operands.v);
  const auto& outShape = got.out.shape;
  const auto reachesOut = [&](int64_t i) {
    const int64_t column = i % outShape[3], h = i / outShape[3] / outShape[2] % outShape[1],
                  b = i / outShape[3] / outShape[2] / outShape[1], kvHeads = operands.v.shape[1];
    return ofColumn[size_t(((operands.v.shape[0] == 1 ? 0 : b) * kvHeads + h / (outShape[1] / kvHeads)) * outShape[3] +
                           column)];
  };
  Verification result{.out = check(got.out, want.out, bounds->out, bounds->loose, reachesOut, &passedOver),
                      .lse = {reference::Comparison({})},
                      .rowMax = {reference::Comparison({})},
                      .hasSoftmax = got.hasSoftmax};
  if (got.hasSoftmax) {
    result.lse = check(got.lse, want.lse, bounds->lse);
    result.rowMax = check(got.rowMax, want.rowMax, bounds->rowMax);
  }
  result.out.rmseLimit = bounds->rmse;
  result.roundedRows = std::count(bounds->loose.begin(), bounds->loose.end(), 1);
  if (const int64_t rows = nonFiniteRows(operands.v)) result.nonFiniteRows.emplace_back("v", rows);
  result.passedOver = passedOver;
  for (const auto& [what, shape, values] : want.reduced) {
    double largest = 0;
    for (double value : values)
      if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
    const bool isExact = operands.q.dtype == DType::F32 && !options.kernel.tf32;
    const std::vector<double> limits(values.size(), std::max(largest, 1e-6) * (isExact ? 0x1p-12 : 0x1p-7));
    result.gradients.emplace_back(what.name, check(got.gradients.find(what.name)->second, values, limits));
  }
  if (!options.backward) return result;
  for (auto [name, tensor] : {std::pair("q", &operands.q), {"k", &operands.k}, {"dout", &operands.dOut}})
    if (const int64_t rows = nonFiniteRows(*tensor)) result.nonFiniteRows.emplace_back(name, rows);
  const auto reachesAll = [&](int64_t) { return !result.nonFiniteRows.empty(); };
  const auto add = [&](const std::string& name, const std::vector<double>& expected,
                       const std::vector<double>& limits) {
    result.gradients.emplace_back(
        name, check(got.gradients.find(name)->second, expected, limits, {}, reachesAll, &result.passedOver));
  };
  add("dq", wanted.dQ, bounds->dQ);
  add("dk", wanted.dK, bounds->dK);
  add("dv", wanted.dV, bounds->dV);
  for (const auto& [name, expected] : wanted.captures) {
    std::vector<double>& limits = bounds->captures.at(name);
    reference::addRounding(limits, expected, got.gradients.find("d_" + name)->second.dtype);
    add("d_" + name, expected, limits);
  }
  return result;
}

} // namespace attnc::cli
