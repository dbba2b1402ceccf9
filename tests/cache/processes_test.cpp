#include "cache/fixtures.h"

#include <catch2/catch.hpp>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>
#include <unistd.h>

using namespace attnc::cache;
using namespace attnc::cache::test;

namespace {

/// A folder of a test, a cache in it that its processes share, and how often they compile.
struct Shared {
  TempDirectory directory;
  SharedCounter counter{directory / "compiles"};
  Options options = optionsFor(directory / "cache");
};

// One call in a process of its own; exit status 0: the right kernel.
int getOnce(const Options& options, const SharedCounter& counter, int compileMs, int number) {
  NumberCache cache(options, std::make_shared<FakeCompiler>(&counter, compileMs));
  auto kernel = cache.get(number);
  return kernel && *kernel->bytes == bytesOf(number) ? 0 : 1;
}

void waitUntil(const std::function<bool()>& condition) {
  for (int i = 0; i < 300'000 && !condition(); ++i) // a machine may be that busy
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(condition());
}

} // namespace

TEST_CASE_METHOD(Shared, "sixteen processes compile each of four kernels once", "[cache]") {
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i) children.push_back(startChild([&, i] { return getOnce(options, counter, 200, i % 4); }));
  for (pid_t child : children) CHECK(waitFor(child) == 0);
  CHECK(counter.value() == 4);
}

TEST_CASE_METHOD(Shared, "processes compile different kernels in parallel", "[cache]") {
  options.lockTimeoutMs = 600'000;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) children.push_back(startChild([&, i] { return getOnce(options, counter, 600'000, i); }));
  waitUntil([&] { return counter.value() == 4; }); // all have begun, and none is going to end
  for (pid_t child : children) {
    ::kill(child, SIGKILL);
    CHECK(waitFor(child) == -1);
  }
}

TEST_CASE_METHOD(Shared, "a killed process that compiles does not block the next one", "[cache]") {
  pid_t holder = startChild([&] { return getOnce(options, counter, 600'000, 0); });
  waitUntil([&] { return counter.value() == 1; });
  options.lockTimeoutMs = 600'000; // waiting for that to pass would be too long for the test
  pid_t waiter = startChild([&] { return getOnce(options, counter, 0, 0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(counter.value() == 1);
  ::kill(holder, SIGKILL);
  CHECK(waitFor(holder) == -1);
  CHECK(waitFor(waiter) == 0);
  CHECK(counter.value() == 2);
}

TEST_CASE_METHOD(Shared, "a stopped process that compiles holds the others up for the time limit only", "[cache]") {
  pid_t holder = startChild([&] { return getOnce(options, counter, 600'000, 0); });
  waitUntil([&] { return counter.value() == 1; });
  ::kill(holder, SIGSTOP);
  options.lockTimeoutMs = 100;
  NumberCache cache(options, std::make_shared<FakeCompiler>());
  CHECK(cache.get(0));
  CHECK(cache.counters().lockFailures == 1);
  CHECK(cache.counters().published == 1);
  ::kill(holder, SIGKILL);
  waitFor(holder);
}

TEST_CASE_METHOD(Shared, "processes killed at random moments leave a usable cache", "[cache]") {
  options.maxBytes = 2000; // prunes all the time
  std::mt19937 random(7);
  for (int round = 0; round < 300 || counter.value() <= 100; ++round) {
    pid_t child = startChild([&] {
      for (int number = 0;; ++number)
        if (getOnce(options, counter, 0, round + number % 8) != 0) return 1;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    ::kill(child, SIGKILL);
    REQUIRE(waitFor(child) == -1);
    for (const std::string& file : entryFiles(directory.path())) REQUIRE(decodeEntry(readText(file)));
  }
  // What the killed ones left is swept when it is old.
  Options user = optionsFor(directory / "cache");
  auto later = std::make_shared<ScriptedOps>([](int, const char*) { return 0; });
  later->clockOffset = 2 * 3600;
  Directory cache(later, user.directory, Directory::Access::ReadWrite, Directory::Layer::User, Log());
  PruneReport report = Pruner(cache, uint64_t(1) << 30).prune();
  CHECK(report.ran);
  CHECK(Pruner(cache, uint64_t(1) << 30).prune().temporaries == 0);
  CHECK(getOnce(user, counter, 0, 100'000) == 0);
}

TEST_CASE_METHOD(Shared, "a child forked while its parent waits for a kernel can get that kernel itself", "[cache]") {
  options.lockTimeoutMs = 200;
  NumberCache cache(options, std::make_shared<FakeCompiler>(&counter, 1000));
  std::thread leader([&] { (void)cache.get(); });
  waitUntil([&] { return counter.value() == 1; });
  std::thread waiter([&] { (void)cache.get(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  pid_t child = startChild([&] {
    ::alarm(300);
    return cache.get() ? 0 : 1;
  });
  CHECK(waitFor(child) == 0);
  leader.join();
  waiter.join();
}
