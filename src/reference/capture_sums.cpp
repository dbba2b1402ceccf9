#include "reference/capture_sums.h"

#include "ir/walk.h"

#include <llvm/ADT/STLExtras.h>

#include <algorithm>
#include <cmath>

namespace attnc::reference {

std::vector<int64_t> shapeOfCapture(const ir::Module& module, const ir::Bindings& bindings, const std::string& name) {
  std::vector<int64_t> shape;
  for (size_t i = 0; i < module.tensors.size(); ++i) {
    const TensorView& view = bindings.tensors[i];
    if (module.tensors[i].name == name)
      for (int axis = 0; axis < view.rank; ++axis) shape.push_back(view.shape[size_t(axis)]);
  }
  return shape;
}

CaptureSums::CaptureSums(const ir::Module& module, const ir::Bindings& bindings, const ir::CaptureGradients& gradients)
    : leastSquare(ir::uses(module, ir::Op::TanhApprox) ? 1 : 0) {
  for (const std::string& name : gradients.captures) {
    int64_t elements = 1;
    for (int64_t extent : shapeOfCapture(module, bindings, name)) elements *= extent;
    sums.emplace_back(size_t(elements), 0.0);
  }
  sumsOfSquares = sums;
  for (const ir::CaptureGradient& place : gradients.places) {
    const auto capture = size_t(llvm::find(gradients.captures, place.capture) - gradients.captures.begin());
    if (sums[capture].empty()) continue; // nothing to read
    places.push_back({capture,
                      place.ofSink,
                      place.ofOutputs,
                      place.ofProb,
                      place.rounds,
                      {module, bindings, *module.output(place.output)},
                      {},
                      shapeOfCapture(module, bindings, place.capture)});
    for (const std::string& index : place.indices)
      places.back().indices.emplace_back(module, bindings, *module.output(index));
  }
}

int64_t CaptureSums::offsetOf(const Place& place, float score, int64_t b, int64_t h, int64_t q, int64_t kv,
                              int64_t round) const {
  int64_t offset = 0;
  for (size_t axis = 0; axis < place.indices.size(); ++axis) {
    const int64_t index = place.indices[axis].evaluate(score, b, h, q, kv, /*grad=*/1, round).integer;
    offset = offset * place.shape[axis] + std::clamp<int64_t>(index, 0, place.shape[axis] - 1);
  }
  return offset;
}

void CaptureSums::addOfProb(double prob, double grad, int64_t b, int64_t h, int64_t q, int64_t kv) {
  if (grad == 0) return;
  for (Place& place : places) {
    if (!place.ofProb) continue;
    for (int64_t round = 0; round < place.rounds; ++round) {
      const double derivative =
          place.value.evaluate(0, b, h, q, kv, /*grad=*/1, round, 0, /*gradTangent=*/0, float(prob)).real;
      const auto offset = size_t(offsetOf(place, 0, b, h, q, kv, round));
      sums[place.capture][offset] += grad * derivative;
      if (std::isfinite(derivative)) sumsOfSquares[place.capture][offset] += derivative * derivative;
    }
  }
}

void CaptureSums::add(double score, double weight, double grad, int64_t b, int64_t h, int64_t q, int64_t kv,
                      double scoreTangent, double gradTangent, bool ofSink, std::optional<double> prob) {
  if (weight == 0) return;
  const auto single = float(score), weightOfScore = float(prob.value_or(0));
  for (Place& place : places) {
    if (place.ofSink != ofSink || place.ofOutputs != prob.has_value() || place.ofProb) continue;
    for (int64_t round = 0; round < place.rounds; ++round) {
      const int64_t offset = offsetOf(place, single, b, h, q, kv, round);
      // Gradients are linear in `grad` and its tangent. Multiplying here avoids rounding these to f32.
      const auto along = float(scoreTangent);
      const double derivative =
          place.value.evaluate(single, b, h, q, kv, /*grad=*/1, round, along, /*gradTangent=*/0, weightOfScore).real;
      if (gradTangent != 0)
        sums[place.capture][size_t(offset)] +=
            gradTangent * place.value.evaluate(single, b, h, q, kv, /*grad=*/0, round, along, /*gradTangent=*/1).real;
      if (grad != 0) sums[place.capture][size_t(offset)] += grad * derivative;
      if (std::isfinite(derivative))
        sumsOfSquares[place.capture][size_t(offset)] += weight * std::max(derivative * derivative, leastSquare);
    }
  }
}

} // namespace attnc::reference
