#include "cache/fixtures.h"
#include "support/new_file.h"

#include <catch2/catch.hpp>

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace attnc;
using namespace attnc::cache;
using namespace attnc::cache::test;
namespace fs = std::filesystem;

namespace {

// One call on a fresh cache object, as another process would make it.
Origin originIn(const Options& options, int number = 0,
                std::shared_ptr<FakeCompiler> compiler = std::make_shared<FakeCompiler>()) {
  NumberCache cache(options, std::move(compiler));
  auto kernel = take(cache.get(number));
  REQUIRE(*kernel.bytes == bytesOf(number));
  return kernel.origin;
}

// For tests that change owners; CTest looks for the word SKIPPED.
bool isRoot() {
  if (::geteuid() != 0) WARN("SKIPPED: only root can change owners");
  return ::geteuid() == 0;
}

} // namespace

TEST_CASE("a kernel is compiled, then found in memory, then on disk", "[cache]") {
  TempDirectory directory;
  auto compiler = std::make_shared<FakeCompiler>();
  NumberCache cache(optionsFor(directory / "cache"), compiler);
  auto first = take(cache.get());
  CHECK(first.origin == Origin::Compiled);
  auto second = take(cache.get());
  CHECK(second.origin == Origin::Memory);
  CHECK(second.bytes == first.bytes);

  NumberCache other(optionsFor(directory / "cache"), compiler);
  auto third = take(other.get());
  CHECK(third.origin == Origin::Disk);
  CHECK(*third.bytes == bytesOf());
  CHECK(compiler->compiles == 1);
  CHECK(fs::exists(directory / "cache/CACHEDIR.TAG"));
}

TEST_CASE("a disk hit does not open the compiler", "[cache]") {
  TempDirectory directory;
  originIn(optionsFor(directory.path()));
  auto compiler = std::make_shared<FakeCompiler>();
  CHECK(originIn(optionsFor(directory.path()), 0, compiler) == Origin::Disk);
  CHECK(compiler->identityCalls == 0);
  CHECK(compiler->compiles == 0);
}

TEST_CASE("another build of the compiler compiles anew", "[cache]") {
  TempDirectory directory;
  originIn(optionsFor(directory.path()));
  auto newer = std::make_shared<FakeCompiler>(nullptr, 0, "fake 2");
  CHECK(originIn(optionsFor(directory.path()), 0, newer) == Origin::Compiled);
  CHECK(entryFiles(directory.path()).size() == 2);
}

TEST_CASE("a directory serves a machine without a compiler, also as a read-only layer", "[cache]") {
  TempDirectory directory, home;
  originIn(optionsFor(directory.path()));
  SECTION("as the user's own") {
    CHECK(originIn(optionsFor(directory.path()), 0, std::make_shared<NoCompiler>()) == Origin::Disk);
  }
  SECTION("as a pack") {
    Options options = optionsFor(home / "cache");
    options.readOnlyDirectories = {directory.path()};
    NumberCache cache(options, std::make_shared<NoCompiler>());
    auto kernel = take(cache.get());
    CHECK(kernel.origin == Origin::Disk);
    auto again = take(cache.get());
    CHECK(again.origin == Origin::Memory);
    CHECK(refusalOf(cache.get(1)).blame == Blame::Environment);
  }
}

TEST_CASE("where compiling is forbidden, the compiler is not opened and kernels of any build serve", "[cache]") {
  TempDirectory directory;
  originIn(optionsFor(directory.path()), 0, std::make_shared<FakeCompiler>(nullptr, 0, "fake 1"));
  originIn(optionsFor(directory.path()), 1, std::make_shared<FakeCompiler>(nullptr, 0, "fake 2"));
  Options options = optionsFor(directory.path());
  options.mayCompile = false;
  auto newer = std::make_shared<FakeCompiler>(nullptr, 0, "fake 2"),
       unknown = std::make_shared<FakeCompiler>(nullptr, 0, "fake 3");
  for (const auto& compiler : {newer, unknown}) {
    CHECK(originIn(options, 0, compiler) == Origin::Disk);
    CHECK(originIn(options, 1, compiler) == Origin::Disk);
    CHECK(compiler->identityCalls == 0);
  }
  CHECK(newer->compiles + unknown->compiles == 0);
  NumberCache cache(options, unknown);
  CHECK_FALSE(cache.get(kBad)); // says what the function says that would have compiled
  CHECK(unknown->identityCalls == 0);
  CHECK_FALSE(fs::exists(directory / "locks/" + keyOf(contentOf(kBad), "none").hex().substr(0, 2)));
}

