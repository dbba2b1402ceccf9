#include "cache/fixtures.h"

#include <catch2/catch.hpp>

using namespace attnc::cache;
using namespace attnc::cache::test;

namespace {

Entry sampleEntry() {
  return {.key = keyOf(contentOf(), "compiler"), .name = "sample", .compiler = "compiler", .bytes = {"\177EL\0F", 5}};
}

// Puts a right checksum behind changed bytes.
std::string sealed(std::string bytes) {
  bytes.resize(bytes.size() - 32);
  Digest checksum = sha256(bytes);
  return bytes + std::string(reinterpret_cast<const char*>(checksum.bytes.data()), 32);
}

} // namespace

TEST_CASE("an entry is read back as it was written", "[cache]") {
  Entry entry = sampleEntry();
  auto back = decodeEntry(encodeEntry(entry));
  REQUIRE(back);
  CHECK(back->key == entry.key);
  CHECK(back->name == entry.name);
  CHECK(back->compiler == entry.compiler);
  CHECK(back->bytes == entry.bytes);
}

TEST_CASE("every flipped bit, truncation and addition makes an entry unreadable", "[cache]") {
  std::string bytes = encodeEntry(sampleEntry());
  REQUIRE(decodeEntry(bytes));
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = char(changed[bit / 8] ^ (1 << (bit % 8)));
    if (decodeEntry(changed)) FAIL("bit " << bit << " may flip");
  }
  for (size_t length = 0; length < bytes.size(); ++length)
    if (decodeEntry(std::string_view(bytes).substr(0, length))) FAIL("readable after " << length << " bytes");
  for (size_t extra = 1; extra < 64; ++extra)
    if (decodeEntry(bytes + std::string(extra, '\0'))) FAIL("readable with " << extra << " bytes more");
}

TEST_CASE("lengths that lie are refused even under a right checksum", "[cache]") {
  std::string bytes = encodeEntry(sampleEntry());
  // Each byte of the lengths before the header, and of the first text's length behind the key.
  for (size_t at : {8, 12, 13, 14, 15, 16, 17, 20, 23, 24 + 32, 24 + 32 + 1, 24 + 32 + 7})
    for (int value : {0, 1, 127, 128, 255}) {
      std::string changed = bytes;
      if (uint8_t(changed[at]) == value) continue;
      changed[at] = char(value);
      INFO("byte " << at << " is " << value);
      CHECK_FALSE(decodeEntry(sealed(changed)));
    }
}

TEST_CASE("a key changes with the content and with the compiler", "[cache]") {
  const Digest key = keyOf(contentOf(0), "compiler");
  CHECK(keyOf(contentOf(0), "compiler") == key);
  CHECK(keyOf(contentOf(1), "compiler") != key);
  CHECK(keyOf(contentOf(0), "compiler 2") != key);
}

TEST_CASE("SHA-256 is SHA-256", "[cache]") {
  CHECK(sha256("abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  FieldHasher hasher;
  hasher.field("abc");
  std::string framed("\3\0\0\0\0\0\0\0abc", 11);
  CHECK(hasher.finish() == sha256(framed));
}
