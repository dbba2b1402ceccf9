// Structs whose size differs between versions of attnc. A caller's struct_size is the size that the caller knows; ours
// is sizeof.
#pragma once

#include "attnc/c.h"
#include "c/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace attnc::c {

/// Size of a struct as it was first published. Members added at its end do not change it.
template <class T> inline constexpr size_t kFirstSize = 0;
template <> inline constexpr size_t kFirstSize<attnc_diagnostic> = 56;
template <> inline constexpr size_t kFirstSize<attnc_tensor> = 120;
template <> inline constexpr size_t kFirstSize<attnc_capture> = 48;
template <> inline constexpr size_t kFirstSize<attnc_parse_options> = 32;
template <> inline constexpr size_t kFirstSize<attnc_mod_info> = 40;
template <> inline constexpr size_t kFirstSize<attnc_capture_info> = 80;
template <> inline constexpr size_t kFirstSize<attnc_claim> = 72;
template <> inline constexpr size_t kFirstSize<attnc_operands> = 80;
template <> inline constexpr size_t kFirstSize<attnc_outputs> = 32;
template <> inline constexpr size_t kFirstSize<attnc_backward_operands> = 48;
template <> inline constexpr size_t kFirstSize<attnc_backward_outputs> = 48;
template <> inline constexpr size_t kFirstSize<attnc_block_mask_view> = 128;
template <> inline constexpr size_t kFirstSize<attnc_block_mask_info> = 32;
template <> inline constexpr size_t kFirstSize<attnc_compiler_options> = 48;
template <> inline constexpr size_t kFirstSize<attnc_kernel_options> = 136;
template <> inline constexpr size_t kFirstSize<attnc_plan_info> = 48;
template <> inline constexpr size_t kFirstSize<attnc_source_stage> = 128;
template <> inline constexpr size_t kFirstSize<attnc_compiled_stage> = 112;
template <> inline constexpr size_t kFirstSize<attnc_family_info> = 32;
template <> inline constexpr size_t kFirstSize<attnc_prepare_options> = 88;
template <> inline constexpr size_t kFirstSize<attnc_preparation_info> = 112;
template <> inline constexpr size_t kFirstSize<attnc_tuned_tile> = 40;
template <> inline constexpr size_t kFirstSize<attnc_quantise_options> = 16;
template <> inline constexpr size_t kFirstSize<attnc_shard_mask> = 40;
template <> inline constexpr size_t kFirstSize<attnc_shard_options> = 88;
template <> inline constexpr size_t kFirstSize<attnc_shard_plan_info> = 40;
template <> inline constexpr size_t kFirstSize<attnc_shard_tokens> = 40;
template <> inline constexpr size_t kFirstSize<attnc_shard_work> = 56;
template <> inline constexpr size_t kFirstSize<attnc_shard_engine> = 32;

/// Larger sizes are garbage.
inline constexpr size_t kMostBytes = 1 << 16;

/// Checks a caller's size of a struct.
template <class T> void checkSize(size_t size, const Place& place) {
  static_assert(kFirstSize<T> >= sizeof(size_t) && sizeof(T) >= kFirstSize<T>);
  if (size < kFirstSize<T> || size > kMostBytes || size % alignof(T) != 0)
    refuse(place, fmt::format("has struct_size {}, expected {}", size, sizeof(T)));
}

/// Returns what the caller gave. Members that the caller does not know are 0, and all are for NULL.
template <class T> T readStruct(const T* given, const Place& place) {
  T value = {};
  if (!given) return value;
  checkSize<T>(given->struct_size, place);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  const size_t size = given->struct_size;
  if (std::any_of(bytes + std::min(size, sizeof(T)), bytes + size, [](unsigned char byte) { return byte != 0; }))
    refuse(place, "has members that this version of attnc does not know");
  std::memcpy(&value, bytes, std::min(size, sizeof(T)));
  return value;
}

/// Writes as much as the caller has room for, and zeros any members beyond those of this version.
template <class T> void writeStruct(const T& value, T* to, const Place& place) {
  need(to, place);
  checkSize<T>(to->struct_size, place);
  const size_t size = to->struct_size;
  auto* bytes = reinterpret_cast<unsigned char*>(to);
  std::memcpy(bytes, &value, std::min(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(bytes + sizeof(T), 0, size - sizeof(T));
  to->struct_size = size;
}

/// Returns element `index` of an array whose elements lie struct_size apart.
template <class T> const T* element(const T* first, size_t index) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + index * first->struct_size);
}

} // namespace attnc::c