TEST_CASE("read-only layers are read and never written", "[cache]") {
  TempDirectory pack, home;
  originIn(optionsFor(pack.path()));
  auto before = fs::last_write_time(entryFiles(pack.path()).at(0));
  Options options = optionsFor(home / "cache");
  options.readOnlyDirectories = {pack.path()};
  CHECK(originIn(options) == Origin::Disk);
  CHECK(originIn(options, 1) == Origin::Compiled);
  CHECK(entryFiles(pack.path()).size() == 1);
  CHECK(entryFiles(home.path()).size() == 1);
  CHECK(fs::last_write_time(entryFiles(pack.path()).at(0)) == before);
}

TEST_CASE("the modes ro and off write nothing", "[cache]") {
  TempDirectory directory;
  Options options = optionsFor(directory / "cache");
  options.mode = Mode::ReadOnly;
  CHECK(originIn(options) == Origin::Compiled);
  CHECK_FALSE(fs::exists(directory / "cache"));
  options.mode = Mode::ReadWrite;
  CHECK(originIn(options) == Origin::Compiled);
  options.mode = Mode::ReadOnly;
  CHECK(originIn(options) == Origin::Disk);
  options.mode = Mode::Off;
  CHECK(originIn(options) == Origin::Compiled);
}

TEST_CASE("without a directory kernels stay in memory", "[cache]") {
  auto compiler = std::make_shared<FakeCompiler>();
  Options options;
  options.memoryEntries = 2;
  NumberCache cache(options, compiler);
  for (int number : {0, 1, 0, 2, 0, 1}) REQUIRE(cache.get(number));
  // 0 is used often enough to stay; 1 has made way for 2.
  CHECK(compiler->compiles == 4);
  CHECK(compiler->identityCalls == 0);
}

TEST_CASE("a failed compile is not remembered", "[cache]") {
  TempDirectory directory;
  auto compiler = std::make_shared<FakeCompiler>();
  NumberCache cache(optionsFor(directory.path()), compiler);
  for (int i = 1; i <= 2; ++i) {
    CHECK(refusalOf(cache.get(kBad)).message == "bad source");
    CHECK(compiler->compiles == i);
  }
  CHECK(entryFiles(directory.path()).empty());
}

TEST_CASE("a damaged, renamed or foreign entry is compiled anew and replaced", "[cache]") {
  TempDirectory directory;
  Options options = optionsFor(directory.path());
  originIn(options);
  std::string file = entryFiles(directory.path()).at(0);
  std::string good = readText(file);

  SECTION("damaged") {
    std::string changed = good;
    changed[changed.size() / 2] ^= 1;
    writeText(file, changed);
  }
  SECTION("empty") { writeText(file, ""); }
  SECTION("swapped with another") {
    originIn(options, 1);
    auto files = entryFiles(directory.path());
    REQUIRE(files.size() == 2);
    std::string other = files[0] == file ? files[1] : files[0];
    writeText(file, readText(other));
    REQUIRE(decodeEntry(readText(file)));
  }
  SECTION("writable by others") { REQUIRE(::chmod(file.c_str(), 0666) == 0); }
  SECTION("a symbolic link") {
    fs::rename(file, directory / "elsewhere");
    fs::create_symlink(directory / "elsewhere", file);
  }
  SECTION("a FIFO") {
    fs::remove(file);
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  }
  SECTION("a huge file") { REQUIRE(::truncate(file.c_str(), off_t(1) << 40) == 0); }
  NumberCache cache(options, std::make_shared<FakeCompiler>());
  auto kernel = take(cache.get());
  CHECK(kernel.origin == Origin::Compiled);
  CHECK(cache.counters().rejectedEntries >= 1);
  CHECK(originIn(options) == Origin::Disk);
  CHECK(readText(file) == good);
}

TEST_CASE("an entry of another user is compiled anew and replaced", "[cache]") {
  if (!isRoot()) return;
  TempDirectory directory;
  Options options = optionsFor(directory.path());
  originIn(options);
  REQUIRE(::chown(entryFiles(directory.path()).at(0).c_str(), 65534, 65534) == 0);
  CHECK(originIn(options) == Origin::Compiled);
  CHECK(originIn(options) == Origin::Disk);
}

