// If operands are standard normal, elements of q, k, v and dO stay below 5, and a product dO v or dO out has a standard
// deviation of sqrt(DV). out, P and dS are rounded to the dtype (unit roundoff u), which changes a dS by a few u P
// scale sqrt(DV). dQ is a sum of dS k with weights P that add up to 1: it changes by about 10 u. dK and dV sum over
// rows, whose errors are independent: theirs grows with the square root of a column's total weight in all rows. Each
// sum is also off by a few u of its own magnitude. A score_mod multiplies dS by its derivative. In f32 the rounding of
// scores counts, 2^-24 of some hundred; so does that of lse if it is larger: P = exp(score - lse). Other operands make
// all errors larger or smaller.
//
// The gradient of a capture sums P (dO v - dO out) times derivatives of the mod. Its error is that of dO out, which all
// scores of a row share and rows do not: the rounding of out, some u |dO| |out|, times the root of
// GradientResult::captureSquares. Among many rows, some are off by five standard deviations and more.
#include "gradient_tolerance.h"

#include <algorithm>
#include <cmath>

namespace attnc::reference {
namespace {

double unitRoundoff(DType dtype, bool isCoarse) {
  const double u = dtype == DType::BF16 ? 0x1p-9 : dtype == DType::F16 ? 0x1p-12 : 0x1p-16;
  return isCoarse ? std::max(u, 0x1p-9) : u;
}

Tolerance tolerance(double roundoff, double term, const std::vector<double>& expected) {
  double squares = 0;
  int64_t finite = 0;
  for (double x : expected) {
    if (!std::isfinite(x)) continue;
    squares += x * x;
    ++finite;
  }
  const double rms = finite ? std::sqrt(squares / double(finite)) : 0;
  return {.absolute = roundoff * (32 * term + 12 * rms), .relative = 4 * roundoff};
}

} // namespace

GradientTolerance::GradientTolerance(const GradientScales& given)
    : roundoff(std::max(unitRoundoff(given.dtype, given.isCoarse), 0x1p-24 * given.lse)), scales(given) {
  const double scale = std::fabs(given.scale), product = given.dOut * given.v;
  dS = std::max(product, scale * (std::sqrt(double(given.headDimV)) * product + given.dLse)) *
       std::max(1.0, given.scoreSlope);
}

Tolerance GradientTolerance::dQ(const std::vector<double>& expected) const {
  return tolerance(roundoff, dS * scales.k, expected);
}

Tolerance GradientTolerance::dK(const std::vector<double>& expected) const {
  return tolerance(roundoff, dS * scales.q, expected);
}

Tolerance GradientTolerance::dV(const std::vector<double>& expected) const {
  const double factor = std::max(1.0, std::fabs(scales.scale) * std::sqrt(double(scales.headDimV)));
  return tolerance(roundoff, factor * scales.dOut, expected);
}

Tolerance GradientTolerance::capture(const std::vector<double>& expected, double squares, DType stored) const {
  const double perRow = 1.5 * scales.dOut * scales.out * std::max(1.0, std::sqrt(double(scales.headDimV) / 64));
  Tolerance result = tolerance(roundoff, perRow * std::sqrt(squares), expected);
  if (stored != DType::F32) result.relative += 2 * unitRoundoff(stored, /*isCoarse=*/false);
  return result;
}

} // namespace attnc::reference
