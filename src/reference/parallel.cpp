#include "reference/parallel.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <system_error>
#include <thread>
#include <vector>

namespace attnc::reference {

void parallelFor(int64_t count, const std::function<void(int64_t begin, int64_t end)>& body) {
  int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, std::max<int64_t>(count, 1));
  // Several parts per thread balance rows of unequal work, such as those of a causal mask.
  constexpr int64_t kPartsPerThread = 8;
  int64_t part = std::max<int64_t>(1, count / (threads * kPartsPerThread));
  std::atomic<int64_t> next{0};
  auto work = [&] {
    try {
      for (int64_t begin = next.fetch_add(part); begin < count; begin = next.fetch_add(part))
        body(begin, std::min(begin + part, count));
    } catch (...) {
      next = count; // prevents threads from starting another part
      throw;
    }
  };
  // A future of std::async keeps its thread's exception, and joins the thread on destruction.
  std::vector<std::future<void>> helpers;
  helpers.reserve(size_t(threads));
  try {
    for (int64_t i = 1; i < threads; ++i) helpers.push_back(std::async(std::launch::async, work));
  } catch (const std::system_error&) {
    // If no more threads can be started, the running ones do the work.
  }
  work();
  for (std::future<void>& helper : helpers) helper.get();
}

} // namespace attnc::reference
