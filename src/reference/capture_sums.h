// Gradients of captures, summed element of attention by element of attention: a part of gradients().
#pragma once

#include "ir/bindings.h"
#include "ir/capture_gradient.h"
#include "ir/interpreter.h"

#include <vector>

namespace attnc::reference {

/// The sums of a part of attention. Not thread-safe.
class CaptureSums {
public:
  /// `gradients` are outputs of the module. The arguments outlive it.
  CaptureSums(const ir::Module& module, const ir::Bindings& bindings, const ir::CaptureGradients& gradients);

  /// Adds what one live element contributes. `score`: before score_mod; `weight`: its p; `grad`: by what score_mod
  /// returned.
  void add(double score, double weight, double grad, int64_t b, int64_t h, int64_t q, int64_t kv);

  /// By capture, in the order in which they were asked for: dense, of the capture's shape.
  const std::vector<std::vector<double>>& values() const { return sums; }
  /// The same, of GradientResult::captureSquares.
  const std::vector<std::vector<double>>& squares() const { return sumsOfSquares; }

private:
  struct Place {
    size_t capture;
    int64_t rounds;
    ir::Evaluator value;
    std::vector<ir::Evaluator> indices;
    std::vector<int64_t> shape;
  };
  std::vector<Place> places;
  std::vector<std::vector<double>> sums, sumsOfSquares;
  double leastSquare; ///< of a derivative, where these are sums of
};

} // namespace attnc::reference
