#include "cache/pack.h"

#include "cache/fixtures.h"

#include <catch2/catch.hpp>

#include <filesystem>

using namespace attnc;
using namespace attnc::cache;
using namespace attnc::cache::test;
using Catch::Contains;

namespace {

std::vector<PackedValue> sampleValues() {
  return {
      {contentOf(2), "two", bytesOf(2)}, {contentOf(1), "one", std::string("\177EL\0F", 5)}, {contentOf(3), "", ""}};
}

Expected<std::shared_ptr<const Pack>> openBytes(const TempDirectory& directory, const std::string& bytes) {
  writeText(directory / "pack", bytes);
  return Pack::open(directory / "pack");
}

} // namespace

TEST_CASE("a pack gives back what was packed", "[cache]") {
  TempDirectory directory;
  auto pack = take(openBytes(directory, encodePack("maker", sampleValues())));
  CHECK(pack->maker() == "maker");
  REQUIRE(pack->rows().size() == 3);
  for (const PackedValue& value : sampleValues()) {
    const Pack::Row& row = pack->rows().at(value.content);
    CHECK(row.name == value.name);
    auto bytes = take(pack->read(row));
    CHECK(bytes == value.bytes);
  }
}

TEST_CASE("a pack depends on neither order nor repetition", "[cache]") {
  std::vector<PackedValue> values = sampleValues();
  const std::string bytes = encodePack("maker", values);
  std::swap(values[0], values[2]);
  values.push_back(values[1]);
  CHECK(encodePack("maker", values) == bytes);
  CHECK(encodePack("other", values) != bytes);
}

TEST_CASE("an open pack outlives its replacement by rename", "[cache]") {
  TempDirectory directory;
  auto pack = take(openBytes(directory, encodePack("maker", sampleValues())));
  writeText(directory / "new", "no pack");
  std::filesystem::rename(directory / "new", directory / "pack");
  CHECK(pack->read(pack->rows().at(contentOf(2))) == bytesOf(2));
}

TEST_CASE("no changed, cut or longer pack gives a wrong value", "[cache]") {
  TempDirectory directory;
  const std::string bytes = encodePack("maker", sampleValues());
  const auto isSound = [&](const std::string& changed) {
    auto pack = openBytes(directory, changed);
    if (!pack) {
      CHECK(pack.error().blame == Blame::Environment);
      return false;
    }
    for (const auto& [content, row] : (*pack)->rows())
      if (!(*pack)->read(row)) return false;
    return true;
  };
  REQUIRE(isSound(bytes));
  for (size_t length = 0; length < bytes.size(); ++length)
    if (isSound(bytes.substr(0, length))) FAIL("sound after " << length << " bytes");
  CHECK_FALSE(isSound(bytes + '\0'));
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = char(changed[at] ^ 0x10);
    if (isSound(changed)) FAIL("byte " << at << " may change");
  }
}

TEST_CASE("what is no pack says why", "[cache]") {
  TempDirectory directory;
  const std::string bytes = encodePack("maker", sampleValues());
  const auto why = [&](const std::string& changed) { return refusalOf(openBytes(directory, changed)).message; };
  CHECK_THAT(why(""), Contains("is no pack"));
  CHECK_THAT(why("ELF"), Contains("is no pack"));
  std::string other = bytes;
  other[8] = 9;
  CHECK_THAT(why(other), Contains("its format is 9, expected 1"));
  CHECK_THAT(why(bytes.substr(0, bytes.size() - 1)), Contains("is damaged"));
  CHECK_THAT(why(bytes.substr(0, 20)), Contains("cut off"));
  other = bytes;
  other[30] = char(other[30] ^ 1);
  CHECK_THAT(why(other), Contains("checksum"));
  CHECK_THAT(Pack::open(directory / "none").error().message, Contains("No such file"));
  CHECK_THAT(Pack::open(directory.path()).error().message, Contains("is no file"));
}
