// Measures how work grows with its size, on a machine that may be busy.
//
//   CHECK(attnc::test::cpuSeconds(large) < 24 * attnc::test::cpuSeconds(small)); // large: 8 times as much as small
//
// Compares sizes instead of testing a time limit: linear work takes about 8 times as long, quadratic work 64 times.
#pragma once

#include <algorithm>
#include <ctime>
#include <limits>

namespace attnc::test {

/// Returns the CPU time that the calling thread spends in `work()`: the minimum of several runs, so that other load on
/// the machine matters little.
template <class Work> double cpuSeconds(Work work) {
  auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
  };
  constexpr int kRuns = 3;
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    double begin = now();
    work();
    least = std::min(least, now() - begin);
  }
  return least;
}

} // namespace attnc::test
