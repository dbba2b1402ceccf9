// The cache of kernels, and the environment it depends on, as users of the command meet them.
#include "command.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <optional>

using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kEmit = "emit --expr 'q_idx >= kv_idx' --stage cubin --arch sm_80 --head-dim 64";

/// A variable of the environment, set or unset (null) for the life of the object; of this process and so of the command.
class Variable {
public:
  Variable(const char* name, const char* value) : name(name) {
    if (const char* old = std::getenv(name)) before = old;
    set(value);
  }
  ~Variable() { set(before ? before->c_str() : nullptr); }
  Variable(const Variable&) = delete;

private:
  void set(const char* value) { value ? ::setenv(name, value, 1) : ::unsetenv(name); }
  const char* name;
  std::optional<std::string> before;
};

bool noNvrtc() {
  const Variable off("ATTNC_CACHE_MODE", "off");
  const Outcome outcome = attnc::test::attnc(kEmit);
  if (outcome.exitCode == 0) return false;
  REQUIRE_THAT(outcome.err, Contains("NVRTC"));
  WARN("SKIPPED: NVRTC was not found");
  return true;
}

} // namespace

TEST_CASE("NV_NVVM_VERSION keeps kernels apart, and a value that NVRTC refuses is the environment's fault") {
  const Variable unset("NV_NVVM_VERSION", nullptr);
  if (noNvrtc()) return;
  const Folder folder;
  const Variable cache("ATTNC_CACHE_DIR", (folder / "cache").c_str()), log("ATTNC_LOG", (folder / "log").c_str());
  const auto emitWith = [&](const char* version) {
    const Variable set("NV_NVVM_VERSION", version);
    const Outcome outcome = attnc::test::attnc(kEmit);
    REQUIRE(outcome.exitCode == 0);
    return outcome.out;
  };
  const std::string latest = emitWith("nvvm-latest"), plain = emitWith(nullptr);
  CHECK((latest != plain)); // not to be printed
  const std::string compiles = readFile(folder / "log");
  CHECK((emitWith("nvvm-latest") == latest));
  CHECK((emitWith(nullptr) == plain));
  CHECK(readFile(folder / "log") == compiles); // both from the disk

  const Variable nonsense("NV_NVVM_VERSION", "nonsense");
  for (int i = 0; i < 2; ++i) {
    const Outcome refused = attnc::test::attnc(kEmit);
    CHECK(refused.exitCode == 3);
    CHECK(refused.out.size() == 0);
    CHECK_THAT(refused.err, Contains("NV_NVVM_VERSION"));
    CHECK_THAT(refused.err, !Contains("bug"));
  }
}

TEST_CASE("a cache that cannot be used is told once on stderr, and the command goes on") {
  if (noNvrtc()) return;
  const Folder folder;
  std::filesystem::create_directory(folder / "cache");
  const Variable cache("ATTNC_CACHE_DIR", (folder / "cache").c_str());
  const auto errorsWith = [](const char* name, const std::string& value, const std::string& options = "") {
    const Variable variable(name, value.c_str());
    const Outcome outcome = attnc::test::attnc(kEmit + options);
    CHECK(outcome.exitCode == 0);
    CHECK(outcome.out.size() > 1000);
    return outcome.err;
  };
  CHECK(errorsWith("ATTNC_CACHE_MODE", "rw") == "");
  CHECK(errorsWith("ATTNC_CACHE_MODE", "readonly") ==
        "attnc: warning: ATTNC_CACHE_MODE is `readonly`, none of rw, ro, off; rw is used\n");
  CHECK(errorsWith("ATTNC_CACHE_MAX_BYTES", "1 GB") ==
        "attnc: warning: ATTNC_CACHE_MAX_BYTES is `1 GB`, not a size such as 500M or 2G; 1G is used\n");
  CHECK(errorsWith("ATTNC_CACHE_MODE", "readonly", " --no-cache") == "");

  std::filesystem::permissions(folder / "cache", std::filesystem::perms::all);
  const std::string unsafe = errorsWith("ATTNC_LOG", folder / "log");
  CHECK(unsafe == "attnc: warning: the kernel cache " + (folder / "cache") +
                      " is not used: it is writable by others (mode 0777); chmod go-w makes it private\n");
  CHECK_THAT(readFile(folder / "log"), Contains("warning: the kernel cache"));
}