TEST_CASE("an entry that is a directory fails the publish, not the call", "[cache]") {
  TempDirectory directory;
  Options options = optionsFor(directory.path());
  originIn(options);
  std::string file = entryFiles(directory.path()).at(0);
  fs::remove(file);
  fs::create_directory(file);
  NumberCache cache(options, std::make_shared<FakeCompiler>());
  REQUIRE(cache.get());
  CHECK(cache.counters().publishFailures == 1);
}

TEST_CASE("directories that are not private are refused", "[cache]") {
  TempDirectory directory;
  Options options = optionsFor(directory / "cache");
  originIn(options);
  std::string refused;
  SECTION("the root") { refused = directory / "cache"; }
  SECTION("the version") { refused = directory / "cache/v1"; }
  SECTION("the fan-out") { refused = fs::path(entryFiles(directory.path()).at(0)).parent_path(); }
  REQUIRE(::chmod(refused.c_str(), 0777) == 0);
  CHECK(originIn(options) == Origin::Compiled);
  REQUIRE(::chmod(refused.c_str(), 0700) == 0);
  CHECK(originIn(options) == Origin::Disk);
}

TEST_CASE("a root behind a symbolic link is used, a link inside is not", "[cache]") {
  TempDirectory directory;
  fs::create_directory(directory / "scratch");
  ::chmod((directory / "scratch").c_str(), 0700);
  fs::create_symlink(directory / "scratch", directory / "cache");
  Options options = optionsFor(directory / "cache");
  CHECK(originIn(options) == Origin::Compiled);
  CHECK(originIn(options) == Origin::Disk);
  fs::rename(directory / "scratch/v1", directory / "v1");
  fs::create_symlink(directory / "v1", directory / "scratch/v1");
  CHECK(originIn(options) == Origin::Compiled);
}

TEST_CASE("a directory that belongs to root, when we do not, only costs the cache", "[cache]") {
  if (!isRoot()) return;
  TempDirectory directory;
  originIn(optionsFor(directory / "cache"));
  ::chmod(directory.path().c_str(), 0755);
  std::string readOnly = directory / "empty";
  fs::create_directory(readOnly);
  ::chmod(readOnly.c_str(), 0755);
  CHECK(waitFor(startChild([&] {
          if (::setgroups(0, nullptr) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) return 10;
          for (const std::string& path : {readOnly, readOnly + "/below/it", directory / "cache"}) {
            NumberCache cache(optionsFor(path), std::make_shared<FakeCompiler>());
            if (!cache.get()) return 1;
            if (cache.counters().compiles != 1 || cache.counters().published != 0) return 2;
          }
          return 0;
        })) == 0);
}

TEST_CASE("a full disk only costs the cache", "[cache]") {
  TempDirectory directory;
  originIn(optionsFor(directory / "cache"));
  SECTION("no file may grow") {
    CHECK(waitFor(startChild([&] {
            ::signal(SIGXFSZ, SIG_IGN);
            rlimit limit{100, 100};
            if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 10;
            NumberCache cache(optionsFor(directory / "cache"), std::make_shared<FakeCompiler>());
            if (!cache.get(1)) return 1;
            return cache.counters().publishFailures == 1 ? 0 : 2;
          })) == 0);
    CHECK(entryFiles(directory.path()).size() == 1);
    for (const auto& file : fs::recursive_directory_iterator(directory.path()))
      CHECK(file.path().filename().string().rfind(kTemporaryPrefix, 0) != 0);
  }
  SECTION("no descriptor is left") {
    CHECK(waitFor(startChild([&] {
            NumberCache cache(optionsFor(directory / "cache"), std::make_shared<FakeCompiler>());
            rlimit limit{3, 3};
            if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 10;
            return cache.get() ? 0 : 1;
          })) == 0);
  }
}

TEST_CASE("a cache that is removed under a process is made again", "[cache]") {
  TempDirectory directory;
  NumberCache cache(optionsFor(directory / "cache"), std::make_shared<FakeCompiler>());
  REQUIRE(cache.get(0));
  fs::remove_all(directory / "cache");
  REQUIRE(cache.get(1));
  CHECK(entryFiles(directory.path()).size() == 1);
}

TEST_CASE("threads that want the same kernel compile it once, others in parallel", "[cache]") {
  TempDirectory directory;
  auto compiler = std::make_shared<FakeCompiler>(nullptr, 10);
  NumberCache cache(optionsFor(directory.path()), compiler);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 32; ++i) {
        const int number = (i + t) % 32;
        auto kernel = cache.get(number);
        if (!kernel || *kernel->bytes != bytesOf(number)) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(compiler->compiles == 32);
  CHECK(entryFiles(directory.path()).size() == 32);
}

