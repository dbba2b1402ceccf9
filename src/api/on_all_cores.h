// Runs independent work on all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <future>
#include <thread>
#include <vector>

namespace attnc {

/// Calls `body(i)` for i in [0, count) on all cores, in no order. After a call returns false, starts no more.
template <class Body> void onAllCores(size_t count, const Body& body) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < count;)
      if (!body(i)) next = count;
  };
  std::vector<std::future<void>> others;
  const size_t threads = std::min<size_t>(count, std::max(1u, std::thread::hardware_concurrency()));
  for (size_t i = 1; i < threads; ++i) others.push_back(std::async(std::launch::async, work));
  work();
}

} // namespace attnc
