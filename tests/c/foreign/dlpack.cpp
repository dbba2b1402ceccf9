// The structs and numbers of src/c/dlpack.h are those of DLPack's header, as PyTorch installs it.
#include "c/dlpack.h"
#include "same.h"

#include <ATen/dlpack.h>

using namespace attnc::c::dlpack;

SAME_SIZE(Device, DLDevice);
SAME_MEMBER(Device, type, DLDevice, device_type);
SAME_MEMBER(Device, id, DLDevice, device_id);

SAME_SIZE(DataType, DLDataType);
SAME_MEMBER(DataType, code, DLDataType, code);
SAME_MEMBER(DataType, bits, DLDataType, bits);
SAME_MEMBER(DataType, lanes, DLDataType, lanes);

SAME_SIZE(Tensor, DLTensor);
SAME_MEMBER(Tensor, data, DLTensor, data);
SAME_MEMBER(Tensor, device, DLTensor, device);
SAME_MEMBER(Tensor, ndim, DLTensor, ndim);
SAME_MEMBER(Tensor, dtype, DLTensor, dtype);
SAME_MEMBER(Tensor, shape, DLTensor, shape);
SAME_MEMBER(Tensor, strides, DLTensor, strides);
SAME_MEMBER(Tensor, byteOffset, DLTensor, byte_offset);
static_assert(offsetof(DLManagedTensor, dl_tensor) == 0); // attnc_tensor_from_dlpack() takes either

SAME_SIZE(ManagedTensorVersioned, DLManagedTensorVersioned);
SAME_MEMBER(ManagedTensorVersioned, major, DLManagedTensorVersioned, version.major);
SAME_MEMBER(ManagedTensorVersioned, minor, DLManagedTensorVersioned, version.minor);
SAME_MEMBER(ManagedTensorVersioned, managerContext, DLManagedTensorVersioned, manager_ctx);
SAME_MEMBER(ManagedTensorVersioned, deleter, DLManagedTensorVersioned, deleter);
SAME_MEMBER(ManagedTensorVersioned, flags, DLManagedTensorVersioned, flags);
SAME_MEMBER(ManagedTensorVersioned, tensor, DLManagedTensorVersioned, dl_tensor);
SAME_VALUE(1, DLPACK_MAJOR_VERSION);

SAME_VALUE(kCpu, kDLCPU);
SAME_VALUE(kCuda, kDLCUDA);
SAME_VALUE(kCudaHost, kDLCUDAHost);
SAME_VALUE(kCudaManaged, kDLCUDAManaged);
SAME_VALUE(kInt, kDLInt);
SAME_VALUE(kUInt, kDLUInt);
SAME_VALUE(kFloat, kDLFloat);
SAME_VALUE(kBfloat, kDLBfloat);
SAME_VALUE(kBool, kDLBool);
SAME_VALUE(kE4M3, kDLFloat8_e4m3fn);
SAME_VALUE(kReadOnly, DLPACK_FLAG_BITMASK_READ_ONLY);
