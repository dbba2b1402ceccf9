#include "cache/fixtures.h"

#include <catch2/catch.hpp>

#include <cerrno>

using namespace attnc::cache;
using namespace attnc::cache::test;

namespace {

// A miss that publishes and prunes, then a hit by another object that touches the entry. Both must give the kernel.
// Returns the number of system calls.
int runBothPaths(const std::string& directory, const ScriptedOps::Script& script) {
  auto ops = std::make_shared<ScriptedOps>(script);
  Options options = optionsFor(directory);
  options.lockTimeoutMs = 50;
  for (int pass = 0; pass < 2; ++pass) {
    if (pass == 1) ops->clockOffset = 3 * 3600;
    NumberCache cache(options, std::make_shared<FakeCompiler>(), ops);
    auto kernel = take(cache.get());
    REQUIRE(*kernel.bytes == bytesOf());
  }
  return ops->calls;
}

void checkUsable(const std::string& directory) {
  for (int pass = 0; pass < 2; ++pass) {
    NumberCache cache(optionsFor(directory), std::make_shared<FakeCompiler>());
    auto kernel = take(cache.get());
    REQUIRE(*kernel.bytes == bytesOf());
    if (pass == 1) CHECK(kernel.origin == Origin::Disk);
  }
}

constexpr int kErrors[] = {ENOSPC, EDQUOT, EROFS, EACCES, EMFILE, EIO, ESTALE, ENOLCK, EOPNOTSUPP, ENOENT, EEXIST};

} // namespace

TEST_CASE("a failure of any one system call fails no call and leaves a usable cache", "[cache]") {
  TempDirectory counting;
  int calls = runBothPaths(counting.path(), [](int, const char*) { return 0; });
  REQUIRE(calls > 40);
  for (int error : kErrors)
    for (int failing = 1; failing <= calls; ++failing) {
      INFO("errno " << error << " at call " << failing);
      TempDirectory directory;
      runBothPaths(directory.path(), [&](int call, const char*) { return call == failing ? error : 0; });
      checkUsable(directory.path());
    }
}

TEST_CASE("a disk that fails from some call on for ever fails no call", "[cache]") {
  TempDirectory counting;
  int calls = runBothPaths(counting.path(), [](int, const char*) { return 0; });
  for (int error : kErrors)
    for (int first = 1; first <= calls; ++first) {
      INFO("errno " << error << " from call " << first);
      TempDirectory directory;
      runBothPaths(directory.path(), [&](int call, const char*) { return call >= first ? error : 0; });
      checkUsable(directory.path());
    }
}

TEST_CASE("a kind of call that always fails fails no call", "[cache]") {
  for (const char* kind : {"open", "close", "status", "statusAt", "read", "write", "sync", "makeDirectory", "rename",
                           "remove", "lock", "touch", "list"})
    for (int error : kErrors) {
      INFO(kind << " with errno " << error);
      TempDirectory directory;
      runBothPaths(directory.path(), [&](int, const char* name) { return std::string(name) == kind ? error : 0; });
      checkUsable(directory.path());
    }
}

TEST_CASE("a write that fails half way is not published", "[cache]") {
  TempDirectory directory;
  auto ops =
      std::make_shared<ScriptedOps>([](int, const char* name) { return std::string(name) == "write" ? ENOSPC : 0; });
  NumberCache cache(optionsFor(directory.path()), std::make_shared<FakeCompiler>(), ops);
  REQUIRE(cache.get());
  CHECK(cache.counters().publishFailures == 1);
  CHECK(entryFiles(directory.path()).empty());
}
