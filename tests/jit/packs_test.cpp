#include "jit/packs.h"

#include "helpers/temp_directory.h"
#include "jit/fixtures.h"
#include "jit/kernel_cache.h"

#include <catch2/catch.hpp>

using namespace attnc;
using namespace attnc::jit;
using namespace attnc::jit::test;
using namespace attnc::test;
using Catch::Contains;

namespace {

std::string ourMaker() { return "attnc 1"; }

/// A pack of the sample.
std::string writePack(const std::string& path, const std::string& maker = ourMaker()) {
  auto value = KernelCache(cache::Options{}, std::make_shared<FakeKernelCompiler>()).packed(sampleJob());
  REQUIRE(value);
  writeText(path, cache::encodePack(maker, {*value}));
  return path;
}

/// What a process has that compiles nothing and has no cache.
struct Packed {
  std::shared_ptr<FakeKernelCompiler> compiler = std::make_shared<FakeKernelCompiler>();
  std::vector<std::string> warnings;
  std::shared_ptr<Packs> packs;
  KernelCache cache;

  explicit Packed(const std::vector<std::string>& paths, bool mayCompile = false)
      : packs(std::make_shared<Packs>(paths, ourMaker,
                                      cache::Log("",
                                                 [this](LogLevel level, std::string_view line) {
                                                   if (level == LogLevel::Warning) warnings.emplace_back(line);
                                                 }))),
        cache(cache::Options{.mayCompile = mayCompile}, compiler, {}, packs) {}
};

} // namespace

TEST_CASE("a packed kernel is served without compiler and cache", "[jit]") {
  TempDirectory directory;
  Packed packed({writePack(directory / "a")});
  auto kernel = packed.cache.getOrCompile(sampleJob());
  REQUIRE(kernel);
  CHECK(kernel->origin == cache::Origin::Disk);
  CHECK(encodeResult(kernel->result) == encodeResult(sampleResult()));
  CHECK(packed.compiler->compiles == 0);
  CompileJob other = sampleJob();
  other.source += " ";
  CHECK_FALSE(packed.cache.getOrCompile(other));
}

TEST_CASE("a pack is preferred to compiling, and one may be added later", "[jit]") {
  TempDirectory directory;
  Packed packed({}, true);
  REQUIRE(packed.packs->add(writePack(directory / "a")));
  REQUIRE(packed.cache.getOrCompile(sampleJob()));
  CHECK(packed.compiler->compiles == 0);
  const Status missing = packed.packs->add(directory / "b");
  REQUIRE_FALSE(missing);
  CHECK_THAT(missing.error().message, Contains("cannot open the pack " + (directory / "b")));
}

TEST_CASE("a pack of another version fails each call, with both versions", "[jit]") {
  TempDirectory directory;
  Packed packed({writePack(directory / "a", "attnc 2")}, true);
  for (int i = 0; i < 2; ++i) {
    auto refused = packed.cache.getOrCompile(sampleJob());
    REQUIRE_FALSE(refused);
    CHECK(refused.error().blame == Blame::Environment);
    CHECK_THAT(refused.error().message, Contains("was made by attnc 2, and this is attnc 1"));
    CHECK_THAT(refused.error().remedy, Contains("attnc pack"));
  }
  CHECK(packed.compiler->compiles == 0);
}

TEST_CASE("a damaged kernel in a pack is compiled instead, with a warning", "[jit]") {
  TempDirectory directory;
  std::string bytes = readText(writePack(directory / "a"));
  bytes.back() = char(bytes.back() ^ 1);
  writeText(directory / "a", bytes);
  Packed packed({directory / "a"}, true);
  auto kernel = packed.cache.getOrCompile(sampleJob());
  REQUIRE(kernel);
  CHECK(kernel->origin == cache::Origin::Compiled);
  REQUIRE(packed.warnings.size() == 1);
  CHECK_THAT(packed.warnings[0], Contains("is damaged: sample.cu sample sm_90a"));
}
