// The structs of DLPack, which other libraries pass by pointer. Members and numbers are part of its stable ABI:
// https://dmlc.github.io/dlpack/latest/c_api.html. Debian's header predates DLManagedTensorVersioned. tests/c/foreign
// compares all with the header that PyTorch installs.
#pragma once

#include <cstdint>

namespace attnc::c::dlpack {

struct Device {
  int32_t type, id;
};
constexpr int32_t kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;

struct DataType {
  uint8_t code, bits;
  uint16_t lanes;
};
constexpr uint8_t kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6, kE4M3 = 10;

/// DLTensor: the first member of DLManagedTensor.
struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides; ///< in elements; null: row-major and dense
  uint64_t byteOffset;
};

/// DLManagedTensorVersioned. If the major version differs, nothing after `deleter` is known.
struct ManagedTensorVersioned {
  uint32_t major, minor;
  void* managerContext;
  void (*deleter)(ManagedTensorVersioned*);
  uint64_t flags;
  Tensor tensor;
};
constexpr uint64_t kReadOnly = 1;

} // namespace attnc::c::dlpack
