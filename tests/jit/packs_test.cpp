#include "jit/packs.h"

#include "helpers/temp_directory.h"
#include "jit/fixtures.h"
#include "jit/kernel_cache.h"

#include <catch2/catch.hpp>

#include <filesystem>

using namespace attnc;
using namespace attnc::jit;
using namespace attnc::jit::test;
using namespace attnc::test;
using Catch::Contains;

namespace {

std::string ourMaker() { return "attnc 1"; }

/// A pack of the sample.
std::string writePack(const std::string& path, const std::string& maker = ourMaker()) {
  auto value = take(KernelCache(cache::Options{}, std::make_shared<FakeKernelCompiler>()).packed(sampleSource()));
  writeText(path, cache::encodePack(maker, {value}));
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
        cache(cache::Options{.mayCompile = mayCompile}, compiler, {}, {packs, nullptr}) {}
};

} // namespace

TEST_CASE("a packed kernel is served without compiler and cache", "[jit]") {
  TempDirectory directory;
  Packed packed({writePack(directory / "a")});
  auto kernel = take(packed.cache.getOrCompile(sampleSource()));
  CHECK(originOf(kernel) == cache::Origin::Disk);
  CHECK(codeOf(kernel) == codeOf(sampleResult()));
  CHECK(packed.compiler->compiles == 0);
  KernelSource other = sampleSource();
  other.text += " ";
  CHECK_FALSE(packed.cache.getOrCompile(other));
}

TEST_CASE("equal kernels make equal packs, however long they took to compile", "[jit]") {
  const auto packed = [](double ms) {
    auto compiler = std::make_shared<FakeKernelCompiler>();
    compiler->ms = ms;
    return cache::encodePack("maker", {take(KernelCache(cache::Options{}, compiler).packed(sampleSource()))});
  };
  CHECK(packed(1.5) == packed(72));
}

TEST_CASE("a pack is preferred to compiling, and one may be added later", "[jit]") {
  TempDirectory directory;
  Packed packed({}, true);
  REQUIRE(packed.packs->add(writePack(directory / "a")));
  REQUIRE(packed.cache.getOrCompile(sampleSource()));
  CHECK(packed.compiler->compiles == 0);
  CHECK_THAT(refusalOf(packed.packs->add(directory / "b")).message,
             Contains("cannot open the pack " + (directory / "b")));
}

TEST_CASE("a pack of another version fails each call, with both versions", "[jit]") {
  TempDirectory directory;
  Packed packed({writePack(directory / "a", "attnc 2")}, true);
  for (int i = 0; i < 2; ++i) {
    const Error refused = refusalOf(packed.cache.getOrCompile(sampleSource()));
    CHECK(refused.blame == Blame::Environment);
    CHECK_THAT(refused.message, Contains("was made by attnc 2, and this is attnc 1"));
    CHECK_THAT(refused.remedy, Contains("attnc pack"));
  }
  CHECK(packed.compiler->compiles == 0);
}

TEST_CASE("a damaged kernel in a pack is compiled instead, with a warning", "[jit]") {
  TempDirectory directory;
  std::string bytes = readText(writePack(directory / "a"));
  bytes.back() = char(bytes.back() ^ 1);
  writeText(directory / "a", bytes);
  Packed packed({directory / "a"}, true);
  auto kernel = take(packed.cache.getOrCompile(sampleSource()));
  CHECK(originOf(kernel) == cache::Origin::Compiled);
  REQUIRE(packed.warnings.size() == 1);
  CHECK_THAT(packed.warnings[0], Contains("is damaged: sample.cu sample sm_90a"));
}

namespace {

/// What a process has whose only pack is the default one.
struct WithDefault {
  std::shared_ptr<FakeKernelCompiler> compiler = std::make_shared<FakeKernelCompiler>();
  std::vector<std::string> lines;
  KernelCache cache;

  explicit WithDefault(const DefaultPack& pack, cache::Options options = {})
      : cache(std::move(options), compiler, {},
              {nullptr, std::make_shared<Packs>(pack, ourMaker, cache::Log("", [this](LogLevel, std::string_view line) {
                                                  lines.emplace_back(line);
                                                }))}) {}
};

} // namespace