namespace {

/// Warnings that several jobs on a cache with these options draw.
std::vector<std::string> warningsOf(Options options, std::shared_ptr<FileOps> ops = std::make_shared<FileOps>()) {
  std::vector<std::string> warnings;
  options.log = Log("", [&](LogLevel level, std::string_view line) {
    if (level == LogLevel::Warning) warnings.emplace_back(line);
  });
  NumberCache cache(options, std::make_shared<FakeCompiler>(), std::move(ops));
  for (int number : {0, 1, 2}) REQUIRE(cache.get(number));
  return warnings;
}

} // namespace

TEST_CASE("a directory that cannot be used is warned of once, with the reason", "[cache]") {
  TempDirectory directory;
  Options options = optionsFor(directory / "cache");
  CHECK(warningsOf(options).empty());
  CHECK(warningsOf(options).empty());
  const std::string prefix = "the kernel cache " + (directory / "cache");
  SECTION("its mode") {
    REQUIRE(::chmod((directory / "cache").c_str(), 0777) == 0);
    CHECK(warningsOf(options) ==
          std::vector<std::string>{prefix + " is not used: it is writable by others (mode 0777); "
                                            "chmod go-w makes it private"});
  }
  SECTION("the mode of a folder in it") {
    REQUIRE(::chmod((directory / "cache/v1").c_str(), 0770) == 0);
    CHECK(warningsOf(options) == std::vector<std::string>{prefix + " is not used: " + (directory / "cache/v1") +
                                                          " is writable by others (mode 0770); chmod go-w makes it "
                                                          "private"});
  }
  SECTION("its mode, where it is only read") {
    REQUIRE(::chmod((directory / "cache").c_str(), 0777) == 0);
    options.mode = Mode::ReadOnly;
    CHECK(warningsOf(options).size() == 1);
  }
  SECTION("its owner") {
    if (::geteuid() != 0) return;
    REQUIRE(::chown((directory / "cache").c_str(), 65534, 65534) == 0);
    CHECK(warningsOf(options) ==
          std::vector<std::string>{prefix + " is not used: it belongs to user 65534, not to user 0"});
  }
  SECTION("it is a file") {
    options.directory = directory / "file";
    writeText(options.directory, "");
    CHECK(warningsOf(options) ==
          std::vector<std::string>{"the kernel cache " + options.directory + " stores nothing: Not a directory"});
  }
  SECTION("its disk is full") {
    fs::remove_all(directory / "cache/v1");
    auto full =
        std::make_shared<ScriptedOps>([](int, const char* name) { return std::string(name) == "write" ? ENOSPC : 0; });
    CHECK(warningsOf(options, full) == std::vector<std::string>{prefix + " stores nothing: No space left on device"});
  }
  SECTION("there is none") {
    options.directory.clear();
    CHECK(warningsOf(options).size() == 1);
    options.mode = Mode::Off;
    CHECK(warningsOf(options).empty());
  }
  SECTION("it is switched off") {
    REQUIRE(::chmod((directory / "cache").c_str(), 0777) == 0);
    options.mode = Mode::Off;
    CHECK(warningsOf(options).empty());
  }
}

TEST_CASE("what goes to the sink goes to the file as well", "[cache]") {
  TempDirectory directory;
  std::string heard;
  const Log log(directory / "log", [&](LogLevel level, std::string_view line) {
    heard += (level == LogLevel::Warning ? "warning " : "event ") + std::string(line) + "\n";
  });
  log.line("one");
  log.warn("two");
  Log(log).warn("two");
  CHECK(heard == "event one\nwarning two\n");
  const std::string text = readText(directory / "log");
  CHECK_THAT(text, Catch::Contains("] one\n"));
  CHECK_THAT(text, Catch::EndsWith("] warning: two\n"));
}

TEST_CASE("names in the log control no terminal and add no lines", "[cache]") {
  TempDirectory directory;
  std::string heard;
  const Log log(directory / "log", [&](LogLevel, std::string_view line) { heard = line; });
  log.line("compiled \x1b[2Ja\nb\xff");
  CHECK(heard == "compiled \\x1b[2Ja\\x0ab\uFFFD");
  CHECK_THAT(readText(directory / "log"), Catch::EndsWith("] " + heard + "\n"));
}
