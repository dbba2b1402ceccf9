#include "cache/sha256.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/SHA256.h"

#include <algorithm>

namespace attnc::cache {

struct FieldHasher::State {
  llvm::SHA256 hash;
};

std::string Digest::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Digest sha256(std::string_view bytes) {
  Digest digest;
  digest.bytes = llvm::SHA256::hash(llvm::arrayRefFromStringRef(llvm::StringRef(bytes.data(), bytes.size())));
  return digest;
}

FieldHasher::FieldHasher() : state(std::make_unique<State>()) {}
FieldHasher::~FieldHasher() = default;

void FieldHasher::field(std::string_view bytes) {
  field(uint64_t(bytes.size()));
  state->hash.update(llvm::StringRef(bytes.data(), bytes.size()));
}

void FieldHasher::field(uint64_t number) {
  std::array<uint8_t, 8> raw;
  for (int i = 0; i < 8; ++i) raw[i] = uint8_t(number >> (8 * i));
  state->hash.update(llvm::ArrayRef<uint8_t>(raw));
}

Digest FieldHasher::finish() {
  // A StringRef up to LLVM 14, an array since then; both can be iterated.
  auto result = state->hash.final();
  Digest digest;
  std::copy(result.begin(), result.end(), reinterpret_cast<char*>(digest.bytes.data()));
  return digest;
}

} // namespace attnc::cache