TEST_CASE("the default pack is searched after the cache and before the compiler", "[jit]") {
  TempDirectory directory;
  const cache::Options options{.directory = directory / "cache"};
  const std::string path = writePack(directory / "a");
  WithDefault fresh({path, false}, options);
  auto kernel = take(fresh.cache.getOrCompile(sampleSource()));
  CHECK(originOf(kernel) == cache::Origin::Disk);
  CHECK(fresh.compiler->compiles == 0);
  CHECK(fresh.compiler->identities == 0);
  CHECK_FALSE(std::filesystem::exists(directory / "cache"));

  KernelSource other = sampleSource();
  other.text += " ";
  REQUIRE(fresh.cache.getOrCompile(other));
  CHECK(fresh.compiler->compiles == 1);

  REQUIRE(WithDefault({}, options).cache.getOrCompile(sampleSource())); // the cache now has the sample
  WithDefault later({path, false}, options);
  REQUIRE(later.cache.getOrCompile(sampleSource()));
  CHECK(later.lines.empty()); // the pack was not even opened
}

TEST_CASE("a default pack that cannot be used is passed over", "[jit]") {
  TempDirectory directory;
  const auto passesOver = [](const DefaultPack& pack, const std::string& why) {
    WithDefault process(pack);
    for (const char* source : {"one", "two"}) {
      KernelSource job = sampleSource();
      job.text = source;
      auto kernel = take(process.cache.getOrCompile(job));
      CHECK(originOf(kernel) == cache::Origin::Compiled);
    }
    REQUIRE(process.lines.size() == 1);
    CHECK_THAT(process.lines[0], Contains(why) && Contains("passed over"));
  };
  passesOver({directory / "none", true}, "cannot open the pack");
  passesOver({writePack(directory / "stale", "attnc 0"), true}, "was made by attnc 0");
  const std::string path = writePack(directory / "a"), bytes = readText(path);
  writeText(directory / "cut", bytes.substr(0, bytes.size() / 2));
  passesOver({directory / "cut", true}, "is damaged");
  writeText(directory / "empty", "");
  passesOver({directory / "empty", true}, "is no pack");
  passesOver({directory.path(), true}, "is no file");

  std::filesystem::permissions(path, std::filesystem::perms(0664));
  passesOver({path, true}, "others may write it");
  const auto serves = [](const DefaultPack& pack) {
    WithDefault process(pack);
    return originOf(take(process.cache.getOrCompile(sampleSource()))) == cache::Origin::Disk;
  };
  CHECK(serves({path, false})); // whoever names a pack trusts it
  // Whoever may write this code may write the pack.
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::perms before = std::filesystem::status(own).permissions();
  std::filesystem::permissions(own, before | std::filesystem::perms::group_write);
  CHECK(serves({path, true}));
  std::filesystem::permissions(path, std::filesystem::perms(0666));
  passesOver({path, true}, "others may write it");
  std::filesystem::permissions(own, before);
}

TEST_CASE("a damaged kernel of the default pack is compiled instead", "[jit]") {
  TempDirectory directory;
  std::string bytes = readText(writePack(directory / "a"));
  bytes.back() = char(bytes.back() ^ 1);
  writeText(directory / "a", bytes);
  WithDefault process({directory / "a", false});
  auto kernel = take(process.cache.getOrCompile(sampleSource()));
  CHECK(originOf(kernel) == cache::Origin::Compiled);
}

TEST_CASE("the default pack is that of the variable, none, or one near this code", "[jit]") {
  Env env;
  env.defaultPack = "/some/pack";
  CHECK(findDefaultPack(env).path == "/some/pack");
  CHECK_FALSE(findDefaultPack(env).isFound);
  env.defaultPack = "0";
  CHECK(findDefaultPack(env).path.empty());
  env.defaultPack.clear();
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  CHECK(findDefaultPack(env).path.empty());
  for (const char* place : {"../share/attnc", "share/attnc", "."}) {
    const std::filesystem::path folder = (here / place).lexically_normal(), pack = folder / "kernels.attncpack";
    const bool isNew = std::filesystem::create_directories(folder);
    writeText(pack.string(), "");
    CHECK(findDefaultPack(env).path == pack.string());
    CHECK(findDefaultPack(env).isFound);
    std::filesystem::remove(pack);
    if (isNew) std::filesystem::remove(folder), std::filesystem::remove(folder.parent_path());
  }
}
