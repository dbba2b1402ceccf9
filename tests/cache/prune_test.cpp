#include "cache/fixtures.h"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace attnc::cache;
using namespace attnc::cache::test;
namespace fs = std::filesystem;

namespace {

struct PrunedDirectory {
  PrunedDirectory()
      : ops(std::make_shared<ScriptedOps>([](int, const char*) { return 0; })),
        cache(ops, directory / "cache", Directory::Access::ReadWrite, Directory::Layer::User, Log()) {}

  // An entry with a value of this many bytes, last used `age` seconds ago.
  void add(int number, size_t bytes, int64_t age) {
    Entry entry{.key = keyOf(contentOf(number), "c"), .bytes = std::string(bytes, 'x')};
    REQUIRE(cache.publish(entry));
    std::string hex = entry.key.hex();
    setAge(directory / ("cache/v1/" + hex.substr(0, 2) + "/" + hex.substr(2) + kEntrySuffix), age);
  }
  void setAge(const std::string& path, int64_t age) {
    struct timespec times[2] = {{0, UTIME_OMIT}, {time_t(ops->now() - age), 0}};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  }
  bool has(int number) { return cache.find(keyOf(contentOf(number), "c")).has_value(); }

  TempDirectory directory;
  std::shared_ptr<ScriptedOps> ops;
  Directory cache;
};

} // namespace

