// Chooses the least of several times, as far as noise allows.
#pragma once

#include <cstddef>
#include <vector>

namespace attnc {

/// Returns the median of the half of the samples that lie closest together: a few disturbed samples do not move it.
/// Precondition: there is a sample.
double steadyMs(std::vector<float> samples);

/// Returns the candidates that beat the first, the model's, by more than noise, the fastest first; then the first.
/// Candidates of 0 were not measured.
std::vector<size_t> byGain(const std::vector<double>& ms);

} // namespace attnc
