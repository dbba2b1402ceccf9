// Helpers of the tests of the cache: a compiler that counts, system calls that fail.
#pragma once

#include "cache/cache.h"
#include "helpers/child_process.h"
#include "helpers/take.h"
#include "helpers/temp_directory.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <vector>

namespace attnc::cache::test {

using namespace attnc::test;

/// Counts over processes: each increment appends one byte to a file.
class SharedCounter {
public:
  explicit SharedCounter(std::string path) : path(std::move(path)) {}
  void increment() const;
  int value() const;

private:
  std::string path;
};

/// "Compiles" a number into bytes that are a function of it.
class FakeCompiler : public CompilerIdentity {
public:
  explicit FakeCompiler(const SharedCounter* counter = nullptr, int compileMs = 0, std::string build = "fake 1")
      : counter(counter), compileMs(compileMs), build(std::move(build)) {}
  std::optional<std::string> stamp() const override { return "stamp of " + build; }
  Expected<std::string> identity() override;
  virtual Expected<std::string> compile(int number);

  std::atomic<int> compiles{0}, identityCalls{0};

private:
  const SharedCounter* counter;
  int compileMs;
  std::string build;
};

/// A compiler that reports that none is installed.
class NoCompiler : public FakeCompiler {
public:
  std::optional<std::string> stamp() const override { return std::nullopt; }
  Expected<std::string> identity() override { return Error::environment("no compiler"); }
  Expected<std::string> compile(int) override { return Error::environment("no compiler"); }
};

/// A cache of a fake compiler's results.
class NumberCache {
public:
  NumberCache(const Options& options, std::shared_ptr<FakeCompiler> compiler,
              std::shared_ptr<FileOps> ops = std::make_shared<FileOps>())
      : compiler(compiler), cache(options, compiler, std::move(ops)) {}
  Expected<CachedBytes> get(int number = 0);
  Counters counters() const { return cache.counters(); }

private:
  std::shared_ptr<FakeCompiler> compiler;
  Cache cache;
};

/// Returns the digest of a number, which is its cache key.
Digest contentOf(int number = 0);
/// Returns what FakeCompiler makes of a number.
std::string bytesOf(int number = 0);
/// A number that no compiler can compile.
constexpr int kBad = -1;

/// Real system calls, some of which fail: `fails(k, name)` is called before the k-th one (from 1) and returns an errno
/// or 0.
class ScriptedOps : public FileOps {
public:
  using Script = std::function<int(int, const char*)>;
  explicit ScriptedOps(Script fails) : fails(std::move(fails)) {}
  std::atomic<int> calls{0};
  int64_t clockOffset = 0; ///< seconds that now() is ahead

  int open(int directory, const char* path, int flags, unsigned mode) override;
  int close(int fd) override;
  int status(int fd, struct stat& out) override;
  int statusAt(int directory, const char* name, struct stat& out) override;
  int64_t read(int fd, void* buffer, size_t bytes) override;
  int64_t write(int fd, const void* buffer, size_t bytes) override;
  int sync(int fd) override;
  int makeDirectory(int directory, const char* path, unsigned mode) override;
  int rename(int directory, const char* from, const char* to) override;
  int remove(int directory, const char* name) override;
  int lock(int fd, int operation) override;
  int touch(int fd) override;
  int list(int directory, std::vector<std::string>& names) override;
  int64_t now() override { return FileOps::now() + clockOffset; }
  void sleep(int milliseconds) override;

private:
  int failure(const char* name) { return -fails(++calls, name); }
  Script fails;
};

Options optionsFor(const std::string& directory);

/// Returns the paths of all entries below a cache directory.
std::vector<std::string> entryFiles(const std::string& directory);

} // namespace attnc::cache::test
