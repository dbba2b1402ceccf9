// The device on which the calling thread works. Its context is the caller's: CUDA's runtime, PyTorch or the caller made it.
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

/// The calling thread's current context. Blame::Environment: there is none. Costs well under a microsecond.
Expected<CUctx_st*> currentContext();

/// The device of the calling thread's current context; an error if there is none.
Expected<DeviceInfo> currentDevice();

} // namespace attnc::jit
