#include "cache/fields.h"

namespace attnc::cache {

void putNumber(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += char(value >> (8 * i));
}

void putText(std::string& out, std::string_view text) {
  putNumber(out, text.size());
  out += text;
}

uint64_t numberAt(std::string_view bytes, size_t at, int count) {
  uint64_t value = 0;
  for (int i = 0; i < count; ++i) value |= uint64_t(uint8_t(bytes[at + i])) << (8 * i);
  return value;
}

std::string_view FieldReader::raw(uint64_t bytes) {
  if (!good || bytes > rest.size()) {
    good = false;
    return {};
  }
  std::string_view field = rest.substr(0, bytes);
  rest.remove_prefix(bytes);
  return field;
}

uint64_t FieldReader::number() {
  std::string_view field = raw(8);
  return good ? numberAt(field, 0, 8) : 0;
}

} // namespace attnc::cache
