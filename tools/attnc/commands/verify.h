// Compares a GPU's results with the fp64 reference.
#pragma once

#include "commands/result.h"
#include "problem/oracle.h"
#include "show/json_report.h"

#include "reference/compare.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace attnc::cli {

/// One output, compared with the reference.
struct CheckedOutput {
  reference::Comparison comparison;                           ///< element by element, each within its limit
  double maxLimit = 0;                                        ///< the largest limit of an element
  double rmseLimit = std::numeric_limits<double>::infinity(); ///< infinite: no limit
  bool holds() const { return comparison.holds() && comparison.rmse() <= rmseLimit; }
};

/// The outputs, compared within bounds that follow from the mod, the operands and the dtype: reference/error_bounds.h.
/// Infinities and NaN must stand where the reference has them, unless rounding decides whether they do. But
/// kernels multiply a masked row of V by a weight of 0, which is NaN if the row is not finite (dsl/SPEC.md): so an
/// element of out may be NaN where its column of V, of its KV head, is not finite somewhere, and gradients where any
/// row of q, k, v or dout is not.
struct Verification {
  CheckedOutput out, lse, rowMax;
  bool hasSoftmax = true;                                       ///< Whether lse and rowMax were compared.
  std::vector<std::pair<std::string, CheckedOutput>> gradients; ///< with --backward, by name
  std::vector<std::pair<std::string, int64_t>> nonFiniteRows;   ///< of operands that have non-finite rows
  int64_t passedOver = 0;  ///< elements that are NaN because of these and are not compared
  int64_t roundedRows = 0; ///< rows of out whose weights rounding decides, which have wide limits
  bool holds() const;
  /// Returns the largest error as a share of its limit.
  double largestShare() const;
  /// Returns a line for each output, and one more for the first bad element of each.
  std::string text() const;
  /// Returns the same for programs.
  JsonReport json() const;
};

/// Compares `got` with `want`. Gradients of `want` count if options.backward. Errors: those of boundsOf().
Expected<Verification> verify(const Mod& mod, const HostOperands& operands, const ProblemOptions& options,
                              const RunResult& got, const reference::GradientResult& want);

} // namespace attnc::cli
