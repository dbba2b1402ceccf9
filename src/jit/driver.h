// The CUDA driver, opened at run time. Only sources of this layer include this header: it names CUDA's types.
//
// In: nothing. Out: the driver's functions and its errors as attnc's. Not: a context of its own; the current one is
// the caller's (device.h makes one for programs that have none).
#pragma once

#include "attnc/error.h"

#include <cuda.h>

#include <vector>

namespace attnc::jit {

// Every function that is used. The macros of cuda.h turn a name into that of its newest version.
#define ATTNC_DRIVER_FUNCTIONS(X)                                                                                      \
  X(cuInit)                                                                                                            \
  X(cuDriverGetVersion)                                                                                                \
  X(cuGetErrorName)                                                                                                    \
  X(cuGetErrorString)                                                                                                  \
  X(cuDeviceGet)                                                                                                       \
  X(cuDeviceGetCount)                                                                                                  \
  X(cuDeviceGetName)                                                                                                   \
  X(cuDeviceGetAttribute)                                                                                              \
  X(cuDeviceTotalMem)                                                                                                  \
  X(cuDevicePrimaryCtxRetain)                                                                                          \
  X(cuDevicePrimaryCtxRelease)                                                                                         \
  X(cuCtxGetCurrent)                                                                                                   \
  X(cuCtxSetCurrent)                                                                                                   \
  X(cuCtxGetDevice)                                                                                                    \
  X(cuCtxSynchronize)                                                                                                  \
  X(cuLibraryLoadData)                                                                                                 \
  X(cuLibraryUnload)                                                                                                   \
  X(cuLibraryGetKernel)                                                                                                \
  X(cuLibraryGetGlobal)                                                                                                \
  X(cuKernelGetFunction)                                                                                               \
  X(cuFuncGetAttribute)                                                                                                \
  X(cuFuncSetAttribute)                                                                                                \
  X(cuLaunchKernelEx)                                                                                                  \
  X(cuTensorMapEncodeTiled)                                                                                            \
  X(cuMemAlloc)                                                                                                        \
  X(cuMemFree)                                                                                                         \
  X(cuMemcpyHtoD)                                                                                                      \
  X(cuMemcpyDtoH)                                                                                                      \
  X(cuMemsetD8Async)                                                                                                   \
  X(cuMemsetD8)                                                                                                        \
  X(cuStreamCreate)                                                                                                    \
  X(cuStreamDestroy)                                                                                                   \
  X(cuStreamSynchronize)                                                                                               \
  X(cuStreamBeginCapture)                                                                                              \
  X(cuStreamEndCapture)                                                                                                \
  X(cuGraphInstantiate)                                                                                                \
  X(cuGraphDestroy)                                                                                                    \
  X(cuGraphExecDestroy)                                                                                                \
  X(cuGraphLaunch)                                                                                                     \
  X(cuEventCreate)                                                                                                     \
  X(cuEventDestroy)                                                                                                    \
  X(cuEventRecord)                                                                                                     \
  X(cuEventSynchronize)

/// Immutable once opened.
struct Driver {
#define X(function) decltype(&::function) function = nullptr;
  ATTNC_DRIVER_FUNCTIONS(X)
#undef X
  // By their oldest names, which older drivers have as well; the first may be missing (before 12.4).
  decltype(&::cuFuncLoad) funcLoad = nullptr;
  CUresult(CUDAAPI* eventElapsedTime)(float*, CUevent, CUevent) = nullptr;

  /// The process's driver, opened and initialised by the first call; later calls give the same answer. Thread-safe.
  /// Blame::Environment: no libcuda, or no GPU.
  static Expected<const Driver*> get();

  /// Success, or Blame::Environment with the name of the call and of the error.
  Status check(CUresult result, const char* call) const;
};

} // namespace attnc::jit
