// Compares a GPU's results with the fp64 reference.
#pragma once

#include "json_report.h"
#include "oracle.h"
#include "result.h"

#include "reference/compare.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace attnc::cli {

/// One output, compared with the reference.
struct CheckedOutput {
  reference::Comparison comparison;                                         ///< element by element, within maxLimit
  double maxLimit = 0, rmseLimit = std::numeric_limits<double>::infinity(); ///< infinite: no limit
  bool holds() const { return comparison.holds() && comparison.rmse() <= rmseLimit; }
};

/// The outputs, compared within tolerances that follow from the dtype and the operands:
///
///   u    unit roundoff of the dtype of q, k, v and of the probabilities:
///        2^-8 bf16, 2^-11 f16, 2^-20 f32 as three TF32 products, 2^-10 f32 as one
///   s    error of a row's scores: 2^-20 (2^-10 with TF32 or tanh_approx) of the largest scale * |q| |k| and of the
///        row's largest |score|. Not of the first where products are exact in f32, as those of small integers are, nor
///        then of the second where score_mod adds at most: scores of any size are the same there, and 2^-16 is left for
///        their differences, of which those up to 16 count. In bf16 also 2^-14 of a low-rank term's products,
///        or what --low-rank-error allows
///   R    max(rms(out), rms(v) / sqrt(KV_LEN))
///
///   out           max error <= (2 u + 2 s) max|v|: p and out are rounded once each; p is off by s, and so is its sum
///                 RMSE      <= 2 u R + 2 rms(s) rms(v)
///                 Rows with s >= 1/2, whose weights may be any, need only be finite, and take no part.
///   lse, row max  max error <= s + 2^-20 (1 + |value|)
///
/// and gradients within reference::GradientTolerance. Infinities and NaN must stand where the reference has them. But
/// kernels multiply a masked row of V by a weight of 0, which is NaN if the row is not finite (dsl/SPEC.md): so an
/// element of out may be NaN where its column of V, of its KV head, is not finite somewhere, and gradients where any
/// row of q, k, v or dout is not.
struct Verification {
  CheckedOutput out, lse, rowMax;
  std::vector<std::pair<std::string, CheckedOutput>> gradients; ///< with --backward, by name
  std::vector<std::pair<std::string, int64_t>> nonFiniteRows;   ///< of operands that have non-finite rows
  int64_t passedOver = 0;  ///< elements that are NaN because of these and are not compared
  int64_t roundedRows = 0; ///< rows of out whose scores are so large that rounding decides their weights
  bool holds() const;
  /// Returns a line for each output, and one more for the first bad element of each.
  std::string text() const;
  /// Returns the same for programs.
  JsonReport json() const;
};

/// Compares `result` with `want`. Gradients of `want` count if options.backward.
Verification verify(const Mod& mod, const HostOperands& operands, const RunOptions& options, const RunResult& got,
                    const reference::GradientResult& want);

} // namespace attnc::cli
