/// Borrowed views of tensors, and what a mod captures.
#pragma once

#include "attnc/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ATTNC_MAX_RANK = 6 };

/// A strided view of memory that the caller owns. Strides are in elements and may be 0 or negative.
typedef struct attnc_tensor {
  size_t struct_size;
  void* data; ///< host or device address of element (0, ..., 0)
  attnc_dtype dtype;
  int32_t rank; ///< 0 .. ATTNC_MAX_RANK; what lies behind it in shape and stride is not read
  int64_t shape[ATTNC_MAX_RANK];
  int64_t stride[ATTNC_MAX_RANK];
} attnc_tensor;

/// Sets the strides of `tensor` to those of a row-major, dense tensor of its shape. Errors: a rank or an extent that
/// there is not.
ATTNC_API attnc_status attnc_tensor_make_dense(attnc_tensor* tensor);

/// Where memory lies.
typedef int32_t attnc_device;
enum {
  ATTNC_DEVICE_HOST = 0, ///< DLPack's kDLCPU and kDLCUDAHost
  ATTNC_DEVICE_CUDA = 1, ///< kDLCUDA and kDLCUDAManaged
};

/// The view that a DLTensor is of: what `dl_tensor` points to, or a DLManagedTensor, which begins with one. Borrowed:
/// the owner keeps it, and calls its deleter, if any, when work with the memory is done. `device`: where it must lie.
/// Errors: memory elsewhere; a dtype or a rank that attnc does not have; vectors. All versions of DLPack from 0.2 on.
ATTNC_API attnc_status attnc_tensor_from_dlpack(const void* dl_tensor, attnc_device device, attnc_tensor* tensor);

/// The same of a DLManagedTensorVersioned, the form of DLPack 1. `writes`: attnc is to write into it; then an error,
/// too, if it is read-only. Errors: another major version.
ATTNC_API attnc_status attnc_tensor_from_dlpack_versioned(const void* managed, attnc_device device, int32_t writes,
                                                          attnc_tensor* tensor);

/// What is captured under a name.
typedef int32_t attnc_capture_kind;
enum {
  ATTNC_CAPTURE_TENSOR = 0,
  ATTNC_CAPTURE_INT = 1,
  ATTNC_CAPTURE_FLOAT = 2,
  ATTNC_CAPTURE_BOOL = 3,
};

/// A capture's value: host memory for work on the CPU, device memory for that on a GPU. Where a mod is given several of
/// one name, the last counts; names that it does not have are not looked at.
typedef struct attnc_capture {
  size_t struct_size;
  const char* name;
  const attnc_tensor* tensor; ///< of a TENSOR
  int64_t integer;            ///< of an INT; of a BOOL: 0 or 1
  double real;                ///< of a FLOAT
  attnc_capture_kind kind;
  int32_t reserved; ///< 0
} attnc_capture;

#ifdef __cplusplus
}
#endif
