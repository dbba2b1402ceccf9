// The binary interface between XLA and handlers of custom calls, as far as attnc uses it: major version 0 of XLA's FFI,
// which OpenXLA documents in xla/ffi/api/c_api.h. Structs grow at their ends, and begin with their sizes. Members that
// attnc does not use are left out at the ends. tests/c/foreign compares all with that header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attnc::xla::ffi {

inline constexpr int kMajorVersion = 0;
/// The minor version that handlers claim: the first one with all that they need. XLA accepts older ones than its own.
inline constexpr int kMinorVersion = 1;

struct Extension {
  size_t size;
  int type;
  Extension* next;
};
inline constexpr int kMetadataExtension = 1; ///< Extension::type of a MetadataExtension

struct Text {
  const char* data;
  size_t length;
};

/// Types of elements that attnc has, as numbers of XLA's PrimitiveType.
inline constexpr int kPred = 1, kS8 = 2, kS16 = 3, kS32 = 4, kS64 = 5, kU8 = 6, kF16 = 10, kF32 = 11, kBf16 = 16;

struct Buffer {
  size_t size;
  Extension* extension;
  int dtype; ///< number of XLA's PrimitiveType
  void* data;
  int64_t rank;
  int64_t* extents;
};

struct Scalar {
  int dtype;
  void* value;
};

struct Buffers {
  size_t size;
  Extension* extension;
  int64_t count;
  int* kinds;
  void** items; ///< Buffer, if the kind is kBuffer
};
inline constexpr int kBuffer = 1;

/// Sorted by name.
struct Attributes {
  size_t size;
  Extension* extension;
  int64_t count;
  int* kinds;
  Text** names;
  void** items; ///< Scalar or Text, by kind
};
inline constexpr int kScalar = 3, kText = 4;

struct Version {
  size_t size;
  Extension* extension;
  int major, minor;
};

struct ErrorArguments {
  size_t size;
  Extension* extension;
  const char* message;
  int code;
};
inline constexpr int kInvalidArgument = 3, kInternal = 13;

struct StreamArguments {
  size_t size;
  Extension* extension;
  void* context;
  void* stream; ///< out
};

struct OrdinalArguments {
  size_t size;
  Extension* extension;
  void* context;
  int32_t ordinal; ///< out
};

/// Functions that XLA offers.
struct Api {
  size_t size;
  Extension* extension;
  Version version;
  const void* internal;
  void* (*makeError)(ErrorArguments*);
  void* unused[3];
  void* (*getStream)(StreamArguments*);
  void* unusedAsWell[12];
  void* (*getOrdinal)(OrdinalArguments*);
};

enum Stage : int { Instantiate, Prepare, Initialize, Execute, Record };

struct CallFrame {
  size_t size;
  Extension* extension;
  const Api* api;
  void* context;
  int stage;
  Buffers operands, results;
  Attributes attributes;
};

struct Metadata {
  size_t size;
  Version version;
  uint32_t traits;
};
inline constexpr uint32_t kCommandBufferCompatible = 1;

struct MetadataExtension {
  Extension base;
  Metadata* metadata; ///< to be filled
};

} // namespace attnc::xla::ffi
