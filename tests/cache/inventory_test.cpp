#include "cache/inventory.h"

#include "cache/fixtures.h"
#include "cache/prune.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>

using namespace attnc;
using namespace attnc::cache;
using namespace attnc::cache::test;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

/// A cache with entries, and a look at it from outside.
struct Listed {
  TempDirectory home;
  std::string root = home / "cache";
  NumberCache cache{optionsFor(root), std::make_shared<FakeCompiler>()};
  Directory directory{std::make_shared<FileOps>(), root, Directory::Access::ReadWrite, Directory::Layer::User, Log()};

  void fill(int count) {
    for (int i = 0; i < count; ++i) REQUIRE(cache.get(i));
  }
  /// Ages the file of a number, as if it was last used `seconds` seconds ago.
  std::string age(int number, int64_t seconds) {
    const std::string hex = keyOf(contentOf(number), "fake 1").hex();
    const std::string path = root + "/v1/" + hex.substr(0, 2) + "/" + hex.substr(2) + kEntrySuffix;
    struct timespec times[2] = {{0, UTIME_OMIT}, {time_t(FileOps().now() - seconds), 0}};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
    return path;
  }
  Verification verify() { return take(Inventory(directory).verify()); }
};

} // namespace

TEST_CASE("a listing has every entry, the least recently used first", "[cache]") {
  Listed listed;
  auto none = take(Inventory(listed.directory).list());
  CHECK(none.empty());
  CHECK_FALSE(fs::exists(listed.root)); // looking makes nothing
  listed.fill(3);
  listed.age(1, 5000);
  listed.age(2, 100);
  listed.age(0, 10);
  auto entries = take(Inventory(listed.directory).list());
  REQUIRE(entries.size() == 3);
  const int order[] = {1, 2, 0};
  for (int i = 0; i < 3; ++i) {
    const ListedEntry& entry = entries[size_t(i)];
    REQUIRE(entry.head);
    CHECK(entry.head->key == keyOf(contentOf(order[i]), "fake 1"));
    CHECK(entry.head->compiler == "fake 1");
    CHECK(fs::file_size(listed.root + "/" + entry.file) == entry.bytes);
  }
  CHECK(Inventory(listed.directory).compilers() == 1);
}

TEST_CASE("verifying finds each kind of damage, and only that", "[cache]") {
  Listed listed;
  listed.fill(5);
  CHECK(listed.verify().files == 6);
  CHECK(listed.verify().damaged.empty());
  const auto change = [&](int number, auto edit) {
    const std::string path = listed.age(number, 0);
    std::string bytes = readText(path);
    edit(bytes);
    writeText(path, bytes);
  };
  change(0, [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
  change(1, [](std::string& bytes) { bytes.resize(bytes.size() - 1); });
  change(2, [](std::string& bytes) { bytes[8] = 1; }); // its format
  fs::create_directory(listed.root + "/v1/00");
  fs::rename(listed.age(3, 0), listed.root + "/v1/00/" + std::string(62, '0') + kEntrySuffix);
  for (const auto& file : fs::directory_iterator(listed.root + "/v1/compilers")) writeText(file.path(), "x");
  const Verification found = listed.verify();
  CHECK(found.files == 6);
  CHECK(found.foreign == 1);
  std::vector<std::string> reasons;
  for (const DamagedFile& file : found.damaged) reasons.push_back(file.why);
  std::sort(reasons.begin(), reasons.end());
  CHECK(reasons == std::vector<std::string>{"it is cut off or changed: its checksum does not fit",
                                            "it is cut off or changed: its checksum does not fit",
                                            "it is no identity of a compiler", "it is the entry of another name"});
}

TEST_CASE("a directory that is refused cannot be listed, and says why", "[cache]") {
  Listed listed;
  listed.fill(1);
  fs::permissions(listed.root, fs::perms::all);
  for (const std::string& message :
       {Inventory(listed.directory).list().error().message, Inventory(listed.directory).verify().error().message})
    CHECK_THAT(message, Contains("it is writable by others (mode 0777)"));
}

TEST_CASE("entries go by their age alone, and a dry run keeps them", "[cache]") {
  Listed listed;
  listed.fill(4);
  listed.age(0, 3 * 86400);
  listed.age(1, 2 * 86400);
  PruneLimits limits{.maxBytes = uint64_t(1) << 40, .downTo = 0, .unusedFor = 86400, .dryRun = true};
  for (bool dry : {true, false}) {
    limits.dryRun = dry;
    const PruneReport report = Pruner(listed.directory, 0).prune(limits);
    CHECK(report.ran);
    CHECK(report.removed == 2);
    CHECK(report.entries == 2);
    REQUIRE(report.removedFiles.size() == 2);
    CHECK(placeOf(report.removedFiles[0]).find(keyOf(contentOf(0), "fake 1").hex().substr(2)) != std::string::npos);
    CHECK(entryFiles(listed.root).size() == (dry ? 4 : 2));
  }
  CHECK(listed.verify().damaged.empty());
}

TEST_CASE("everything goes, and the cache is filled again", "[cache]") {
  Listed listed;
  listed.fill(3);
  const PruneReport report =
      Pruner(listed.directory, 0).prune({.maxBytes = 0, .downTo = 0, .unusedFor = {}, .forgetsCompilers = true});
  CHECK(report.removed == 3);
  CHECK(report.compilers == 1);
  CHECK(report.bytes == 0);
  CHECK(entryFiles(listed.root).empty());
  CHECK(Inventory(listed.directory).compilers() == 0);
  listed.fill(3); // from memory
  NumberCache other(optionsFor(listed.root), std::make_shared<FakeCompiler>());
  REQUIRE(other.get(7));
  CHECK(entryFiles(listed.root).size() == 1);
}
