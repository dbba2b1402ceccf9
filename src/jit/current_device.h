// The device of the calling thread. Its context belongs to the caller: CUDA's runtime, PyTorch or the caller made it.
#pragma once

#include "attnc/error.h"

#include <cstdint>
#include <string>

struct CUctx_st;

namespace attnc::jit {

struct DeviceInfo {
  int ordinal = 0;
  std::string name; ///< "NVIDIA H200"
  int major = 0, minor = 0;
  std::string arch; ///< archName(major, minor)
  int multiprocessors = 0;
  int sharedBytesPerBlock = 0; ///< the most a kernel may ask for
  int64_t l2Bytes = 0;
  int64_t memoryBytes = 0;
};

/// Returns the calling thread's current context. Blame::Environment: no context. Takes well under a microsecond.
Expected<CUctx_st*> currentContext();

/// Returns the device of the calling thread's current context; an error if there is no context.
Expected<DeviceInfo> currentDevice();

} // namespace attnc::jit
