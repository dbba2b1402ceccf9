// SHA-256, with the length-prefixed fields that make a digest of several texts unambiguous.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace attnc::cache {

struct Digest {
  std::array<uint8_t, 32> bytes{};
  /// Returns 64 lower-case hexadecimal digits.
  std::string hex() const;
  auto operator<=>(const Digest&) const = default;
};

/// Returns the digest of a byte string.
Digest sha256(std::string_view bytes);

/// Computes the digest of a sequence of fields. Each field is preceded by its length in 8 bytes, little endian, so that
/// moving a byte from one field to the next changes the digest.
class FieldHasher {
public:
  FieldHasher();
  ~FieldHasher();
  void field(std::string_view bytes);
  void field(uint64_t number);
  Digest finish();

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace attnc::cache
