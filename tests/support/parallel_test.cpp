#include "support/parallel.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <pthread.h>
#include <stdexcept>
#include <thread>
#include <vector>

using attnc::parallelFor;
using attnc::parallelForEach;

TEST_CASE("a parallel loop visits everything once") {
  for (int64_t count : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
    parallelFor(count, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++visits[size_t(i)];
    });
    parallelForEach(count, [&](int64_t i) { ++visits[size_t(i)]; });
    for (const auto& visit : visits) CHECK(visit == 2);
  }
}

TEST_CASE("a parallel loop runs on the caller's thread if no other can be started") {
  pthread_attr_t before, huge;
  REQUIRE(pthread_getattr_default_np(&before) == 0);
  REQUIRE(pthread_getattr_default_np(&huge) == 0);
  REQUIRE(pthread_attr_setstacksize(&huge, size_t(1) << 60) == 0);
  REQUIRE(pthread_setattr_default_np(&huge) == 0);
  int visits = 0;
  CHECK_NOTHROW(parallelForEach(100, [&](int64_t) { ++visits; }));
  REQUIRE(pthread_setattr_default_np(&before) == 0);
  CHECK(visits == 100);
}

TEST_CASE("an exception of a parallel loop comes out of it, whichever thread threw") {
  if (std::thread::hardware_concurrency() < 2) {
    WARN("SKIPPED: one core has no other thread");
    return;
  }
  const std::thread::id caller = std::this_thread::get_id();
  for (bool callerThrows : {false, true}) {
    std::atomic<bool> thrown{false};
    std::atomic<int> inside{0};
    const auto body = [&](int64_t, int64_t) {
      ++inside;
      if ((std::this_thread::get_id() == caller) == callerThrows) {
        thrown = true;
        --inside;
        throw std::bad_alloc();
      }
      // The others hold their part until then, so that the one that throws gets one.
      while (!thrown) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      --inside;
    };
    CHECK_THROWS_AS(parallelFor(1000, body), std::bad_alloc);
    CHECK(thrown);
    CHECK(inside == 0);
  }
}

TEST_CASE("after an exception a parallel loop begins no further part") {
  std::atomic<int> calls{0};
  CHECK_THROWS_AS(parallelFor(1 << 20,
                              [&](int64_t, int64_t) {
                                ++calls;
                                throw std::runtime_error("each part");
                              }),
                  std::runtime_error);
  CHECK(calls <= int(std::max(1u, std::thread::hardware_concurrency())));
}
