#include "attnc/c/tensor.h"

#include "c/call.h"
#include "c/dlpack.h"
#include "c/enumerators.h"
#include "c/operands.h"
#include "c/structs.h"

#include <fmt/format.h>

namespace attnc::c {
namespace {

constexpr struct {
  uint8_t code, bits;
  attnc_dtype dtype;
} kDtypes[] = {{dlpack::kBool, 8, ATTNC_DTYPE_BOOL},    {dlpack::kUInt, 8, ATTNC_DTYPE_U8},
               {dlpack::kInt, 8, ATTNC_DTYPE_I8},       {dlpack::kInt, 16, ATTNC_DTYPE_I16},
               {dlpack::kInt, 32, ATTNC_DTYPE_I32},     {dlpack::kInt, 64, ATTNC_DTYPE_I64},
               {dlpack::kFloat, 16, ATTNC_DTYPE_F16},   {dlpack::kFloat, 32, ATTNC_DTYPE_F32},
               {dlpack::kBfloat, 16, ATTNC_DTYPE_BF16}, {dlpack::kE4M3, 8, ATTNC_DTYPE_E4M3}};

std::optional<attnc_dtype> dtypeOf(dlpack::DataType dtype) {
  for (const auto& [code, bits, known] : kDtypes)
    if (dtype.code == code && dtype.bits == bits && dtype.lanes == 1) return known;
  return {};
}

bool liesOn(int32_t type, attnc_device device) {
  if (device == ATTNC_DEVICE_CUDA) return type == dlpack::kCuda || type == dlpack::kCudaManaged;
  return type == dlpack::kCpu || type == dlpack::kCudaHost;
}

void makeDense(attnc_tensor& tensor) {
  int64_t step = 1;
  for (int axis = tensor.rank - 1; axis >= 0; --axis) {
    tensor.stride[axis] = step;
    step *= tensor.shape[axis];
  }
}

/// Refuses extents that no memory could hold: their product would overflow.
void checkExtents(const int64_t* shape, int rank, const Place& place) {
  int64_t count = 1;
  for (int axis = 0; axis < rank; ++axis)
    if (shape[axis] < 0 || __builtin_mul_overflow(count, shape[axis] ? shape[axis] : 1, &count))
      refuse(place, "has extents that no tensor has");
}

Status readDlpack(const dlpack::Tensor& from, attnc_device device, attnc_tensor* to) {
  if (device != ATTNC_DEVICE_HOST && device != ATTNC_DEVICE_CUDA)
    refuse("device", fmt::format("is {}, which is none", device));
  if (!liesOn(from.device.type, device))
    return Error::environment(fmt::format("a tensor lies on DLPack's device type {}, expected {}", from.device.type,
                                          device == ATTNC_DEVICE_CUDA ? "CUDA memory" : "host memory"),
                              "copy it there first");
  const std::optional<attnc_dtype> dtype = dtypeOf(from.dtype);
  if (!dtype)
    return Error::environment(fmt::format("a tensor has DLPack's dtype code {}, {} bits, {} lanes", from.dtype.code,
                                          from.dtype.bits, from.dtype.lanes),
                              "attnc has bool, u8, i8, i16, i32, i64, f16, bf16, f32 and e4m3");
  if (from.ndim < 0 || from.ndim > ATTNC_MAX_RANK)
    return Error::environment(fmt::format("a tensor has rank {}, expected 0 .. {}", from.ndim, int(ATTNC_MAX_RANK)));
  if (from.ndim > 0) need(from.shape, {"dl_tensor", "shape"});
  checkExtents(from.shape, from.ndim, {"dl_tensor", "shape"});
  attnc_tensor tensor = {};
  tensor.data = from.data ? static_cast<char*>(from.data) + from.byteOffset : nullptr;
  tensor.dtype = *dtype;
  tensor.rank = from.ndim;
  for (int axis = 0; axis < from.ndim; ++axis) tensor.shape[axis] = from.shape[axis];
  makeDense(tensor);
  for (int axis = 0; from.strides && axis < from.ndim; ++axis) tensor.stride[axis] = from.strides[axis];
  writeStruct(tensor, to, "tensor");
  return {};
}

} // namespace
} // namespace attnc::c

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_tensor_make_dense(attnc_tensor* tensor) {
  return call({{tensor, "tensor"}}, [&]() -> Status {
    attnc_tensor dense = readStruct(tensor, "tensor");
    checkRank(dense.rank, "tensor");
    checkExtents(dense.shape, dense.rank, "tensor");
    makeDense(dense);
    writeStruct(dense, tensor, "tensor");
    return {};
  });
}

attnc_status attnc_tensor_from_dlpack(const void* dl_tensor, attnc_device device, attnc_tensor* tensor) {
  return call({{dl_tensor, "dl_tensor"}},
              [&]() -> Status { return readDlpack(*static_cast<const dlpack::Tensor*>(dl_tensor), device, tensor); });
}

attnc_status attnc_tensor_from_dlpack_versioned(const void* managed, attnc_device device, int32_t writes,
                                                attnc_tensor* tensor) {
  return call({{managed, "managed"}}, [&]() -> Status {
    const bool isWritten = readFlag(writes, "writes");
    const auto& from = *static_cast<const dlpack::ManagedTensorVersioned*>(managed);
    if (from.major != 1)
      return Error::environment(fmt::format("a tensor is of DLPack {}.{}, expected 1", from.major, from.minor));
    if (isWritten && from.flags & dlpack::kReadOnly)
      return Error::environment("a tensor that is to be written is read-only", "copy it first");
    return readDlpack(from.tensor, device, tensor);
  });
}
