// Numbers and texts as bytes, one after another: how entries of the cache are written and read.
//
// Numbers are little endian, in 8 bytes; a text is its length and its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace attnc::cache {

/// Appends the low `bytes` bytes of a number.
void putNumber(std::string& out, uint64_t value, int bytes = 8);
void putText(std::string& out, std::string_view text);

/// Returns the number in `count` bytes at `at`. These must lie inside `bytes`.
uint64_t numberAt(std::string_view bytes, size_t at, int count);

/// Reads fields one after another. After the first field that does not fit, every read gives zero or an empty text, and
/// ok() is false. Never reads outside the bytes, whatever they are.
class FieldReader {
public:
  explicit FieldReader(std::string_view bytes) : rest(bytes) {}
  bool ok() const { return good; }
  bool atEnd() const { return good && rest.empty(); }
  std::string_view raw(uint64_t bytes);
  uint64_t number();
  std::string text() { return std::string(raw(number())); }

private:
  std::string_view rest;
  bool good = true;
};

} // namespace attnc::cache
