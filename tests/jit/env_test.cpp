#include "helpers/take.h"
#include "jit/arch.h"
#include "jit/cache_options.h"
#include "jit/env.h"

#include <catch2/catch.hpp>

#include <cstdlib>

using namespace attnc;
using namespace attnc::jit;

TEST_CASE("the environment is read once into a struct", "[jit]") {
  ::setenv("ATTNC_CACHE_DIR", "/somewhere", 1);
  Env env = Env::read();
  ::unsetenv("ATTNC_CACHE_DIR");
  CHECK(env.cacheDir == "/somewhere");
  CHECK(Env::read().cacheDir.empty());
  CHECK(envTable().size() >= 8);
}

TEST_CASE("the cache's directory comes from the first variable that names one", "[jit]") {
  Env env;
  CHECK(cacheOptionsFrom(env).directory.empty());
  env.home = "/home/me";
  CHECK(cacheOptionsFrom(env).directory == "/home/me/.cache/attnc");
  env.xdgCacheHome = "relative";
  CHECK(cacheOptionsFrom(env).directory == "/home/me/.cache/attnc");
  env.xdgCacheHome = "/xdg";
  CHECK(cacheOptionsFrom(env).directory == "/xdg/attnc");
  env.cacheDir = "/mine";
  CHECK(cacheOptionsFrom(env).directory == "/mine");
}

TEST_CASE("modes, sizes and lists are read, and nonsense gives the default", "[jit]") {
  Env env;
  auto modeOf = [&](const char* text) {
    env.cacheMode = text;
    return cacheOptionsFrom(env).mode;
  };
  CHECK(modeOf("") == cache::Mode::ReadWrite);
  CHECK(modeOf("rw") == cache::Mode::ReadWrite);
  CHECK(modeOf("ro") == cache::Mode::ReadOnly);
  CHECK(modeOf("off") == cache::Mode::Off);
  CHECK(modeOf("nonsense") == cache::Mode::ReadWrite);
  auto bytesOf = [&](const char* text) {
    env.cacheMaxBytes = text;
    return cacheOptionsFrom(env).maxBytes;
  };
  constexpr uint64_t kDefault = uint64_t(1) << 30;
  CHECK(bytesOf("") == kDefault);
  CHECK(bytesOf("500") == 500);
  CHECK(bytesOf("64K") == 64 << 10);
  CHECK(bytesOf("200M") == 200 << 20);
  CHECK(bytesOf("2G") == uint64_t(2) << 30);
  for (const char* nonsense : {"-1", "G", "1T", "1GB", " 1", "99999999999999999999", "99999999999G"})
    CHECK(bytesOf(nonsense) == kDefault);
  env.cacheReadOnlyDirs = ":/a::/b:";
  CHECK(cacheOptionsFrom(env).readOnlyDirectories == std::vector<std::string>{"/a", "/b"});
}

TEST_CASE("ATTNC_NO_COMPILE forbids compiling unless it is 0", "[jit]") {
  Env env;
  CHECK(cacheOptionsFrom(env).mayCompile);
  env.noCompile = "0";
  CHECK(cacheOptionsFrom(env).mayCompile);
  env.noCompile = "1";
  CHECK_FALSE(cacheOptionsFrom(env).mayCompile);
}

TEST_CASE("a variable that makes no sense is warned of", "[jit]") {
  std::vector<std::string> warnings;
  const auto sink = [&](LogLevel level, std::string_view line) {
    CHECK(level == LogLevel::Warning);
    warnings.emplace_back(line);
  };
  Env env;
  cacheOptionsFrom(env, sink);
  env.cacheMode = "ro";
  env.cacheMaxBytes = "2G";
  cacheOptionsFrom(env, sink);
  CHECK(warnings.empty());
  env.cacheMode = "RO";
  env.cacheMaxBytes = "2 GB";
  cacheOptionsFrom(env, sink);
  CHECK(warnings ==
        std::vector<std::string>{"ATTNC_CACHE_MODE is `RO`, none of rw, ro, off; rw is used",
                                 "ATTNC_CACHE_MAX_BYTES is `2 GB`, not a size such as 500M or 2G; 1G is used"});
}

TEST_CASE("a device's arch has the features of exactly that device", "[jit]") {
  CHECK(archName(8, 0) == "sm_80");
  CHECK(archName(8, 9) == "sm_89");
  CHECK(archName(9, 0) == "sm_90a");
  CHECK(archName(12, 1) == "sm_121a");
}

TEST_CASE("machine code runs where its arch allows", "[jit]") {
  for (const char* name : {"", "sm_", "sm_9", "80", "sm_80b", "sm_90aa", "sm_-90", "sm_90 a", "sm_99999999999"})
    CHECK_FALSE(parseArchName(name));
  CHECK(checkArchRuns("sm_80", 8, 0));
  CHECK(checkArchRuns("sm_80", 8, 9));
  CHECK_FALSE(checkArchRuns("sm_89", 8, 6));
  CHECK_FALSE(checkArchRuns("sm_80", 9, 0));
  CHECK(checkArchRuns("sm_90a", 9, 0));
  CHECK_FALSE(checkArchRuns("sm_90a", 10, 0));
  CHECK_FALSE(checkArchRuns("sm_100a", 10, 3));
  CHECK(checkArchRuns("sm_100f", 10, 3));
  CHECK_FALSE(checkArchRuns("sm_103f", 10, 0));
  CHECK_FALSE(checkArchRuns("sm_100f", 12, 0));
  for (const char* nonsense : {"", "sm_", "sm_9", "90a", "sm_90b", "sm_90aa", "sm_-90"})
    CHECK_FALSE(checkArchRuns(nonsense, 9, 0));
  CHECK(refusalOf(checkArchRuns("sm_90a", 8, 9)).message ==
        "the kernel is compiled for sm_90a and the device is sm_89");
}
