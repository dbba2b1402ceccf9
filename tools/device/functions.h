// The functions of the CUDA driver that programs need: devices, memory, streams, graphs, events.
#pragma once

#include "jit/driver.h"

namespace attnc::device {

#define ATTNC_DEVICE_FUNCTIONS(X)                                                                                      \
  X(cuDriverGetVersion)                                                                                                \
  X(cuDeviceGet)                                                                                                       \
  X(cuDeviceGetCount)                                                                                                  \
  X(cuDeviceGetUuid)                                                                                                   \
  X(cuDevicePrimaryCtxRetain)                                                                                          \
  X(cuDevicePrimaryCtxRelease)                                                                                         \
  X(cuCtxSetCurrent)                                                                                                   \
  X(cuCtxSynchronize)                                                                                                  \
  X(cuMemAlloc)                                                                                                        \
  X(cuMemFree)                                                                                                         \
  X(cuMemcpyHtoD)                                                                                                      \
  X(cuMemcpyDtoH)                                                                                                      \
  X(cuMemcpyDtoDAsync)                                                                                                 \
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
struct Functions {
  ATTNC_DEVICE_FUNCTIONS(ATTNC_DRIVER_MEMBER)
  CUresult(CUDAAPI* eventElapsedTime)(float*, CUevent, CUevent) = nullptr; ///< by a name that older drivers also have

  /// Returns the functions of the process's driver; see jit::Driver::get().
  static Expected<const Functions*> get();

  /// See jit::Driver::check().
  Status check(CUresult result, const char* call) const { return driver->check(result, call); }

  const jit::Driver* driver = nullptr;
};

} // namespace attnc::device
