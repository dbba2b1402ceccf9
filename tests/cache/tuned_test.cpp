// Files of measured choices: what survives, what is refused, and two processes that write at once.
#include "cache/tuned.h"

#include "cache/fixtures.h"
#include "cache/inventory.h"
#include "cache/prune.h"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <sys/stat.h>
#include <thread>

using namespace attnc;
using namespace attnc::cache;
using namespace attnc::cache::test;
namespace fs = std::filesystem;

namespace {

TunedChoice choice(const std::string& tile = "192x128x12") {
  return {.key = {.device = "NVIDIA H200",
                  .arch = "sm_90a",
                  .mod = "abc",
                  .options = "1 2 3:x",
                  .shape = "gqa 4, q 2^13, kv 2^13"},
          .kernel = "kind=forward \"quoted\" \\",
          .tile = tile,
          .times = {{"192x128x12", 0.125}, {"128x64x8", 0.2}},
          .date = "2026-02-03T04:05:06Z",
          .maker = "attnc 0.1.0 (templates 0123456789ab)"};
}

struct Home {
  TempDirectory home;
  std::string root = home / "cache";
  Directory directory{std::make_shared<FileOps>(), root, Directory::Access::ReadWrite, Directory::Layer::User, Log()};

  std::string store(const TunedChoice& of) { return directory.publishTuned(digestOf(of.key), encodeTuned(of)); }
};

} // namespace

TEST_CASE("a choice is read as it was written", "[tuned]") {
  const TunedChoice back = take(decodeTuned(encodeTuned(choice())));
  CHECK(back.key == choice().key);
  CHECK(back.kernel == choice().kernel);
  CHECK(back.tile == choice().tile);
  CHECK(back.times == choice().times);
  CHECK(back.date == choice().date);
  CHECK(back.maker == choice().maker);
}

TEST_CASE("a text that is no choice is none, cut off anywhere or with a member of another kind", "[tuned]") {
  const std::string text = encodeTuned(choice());
  for (size_t bytes = 0; bytes + 2 < text.size(); ++bytes) CHECK_FALSE(decodeTuned(text.substr(0, bytes)));
  for (auto [what, by] : {std::pair("\"format\": 1", "\"format\": 2"),
                          {"\"tile\": \"192", "\"tole\": \"192"},
                          {"\"date\": \"2026-02-03T04:05:06Z\"", "\"date\": 7"},
                          {"\"ms\": 0.2", "\"ms\": \"0.2\""}}) {
    std::string changed = text;
    const size_t at = changed.find(what);
    INFO(what);
    REQUIRE(at != std::string::npos);
    changed.replace(at, std::string(what).size(), by);
    CHECK_FALSE(decodeTuned(changed));
  }
  CHECK_FALSE(decodeTuned("[]"));
}

TEST_CASE("each part of the key makes another file", "[tuned]") {
  const TunedKey plain = choice().key;
  for (std::string TunedKey::*part :
       {&TunedKey::device, &TunedKey::arch, &TunedKey::mod, &TunedKey::options, &TunedKey::shape}) {
    TunedKey other = plain;
    other.*part += "x";
    CHECK(digestOf(other) != digestOf(plain));
  }
}

