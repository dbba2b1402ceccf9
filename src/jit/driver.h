// The CUDA driver, opened at run time. Only sources that name CUDA's types include this header: those of this layer and
// of tools/device.
//
// In: nothing. Out: the driver's functions, with its errors converted to attnc's. Not: a context; the current one
// belongs to the caller.
#pragma once

#include "jit/dynamic_library.h"

#include "attnc/error.h"

#include <cuda.h>

#include <string>

namespace attnc::jit {

/// Finds functions of libcuda by name, for tables such as Driver.
class DriverSymbols {
public:
  /// Opens libcuda. Blame::Environment: not found.
  static Expected<DriverSymbols> open();

  /// Sets the pointer to the function; null if the driver does not have it.
  template <class Function> void findOptional(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(library.symbol(name));
  }
  template <class Function> void find(Function*& function, const char* name) {
    findOptional(function, name);
    if (!function) missing += std::string(" ") + name;
  }
  /// Returns Blame::Environment with the functions that were not found, if any.
  Status foundAll() const;

private:
  explicit DriverSymbols(DynamicLibrary library) : library(std::move(library)) {}
  DynamicLibrary library;
  std::string missing;
};

// For lists of functions as below. The macros of cuda.h expand a name to that of its newest version before it becomes a
// string.
#define ATTNC_DRIVER_NAME(function) #function
#define ATTNC_DRIVER_MEMBER(function) decltype(&::function) function = nullptr;

// All driver functions that the library uses.
#define ATTNC_DRIVER_FUNCTIONS(X)                                                                                      \
  X(cuInit)                                                                                                            \
  X(cuGetErrorName)                                                                                                    \
  X(cuGetErrorString)                                                                                                  \
  X(cuDeviceGetName)                                                                                                   \
  X(cuDeviceGetAttribute)                                                                                              \
  X(cuDeviceTotalMem)                                                                                                  \
  X(cuCtxGetCurrent)                                                                                                   \
  X(cuCtxGetDevice)                                                                                                    \
  X(cuLibraryLoadData)                                                                                                 \
  X(cuLibraryUnload)                                                                                                   \
  X(cuLibraryGetKernel)                                                                                                \
  X(cuLibraryGetGlobal)                                                                                                \
  X(cuKernelGetFunction)                                                                                               \
  X(cuFuncGetAttribute)                                                                                                \
  X(cuFuncSetAttribute)                                                                                                \
  X(cuLaunchKernelEx)                                                                                                  \
  X(cuMemsetD8Async)                                                                                                   \
  X(cuMemAlloc)                                                                                                        \
  X(cuMemFree)                                                                                                         \
  X(cuMemcpyDtoH)                                                                                                      \
  X(cuMemcpyHtoDAsync)                                                                                                 \
  X(cuMemcpy2DAsync)                                                                                                   \
  X(cuStreamSynchronize)                                                                                               \
  X(cuStreamIsCapturing)                                                                                               \
  X(cuStreamWaitEvent)                                                                                                 \
  X(cuEventCreate)                                                                                                     \
  X(cuEventDestroy)                                                                                                    \
  X(cuEventRecord)                                                                                                     \
  X(cuEventSynchronize)                                                                                                \
  X(cuTensorMapEncodeTiled)

/// Immutable once opened.
struct Driver {
  ATTNC_DRIVER_FUNCTIONS(ATTNC_DRIVER_MEMBER)
  decltype(&::cuFuncLoad) funcLoad = nullptr;                              ///< null before CUDA 12.4
  CUresult(CUDAAPI* eventElapsedTime)(float*, CUevent, CUevent) = nullptr; ///< by a name that older drivers also have

  /// Returns the process's driver. The first call opens and initializes it; later calls return the same result.
  /// Thread-safe. Blame::Environment: no libcuda, or no GPU.
  static Expected<const Driver*> get();

  /// Returns success, or Blame::Environment with the name of the call and of the error.
  Status check(CUresult result, const char* call) const;
};

} // namespace attnc::jit
