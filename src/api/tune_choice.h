// Which of several times is the least, as far as noise lets one say.
#pragma once

#include <cstddef>
#include <vector>

namespace attnc {

/// The median of the half of the samples that lie closest together: what disturbs a few of them does not move it.
/// Precondition: there is a sample.
double steadyMs(std::vector<float> samples);

/// The candidates that are faster than the first, the model's, by more than noise, the fastest first; then the first.
/// Candidates of 0 were not measured.
std::vector<size_t> byGain(const std::vector<double>& ms);

} // namespace attnc