TEST_CASE("pruning removes the least recently used entries until the cap holds", "[cache]") {
  PrunedDirectory pruned;
  for (int i = 0; i < 20; ++i) pruned.add(i, 1000, 100'000 - 1000 * i);
  CHECK(pruned.has(0)); // marks the oldest as used
  PruneReport report = Pruner(pruned.cache, 12'000).prune();
  CHECK(report.ran);
  CHECK(report.bytes <= 12'000);
  CHECK(report.bytes > 8'000);
  CHECK(report.removed + report.entries == 20);
  CHECK(pruned.has(0));
  CHECK_FALSE(pruned.has(1));
  CHECK(pruned.has(19));
  CHECK(entryFiles(pruned.directory.path()).size() == size_t(report.entries));
}

TEST_CASE("pruning below the cap removes nothing but old temporary files", "[cache]") {
  PrunedDirectory pruned;
  pruned.add(0, 1000, 1'000'000);
  std::string hex = keyOf(contentOf(0), "c").hex();
  std::string fresh = pruned.directory / ("cache/v1/" + hex.substr(0, 2) + "/.tmp-host-1-fresh");
  std::string old = pruned.directory / ("cache/v1/" + hex.substr(0, 2) + "/.tmp-host-1-old");
  std::string oldAtTop = pruned.directory / "cache/v1/.tmp-host-1-old";
  for (const std::string& path : {fresh, old, oldAtTop}) writeText(path, "x");
  pruned.setAge(old, 2 * 3600);
  pruned.setAge(oldAtTop, 2 * 3600);
  PruneReport report = Pruner(pruned.cache, 100'000).prune();
  CHECK(report.removed == 0);
  CHECK(report.temporaries == 2);
  CHECK(pruned.has(0));
  CHECK(fs::exists(fresh));
  CHECK_FALSE(fs::exists(old));
  CHECK_FALSE(fs::exists(oldAtTop));
}

TEST_CASE("an entry that is replaced while others are pruned stays", "[cache]") {
  PrunedDirectory pruned;
  for (int i = 0; i < 4; ++i) pruned.add(i, 1000, 100'000 - i);
  // The pruner looks at each entry once to list it and once more before it removes it: four entries, so the fifth
  // look is the second one at the oldest.
  int looks = 0;
  auto ops = std::make_shared<ScriptedOps>([&](int, const char* name) {
    if (std::string(name) == "statusAt" && ++looks == 5) pruned.add(0, 1000, 0);
    return 0;
  });
  Directory cache(ops, pruned.cache.path(), Directory::Access::ReadWrite, Directory::Layer::User, Log());
  PruneReport report = Pruner(cache, 3'000).prune();
  CHECK(report.removed > 0);
  CHECK(pruned.has(0));
  CHECK_FALSE(pruned.has(1));
}

TEST_CASE("one process prunes at a time and the others go on", "[cache]") {
  PrunedDirectory pruned;
  pruned.add(0, 1000, 0);
  int fd = ::open((pruned.directory / "cache/v1/prune.lock").c_str(), O_RDWR | O_CREAT, 0600);
  REQUIRE(::flock(fd, LOCK_EX) == 0);
  CHECK_FALSE(Pruner(pruned.cache, 1).prune().ran);
  CHECK(pruned.has(0));
  ::close(fd);
  CHECK(Pruner(pruned.cache, 1).prune().ran);
  CHECK_FALSE(pruned.has(0));
}

TEST_CASE("a cache stays below its cap after every publish, of one process or of many", "[cache]") {
  TempDirectory directory;
  Options options = optionsFor(directory.path());
  options.maxBytes = 20'000;
  bool many = false;
  SECTION("of one") {}
  SECTION("of many") { many = true; }
  auto cache = std::make_unique<NumberCache>(options, std::make_shared<FakeCompiler>());
  uint64_t most = 0;
  for (int i = 0; i < 300; ++i) {
    if (many) cache = std::make_unique<NumberCache>(options, std::make_shared<FakeCompiler>());
    REQUIRE(cache->get(i));
    uint64_t bytes = 0;
    for (const std::string& file : entryFiles(directory.path())) bytes += fs::file_size(file);
    REQUIRE(bytes <= options.maxBytes);
    most = std::max(most, bytes);
  }
  CHECK(most > options.maxBytes / 2);
}

TEST_CASE("a publish below the cap does not look at the other entries", "[cache]") {
  PrunedDirectory pruned;
  int lists = 0;
  auto ops = std::make_shared<ScriptedOps>([&](int, const char* name) {
    lists += std::string(name) == "list";
    return 0;
  });
  Directory cache(ops, pruned.cache.path(), Directory::Access::ReadWrite, Directory::Layer::User, Log());
  Pruner pruner(cache, 100'000);
  pruned.add(0, 1000, 0);
  pruner.afterPublish(1000); // the first look of all
  const int first = lists;
  CHECK(first > 0);
  for (int i = 0; i < 50; ++i) pruner.afterPublish(1000);
  CHECK(lists == first);
  SECTION("the cap is passed") { pruner.afterPublish(50'000); }
  SECTION("the sum is lost") { fs::remove(pruned.directory / "cache/v1/published"); }
  SECTION("the sum is damaged") { writeText(pruned.directory / "cache/v1/published", "not a number of "); }
  SECTION("the sum is cut short") { writeText(pruned.directory / "cache/v1/published", "  12"); }
  pruner.afterPublish(1000);
  CHECK(lists > first);
  // The look has made the sum right again.
  const int second = lists;
  pruner.afterPublish(1000);
  CHECK(lists == second);
}

TEST_CASE("of the compilers' identities the newest remain", "[cache]") {
  PrunedDirectory pruned;
  for (int i = 0; i < 100; ++i) pruned.cache.rememberCompiler("stamp " + std::to_string(i), "id " + std::to_string(i));
  CHECK(pruned.cache.compilerIdentities().size() == 100);
  Pruner(pruned.cache, 1 << 20).prune();
  CHECK(pruned.cache.compilerIdentities().size() == 64);
}

TEST_CASE("a damaged identity of a compiler is not believed", "[cache]") {
  PrunedDirectory pruned;
  pruned.cache.rememberCompiler("stamp", "identity");
  REQUIRE(pruned.cache.compilerIdentity("stamp") == std::string("identity"));
  CHECK_FALSE(pruned.cache.compilerIdentity("other stamp"));
  std::string file = pruned.directory / ("cache/v1/compilers/" + sha256("stamp").hex());
  std::string text = readText(file);
  for (size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] ^= 1;
    writeText(file, changed);
    if (pruned.cache.compilerIdentity("stamp")) FAIL("byte " << at << " may change");
  }
}
