// Gradients of captures, summed over elements of attention one by one: a part of gradients().
#pragma once

#include "ir/bindings.h"
#include "ir/capture_gradient.h"
#include "ir/interpreter.h"

#include <vector>

namespace attnc::reference {

/// Returns the shape of a captured tensor; empty for a scalar.
std::vector<int64_t> shapeOfCapture(const ir::Module& module, const ir::Bindings& bindings, const std::string& name);

/// Sums over a part of attention. Not thread-safe.
class CaptureSums {
public:
  /// `gradients` are outputs of the module. The arguments must outlive this object.
  CaptureSums(const ir::Module& module, const ir::Bindings& bindings, const ir::CaptureGradients& gradients);

  /// Adds the contribution of one live element, or of a row's sink. `score`: before score_mod; `weight`: its p; `grad`:
  /// gradient of what the function of the mod returns. For places whose values are tangents: those of score and grad.
  /// `prob`: for places of outputs only, the element's p; its score is then behind score_mod.
  void add(double score, double weight, double grad, int64_t b, int64_t h, int64_t q, int64_t kv,
           double scoreTangent = 0, double gradTangent = 0, bool ofSink = false, std::optional<double> prob = {});

  /// Adds that of one live element to places of prob_mod. `prob`: its p; `grad`: gradient of what prob_mod returns.
  void addOfProb(double prob, double grad, int64_t b, int64_t h, int64_t q, int64_t kv);

  /// Returns the sums by capture, in the requested order, dense, with the capture's shape.
  const std::vector<std::vector<double>>& values() const { return sums; }
  /// Returns the sums of GradientResult::captureSquares, in the same form.
  const std::vector<std::vector<double>>& squares() const { return sumsOfSquares; }

private:
  struct Place {
    size_t capture;
    bool ofSink, ofOutputs, ofProb;
    int64_t rounds;
    ir::Evaluator value;
    std::vector<ir::Evaluator> indices;
    std::vector<int64_t> shape;
  };
  int64_t offsetOf(const Place& place, float score, int64_t b, int64_t h, int64_t q, int64_t kv, int64_t round) const;

  std::vector<Place> places;
  std::vector<std::vector<double>> sums, sumsOfSquares;
  double leastSquare; ///< least value of a squared derivative in sumsOfSquares
};

} // namespace attnc::reference
