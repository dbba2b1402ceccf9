// Bounds of the errors of gradients of captures, summed over elements of attention: a part of errorBounds().
#pragma once

#include "ir/bindings.h"
#include "ir/capture_gradient.h"
#include "ir/interpreter.h"
#include "reference/ranges.h"

#include <optional>
#include <vector>

namespace attnc::reference {

/// Sums over rows, whose errors are independent, as are the roundings of their elements. Not thread-safe.
class CaptureBounds {
public:
  /// `gradients` are outputs of the module. The arguments must outlive this object. `weights`: Arithmetic::weights.
  CaptureBounds(const ir::Module& module, const ir::Bindings& bindings, const ir::CaptureGradients& gradients,
                double weights);

  /// A live element: its gradient of the score, behind score_mod, is weight * x + more. With `prob`, what outputs of
  /// the mod read of it, behind score_mod: the gradient of what they sum is `more`.
  struct Element {
    double low = 0, high = 0, score = 0;                     ///< before score_mod
    double weight = 0, x = 0, more = 0;                      ///< p, and dot(dout, v) - delta
    double weightError = 0, productError = 0, moreError = 0; ///< of p, of dot(dout, v), and of `more`
    std::optional<Range> prob = {};                          ///< what p may be
    double p = 0;                                            ///< p, next to `prob`
    bool ofProb = false; ///< whether prob_mod reads `prob`, in place of outputs; `more` is dot(dout, v) then
  };
  /// Adds a live element, or the sink of a row.
  void add(const Element& element, int64_t b, int64_t h, int64_t q, int64_t kv, bool ofSink = false);
  /// Ends a row. `deltaError`: of delta; `deltaRoot`: the root of the sum of squares of its roundings.
  void endRow(double deltaError, double deltaRoot);
  /// Makes all bounds NaN.
  void giveUp() { isAny = true; }

  /// Adds the sums of another part.
  void operator+=(const CaptureBounds& other);
  /// Returns the bounds of a capture, without the rounding of the gradient as it is stored.
  std::vector<double> bounds(size_t capture) const;

private:
  struct Place {
    size_t capture;
    bool ofSink, ofOutputs, ofProb;
    int64_t rounds;
    ir::Evaluator value;
    RangeEvaluator range;
    std::vector<RangeEvaluator> indices;
    std::vector<int64_t> shape;
  };
  struct Sum {
    double sizes = 0, squares = 0; // of errors
    int32_t ofRow = -1;            // index into `row`
  };
  struct RowSum {
    Sum* of;
    double weighted = 0, weightedSize = 0, errors = 0; // of p times derivative; of errors but delta's
  };
  void addTo(Sum& sum, const Element& element, double derivative, double off);

  double weights;
  bool isAny = false;
  std::vector<Place> places;
  std::vector<std::vector<Sum>> sums; // by capture and element
  std::vector<RowSum> row;
};

} // namespace attnc::reference
