// How far a kernel's gradients of plain mods and normal operands may be off. error_bounds.h follows the mod.
#pragma once

#include "attnc/tensor.h"
#include "reference/compare.h"

#include <cstdint>
#include <vector>

namespace attnc::reference {

/// Parameters of the errors of gradients. Sizes are of a tensor's elements: 1 if they are standard normal.
struct GradientScales {
  DType dtype = DType::BF16; ///< of q, k, v and their gradients
  /// Whether scores are off by 2^-10 of their size instead of 2^-20: one TF32 product, or an approximate function of
  /// the mod.
  bool isCoarse = false;
  double scale = 1; ///< of q k^T
  int64_t headDimV = 64;
  double scoreSlope = 1; ///< GradientResult::scoreSlope; smaller values count as 1
  double lse = 0;        ///< the largest lse that normalizes weights
  double q = 1, k = 1, v = 1, out = 1, dOut = 1, dLse = 0;
};

/// The tolerance of each gradient, given all expected elements.
class GradientTolerance {
public:
  explicit GradientTolerance(const GradientScales& scales);
  Tolerance dQ(const std::vector<double>& expected) const;
  Tolerance dK(const std::vector<double>& expected) const;
  Tolerance dV(const std::vector<double>& expected) const;
  /// Returns the tolerance of a capture's gradient, stored in this dtype. `squares`: GradientResult::captureSquares.
  Tolerance capture(const std::vector<double>& expected, double squares, DType stored) const;

private:
  double roundoff, dS; ///< unit roundoff; size of dS relative to P
  GradientScales scales;
};

} // namespace attnc::reference
