// What the tests of the cache share: a directory that goes away, a compiler that counts, system calls that fail.
#pragma once

#include "jit/cache.h"

#include <functional>
#include <string>
#include <sys/stat.h>
#include <vector>

namespace attnc::jit::test {

/// A fresh directory, removed with its content. In memory where /dev/shm exists, so that fdatasync costs nothing.
class TempDirectory {
public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  std::string path() const { return root; }
  std::string operator/(const std::string& name) const { return root + "/" + name; }

private:
  std::string root;
};

/// Counts over processes: each increment appends one byte to a file.
class SharedCounter {
public:
  explicit SharedCounter(std::string path) : path(std::move(path)) {}
  void increment() const;
  int value() const;

private:
  std::string path;
};

/// "Compiles" a job into a cubin that is a function of the job's texts.
class FakeCompiler : public KernelCompiler {
public:
  explicit FakeCompiler(const SharedCounter* counter = nullptr, int compileMs = 0, std::string build = "fake 1")
      : counter(counter), compileMs(compileMs), build(std::move(build)) {}
  std::optional<std::string> stamp() const override { return "stamp of " + build; }
  Expected<std::string> identity() override;
  Expected<CompileResult> compile(const CompileJob& job) override;

  std::atomic<int> compiles{0}, identityCalls{0};

private:
  const SharedCounter* counter;
  int compileMs;
  std::string build;
};

/// There is no compiler on this machine.
class NoCompiler : public KernelCompiler {
public:
  std::optional<std::string> stamp() const override { return std::nullopt; }
  Expected<std::string> identity() override { return Error::environment("no compiler"); }
  Expected<CompileResult> compile(const CompileJob&) override { return Error::environment("no compiler"); }
};

/// Real system calls, of which some fail: `fails(k, name)` is asked before the k-th one (from 1) and gives an errno or
/// 0.
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

/// Different numbers, different jobs.
CompileJob sampleJob(int number = 0);
/// What FakeCompiler makes of it.
std::vector<char> expectedCubin(const CompileJob& job);
CacheOptions optionsFor(const std::string& directory);

/// Paths of all entries below a cache directory.
std::vector<std::string> entryFiles(const std::string& directory);
std::string readText(const std::string& path);
void writeText(const std::string& path, const std::string& text);

/// Runs `body` in a forked child; its return value is the exit status.
pid_t startChild(const std::function<int()>& body);
/// Exit status of a child, or -1 if a signal ended it.
int waitFor(pid_t child);

} // namespace attnc::jit::test
