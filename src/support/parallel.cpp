#include "support/parallel.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <system_error>
#include <thread>
#include <vector>

namespace attnc {
namespace {

int64_t threadsFor(int64_t count) {
  return std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, std::max<int64_t>(count, 1));
}

void inParts(int64_t count, int64_t part, const std::function<void(int64_t begin, int64_t end)>& body) {
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
  const int64_t threads = threadsFor(count);
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

} // namespace

void parallelFor(int64_t count, const std::function<void(int64_t begin, int64_t end)>& body) {
  // Several parts per thread balance rows of unequal work, such as those of a causal mask.
  constexpr int64_t kPartsPerThread = 8;
  inParts(count, std::max<int64_t>(1, count / (threadsFor(count) * kPartsPerThread)), body);
}

void parallelForEach(int64_t count, const std::function<void(int64_t i)>& body) {
  inParts(count, 1, [&](int64_t i, int64_t) { body(i); });
}

} // namespace attnc