TEST_CASE("a choice lies beside the kernels, listed, verified and removed with them", "[tuned]") {
  Home home;
  CHECK_FALSE(home.directory.findTuned(digestOf(choice().key)));
  const std::string path = home.store(choice());
  CHECK(path == home.root + "/v1/tuned/" + digestOf(choice().key).hex() + ".json");
  const auto found = take(home.directory.findTuned(digestOf(choice().key)));
  CHECK(found.path == path);
  CHECK(found.text == encodeTuned(choice()));
  Inventory inventory(home.directory);
  auto listed = take(inventory.tuned());
  REQUIRE(listed.size() == 1);
  CHECK("v1/tuned/" + digestOf(choice().key).hex() + ".json" == listed[0].file);
  REQUIRE(listed[0].choice);
  CHECK(listed[0].choice->tile == "192x128x12");
  CHECK(inventory.list()->empty()); // no kernel
  CHECK(inventory.verify()->files == 1);
  CHECK(inventory.verify()->damaged.empty());

  TunedChoice other = choice();
  other.key.device = "NVIDIA A100";
  fs::copy_file(path, home.root + "/v1/tuned/" + digestOf(other.key).hex() + ".json");
  writeText(home.root + "/v1/tuned/0.json", "{");
  const auto damaged = inventory.verify()->damaged;
  REQUIRE(damaged.size() == 2);
  CHECK((damaged[0].why == "it is no choice of a tile" || damaged[1].why == "it is no choice of a tile"));
  CHECK((damaged[0].why == "it is the choice of another name" || damaged[1].why == "it is the choice of another name"));

  CHECK(Pruner(home.directory, 0).prune().tuned == 0); // no limit of size
  CHECK(inventory.tuned()->size() == 3);
  struct timespec times[2] = {{0, UTIME_OMIT}, {time_t(FileOps().now() - 5000), 0}};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  PruneLimits old{.maxBytes = std::numeric_limits<uint64_t>::max(), .downTo = 0, .unusedFor = 4000};
  old.dryRun = true;
  CHECK(Pruner(home.directory, 0).prune(old).tuned == 1);
  CHECK(fs::exists(path));
  old.dryRun = false;
  CHECK(Pruner(home.directory, 0).prune(old).tuned == 1);
  CHECK_FALSE(fs::exists(path));
  CHECK(Pruner(home.directory, 0).prune({.maxBytes = 0, .downTo = 0, .unusedFor = {}, .forgetsTuned = true}).tuned ==
        2);
  CHECK(inventory.tuned()->empty());
}

TEST_CASE("a file that others may write is refused", "[tuned]") {
  Home home;
  const std::string path = home.store(choice());
  fs::permissions(path, fs::perms::all);
  CHECK_FALSE(home.directory.findTuned(digestOf(choice().key)));
}

TEST_CASE("of writers at once one stays, whole", "[tuned]") {
  Home home;
  home.store(choice());
  std::vector<std::thread> writers;
  std::atomic<bool> isWriting{true};
  for (const char* tile : {"a", "bb"})
    writers.emplace_back([&home, tile] {
      TunedChoice mine = choice(tile);
      mine.times.assign(size_t(100 * std::string(tile).size()), {tile, 1.0}); // of different lengths
      Directory own{std::make_shared<FileOps>(), home.root, Directory::Access::ReadWrite, Directory::Layer::User,
                    Log()};
      for (int i = 0; i < 100; ++i) own.publishTuned(digestOf(mine.key), encodeTuned(mine));
    });
  std::thread reader([&] {
    while (isWriting) {
      const auto found = home.directory.findTuned(digestOf(choice().key));
      const auto read = found ? decodeTuned(found->text) : std::nullopt;
      if (!read || (read->tile != "192x128x12" && read->times.size() != 100 * read->tile.size())) isWriting = false;
    }
  });
  for (std::thread& writer : writers) writer.join();
  CHECK(isWriting.exchange(false)); // the reader saw no torn file
  reader.join();
  const auto last = take(decodeTuned(home.directory.findTuned(digestOf(choice().key))->text));
  CHECK((last.tile == "a" || last.tile == "bb"));
}

TEST_CASE("layers are searched in order, and only the user's is written", "[tuned]") {
  Home user, system;
  system.store(choice("128x64x8"));
  Options options = optionsFor(user.root);
  options.readOnlyDirectories = {system.root};
  const Cache cache(options, std::make_shared<FakeCompiler>());
  CHECK(decodeTuned(cache.findTuned(digestOf(choice().key))->text)->tile == "128x64x8");
  CHECK_FALSE(cache.publishTuned(digestOf(choice().key), encodeTuned(choice())).empty());
  CHECK(decodeTuned(cache.findTuned(digestOf(choice().key))->text)->tile == "192x128x12");
  CHECK(decodeTuned(system.directory.findTuned(digestOf(choice().key))->text)->tile == "128x64x8");
  for (Mode mode : {Mode::ReadOnly, Mode::Off}) {
    options.mode = mode;
    const Cache other(options, std::make_shared<FakeCompiler>());
    CHECK(bool(other.findTuned(digestOf(choice().key))) == (mode == Mode::ReadOnly));
    CHECK(other.publishTuned(digestOf(choice().key), "x").empty());
  }
}
