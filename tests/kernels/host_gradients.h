// What tests of backward kernels on the host share: parameters of their stages, and comparisons of gradients.
#pragma once

#include "attnc/tensor.h"
#include "plan/plan.h"
#include "reference/error_bounds.h"
#include "support/element.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace attnc::test {

/// Returns the type of a stage's first parameter, in C++.
inline std::string backwardParamsOf(const plan::Stage& stage) {
  const std::string& name = stage.templateName;
  return name == "backward_captures_out.cu"                                            ? "CaptureOutputParams"
         : name.starts_with("backward_captures") || name.starts_with("backward_sinks") ? "CaptureParams"
         : name == "backward_diagonals.cu"                                             ? "DiagonalParams"
         : name == "reductions_naive.cu"                                               ? "naive::Params"
         : name == "reductions_sm80.cu"                                                ? "ReductionParams"
         : name == "reductions_sm90.cu"                                                ? "ReductionParamsSm90"
         : name == "low_rank.cu"                                                       ? "LowRankParams"
         : name == "low_rank_gradients.cu"                                             ? "LowRankGradientParams"
         : name == "backward_sm80.cu" || name == "backward_finish_sm80.cu"             ? "BackwardParamsSm80"
         : name.find("sm90") != name.npos || name == "backward_visits.cu"              ? "BackwardParamsSm90"
                                                                                       : "BackwardParams";
}

/// Compares relative to the largest element that is wanted.
inline void compareToLargest(const std::string& name, const TensorView& got, const TensorView& want, double tolerance) {
  const auto at = [](const TensorView& of, int64_t i) -> double {
    return readElement(static_cast<const char*>(of.data), of.dtype, i).real;
  };
  double largest = 0, error = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    largest = std::max(largest, std::fabs(at(want, i)));
    const double difference = std::fabs(at(got, i) - at(want, i));
    error = std::max(error, std::isfinite(difference) ? difference : INFINITY);
  }
  INFO(name << ": " << error << " of " << largest);
  CHECK(largest > 0);
  CHECK(error <= tolerance * largest);
}

/// Checks results against the bounds that `attnc run --verify` takes.
inline void checkBounds(const std::string& name, const TensorView& got, const std::vector<double>& want,
                        std::vector<double> bounds) {
  reference::addRounding(bounds, want, got.dtype);
  double share = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(bounds[i])) continue;
    share = std::max(share,
                     std::fabs(readElement(static_cast<const char*>(got.data), got.dtype, int64_t(i)).real - want[i]) /
                         bounds[i]);
  }
  INFO(name << ": " << share << " of the bound");
  CHECK(share <= 1);
  CHECK(share > 1e-4); // the bounds are no wide ones
}

} // namespace attnc::test
