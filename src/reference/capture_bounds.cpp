#include "reference/capture_bounds.h"

#include "reference/capture_sums.h"

#include <llvm/ADT/STLExtras.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnc::reference {

CaptureBounds::CaptureBounds(const ir::Module& module, const ir::Bindings& bindings,
                             const ir::CaptureGradients& gradients, double weights)
    : weights(weights) {
  for (const std::string& name : gradients.captures) {
    int64_t elements = 1;
    for (int64_t extent : shapeOfCapture(module, bindings, name)) elements *= extent;
    sums.emplace_back(size_t(elements));
  }
  for (const ir::CaptureGradient& place : gradients.places) {
    const auto capture = size_t(llvm::find(gradients.captures, place.capture) - gradients.captures.begin());
    if (sums[capture].empty()) continue; // nothing to read
    const ir::Value value = *module.output(place.output);
    places.push_back({capture,
                      place.ofSink,
                      place.ofOutputs,
                      place.ofProb,
                      place.rounds,
                      {module, bindings, value},
                      {module, bindings, value},
                      {},
                      shapeOfCapture(module, bindings, place.capture)});
    for (const std::string& index : place.indices)
      places.back().indices.emplace_back(module, bindings, *module.output(index));
  }
}

void CaptureBounds::add(const Element& element, int64_t b, int64_t h, int64_t q, int64_t kv, bool ofSink) {
  const Range prob = element.prob.value_or(Range{});
  for (Place& place : places) {
    const bool readsProb = place.ofOutputs || place.ofProb;
    if (place.ofSink != ofSink || readsProb != element.prob.has_value() || place.ofProb != element.ofProb) continue;
    for (int64_t round = 0; round < place.rounds; ++round) {
      // The elements that the place may read: one, unless the index depends on the score.
      std::vector<size_t> offsets = {0};
      for (size_t axis = 0; axis < place.indices.size(); ++axis) {
        const Range index = place.indices[axis].evaluate(element.low, element.high, b, h, q, kv, round, prob);
        const int64_t last = place.shape[axis] - 1, low = std::clamp<int64_t>(index.low.integer, 0, last),
                      high = std::clamp<int64_t>(index.high.integer, 0, last);
        const size_t before = offsets.size();
        for (size_t i = 0; i < before; ++i) {
          offsets[i] = offsets[i] * size_t(last + 1) + size_t(low);
          for (int64_t other = low + 1; other <= high; ++other) offsets.push_back(offsets[i] + size_t(other - low));
        }
      }
      const double derivative =
          place.value.evaluate(float(element.score), b, h, q, kv, /*grad=*/1, round, 0, 0, float(element.p)).real;
      const Range range = place.range.evaluate(element.low, element.high, b, h, q, kv, round, prob);
      double off = std::max(range.high.real - derivative, derivative - range.low.real);
      if (offsets.size() > 1) off = std::fabs(derivative) + (off > 0 ? off : 0); // it may go elsewhere
      for (size_t offset : offsets) addTo(sums[place.capture][offset], element, derivative, off);
    }
  }
}

void CaptureBounds::addTo(Sum& sum, const Element& e, double derivative, double off) {
  const double most = std::min(1.0, e.weight + e.weightError), size = std::fabs(derivative), x = std::fabs(e.x);
  if (most == 0 && e.more == 0 && e.moreError == 0) return;
  if (sum.ofRow < 0) {
    sum.ofRow = int32_t(row.size());
    row.push_back({&sum});
  }
  RowSum& ofRow = row[size_t(sum.ofRow)];
  ofRow.weighted += e.weight * derivative;
  ofRow.weightedSize += most * (size + off);
  const double gradient = std::fabs(e.weight * e.x + e.more);
  ofRow.errors += (e.weightError * x + e.moreError) * (size + off) + gradient * off;
  for (double rounding : {most * e.productError * (size + off), (weights + 0x1p-22) * gradient * size}) {
    sum.sizes += rounding;
    sum.squares += rounding * rounding;
  }
}

void CaptureBounds::endRow(double deltaError, double deltaRoot) {
  for (const RowSum& of : row) {
    of.of->sizes += of.errors + deltaError * of.weightedSize;
    of.of->squares += of.errors * of.errors + std::pow(deltaRoot * of.weighted, 2);
    of.of->ofRow = -1;
  }
  row.clear();
}

void CaptureBounds::operator+=(const CaptureBounds& other) {
  isAny |= other.isAny;
  for (size_t capture = 0; capture < sums.size(); ++capture)
    for (size_t i = 0; i < sums[capture].size(); ++i) {
      sums[capture][i].sizes += other.sums[capture][i].sizes;
      sums[capture][i].squares += other.sums[capture][i].squares;
    }
}

std::vector<double> CaptureBounds::bounds(size_t capture) const {
  constexpr double kDeviations = 2.5; // of errors as large as the largest
  std::vector<double> result;
  for (const Sum& sum : sums[capture])
    result.push_back(isAny ? std::numeric_limits<double>::quiet_NaN()
                           : std::min(sum.sizes, kDeviations * std::sqrt(sum.squares)));
  return result;
}

} // namespace attnc::reference
