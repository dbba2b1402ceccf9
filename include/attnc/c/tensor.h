/// Borrowed views of tensors, and the values of captures (tensor.h, captures.h).
#pragma once

#include "attnc/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Most axes of a tensor.
enum { ATTNC_MAX_RANK = 6 };

/// A strided view of memory that the caller owns. Strides are in elements, and may be 0 or negative.
typedef struct attnc_tensor {
  size_t struct_size; ///< sizeof(attnc_tensor).
  void* data;         ///< Host or device address of element (0, ..., 0).
  attnc_dtype dtype;  ///< Type of the elements.
  int32_t rank;       ///< Number of axes, 0 .. ATTNC_MAX_RANK. Entries of shape and stride past it are not read.
  int64_t shape[ATTNC_MAX_RANK];  ///< Extents of the axes.
  int64_t stride[ATTNC_MAX_RANK]; ///< Strides of the axes, in elements.
} attnc_tensor;

/// Sets the strides of `tensor` to those of a row-major, dense tensor of its shape. Errors: an invalid rank or extent.
ATTNC_API attnc_status attnc_tensor_make_dense(attnc_tensor* tensor);

/// Where memory lies.
typedef int32_t attnc_device;
enum {
  ATTNC_DEVICE_HOST = 0, ///< DLPack's kDLCPU and kDLCUDAHost.
  ATTNC_DEVICE_CUDA = 1, ///< DLPack's kDLCUDA and kDLCUDAManaged.
};

/// Fills a view of a DLTensor. `dl_tensor` points to a DLTensor or to a DLManagedTensor, which begins with one. All
/// versions of DLPack from 0.2 on are accepted.
///
/// The memory stays the owner's, who calls the deleter, if any, when work with it is done. Argument `device` says where
/// the memory must lie. Errors: memory elsewhere; a dtype or a rank that attnc does not have; vector types.
ATTNC_API attnc_status attnc_tensor_from_dlpack(const void* dl_tensor, attnc_device device, attnc_tensor* tensor);

/// Fills a view of a DLManagedTensorVersioned, the form of DLPack 1. Otherwise as attnc_tensor_from_dlpack(). `writes`
/// is 1 if attnc will write into the memory; a read-only tensor is then an error. Errors: another major version.
ATTNC_API attnc_status attnc_tensor_from_dlpack_versioned(const void* managed, attnc_device device, int32_t writes,
                                                          attnc_tensor* tensor);

/// Kind of a captured value.
typedef int32_t attnc_capture_kind;
enum {
  ATTNC_CAPTURE_TENSOR = 0, ///< A tensor.
  ATTNC_CAPTURE_INT = 1,    ///< An i32.
  ATTNC_CAPTURE_FLOAT = 2,  ///< An f32.
  ATTNC_CAPTURE_BOOL = 3,   ///< A bool.
};

/// A captured value, by name. Tensors are in host memory for CPU work, and in device memory for GPU work. If a name is
/// given several times, the last value counts. Names that the mod does not have are ignored.
typedef struct attnc_capture {
  size_t struct_size;         ///< sizeof(attnc_capture).
  const char* name;           ///< Name of the capture.
  const attnc_tensor* tensor; ///< Value of a TENSOR.
  int64_t integer;            ///< Value of an INT; of a BOOL, 0 or 1.
  double real;                ///< Value of a FLOAT.
  attnc_capture_kind kind;    ///< Kind of its value.
  int32_t reserved;           ///< Must be 0.
} attnc_capture;

#ifdef __cplusplus
}
#endif
