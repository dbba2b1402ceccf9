// Sums over dense rows of doubles, which the references of attention share.
#pragma once

#include <cstdint>

namespace attnc::reference {

/// Returns the sum of x[i] y[i].
inline double dot(const double* x, const double* y, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

/// Adds factor x to `to`.
inline void addTimes(double* to, double factor, const double* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += factor * x[i];
}

} // namespace attnc::reference
