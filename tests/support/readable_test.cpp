// Text of others in messages: one line of UTF-8 that steers no terminal.
#include "support/readable.h"

#include <catch2/catch.hpp>

using namespace attnc;

TEST_CASE("what steers a terminal is escaped, and what is no UTF-8 replaced", "[text]") {
  const std::pair<std::string, std::string> rows[] = {
      {"q_idx ≥ kv_idx, 文, 😀", "q_idx ≥ kv_idx, 文, 😀"},
      {"a\x1b[2Jb\x07\n\r\tc\x7f", "a\\x1b[2Jb\\x07\\x0a\\x0d\\x09c\\x7f"},
      {std::string("a\0b", 3), "a\\x00b"},
      {"\xc2\x9b"
       "31m \xc2\x85",
       "\\x9b31m \\x85"}, // C1
      {"\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6\xd8\x9c", "\\u2028\\u202e\\u2066\\u061c"},
      {"\xe2\x80\x8e\xe2\x80\x8f\xe2\x81\xa9\xef\xbb\xbf", "\\u200e\\u200f\\u2069\\ufeff"},
      {"\xc2\xa0\xe2\x80\x8d\xe2\x80\xaf\xe2\x81\xaa", "\xc2\xa0\xe2\x80\x8d\xe2\x80\xaf\xe2\x81\xaa"}, // next to these
      {"\xff \xc0\x80 \xed\xa0\x80 \xe2\x80", "� �� ��� ��"}, // overlong, a surrogate, cut short
  };
  for (const auto& [text, want] : rows) {
    CHECK(readable(text) == want);
    CHECK(readable(want) == want);
  }
  CHECK(readableLines("a\x1b\nb\r\n") == "a\\x1b\nb\\x0d\n");
}
