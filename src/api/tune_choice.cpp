#include "api/tune_choice.h"

#include <algorithm>

namespace attnc {

double steadyMs(std::vector<float> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t half = (samples.size() + 1) / 2;
  size_t begin = 0;
  for (size_t i = 0; i + half <= samples.size(); ++i)
    if (samples[i + half - 1] - samples[i] < samples[begin + half - 1] - samples[begin]) begin = i;
  return samples[begin + half / 2];
}

std::vector<size_t> byGain(const std::vector<double>& ms) {
  constexpr double kNoise = 0.02;
  std::vector<size_t> order;
  for (size_t i = 1; i < ms.size(); ++i)
    if (ms[i] > 0 && ms[i] < ms[0] * (1 - kNoise)) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ms[a] < ms[b]; });
  order.push_back(0);
  return order;
}

} // namespace attnc
