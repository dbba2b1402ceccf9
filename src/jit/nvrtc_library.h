// Finds libnvrtc and opens it.
//
// In: an explicit path or the environment. Out: the table of functions, and their file. Not: compiling (nvrtc.h).
// Finding takes a few stat() calls. Opening takes about 10 ms, so the cache avoids it.
//
// NVRTC takes one setting that changes machine code from the environment: NV_NVVM_VERSION, which it reads only once,
// when it is loaded.
#pragma once

#include "attnc/error.h"
#include "jit/dynamic_library.h"
#include "jit/env.h"

#include <nvrtc.h>

#include <optional>
#include <string>
#include <vector>

namespace attnc::jit {

// All NVRTC functions that attnc uses.
#define ATTNC_NVRTC_FUNCTIONS(X)                                                                                       \
  X(nvrtcGetErrorString)                                                                                               \
  X(nvrtcVersion)                                                                                                      \
  X(nvrtcGetNumSupportedArchs)                                                                                         \
  X(nvrtcGetSupportedArchs)                                                                                            \
  X(nvrtcCreateProgram)                                                                                                \
  X(nvrtcDestroyProgram)                                                                                               \
  X(nvrtcCompileProgram)                                                                                               \
  X(nvrtcGetPTXSize)                                                                                                   \
  X(nvrtcGetPTX)                                                                                                       \
  X(nvrtcGetCUBINSize)                                                                                                 \
  X(nvrtcGetCUBIN)                                                                                                     \
  X(nvrtcGetProgramLogSize)                                                                                            \
  X(nvrtcGetProgramLog)

struct NvrtcApi {
#define X(function) decltype(&::function) function = nullptr;
  ATTNC_NVRTC_FUNCTIONS(X)
#undef X
  std::string path; ///< path of the open library
};

/// The search order for libnvrtc. Only `explicitPath`, if given; else only $ATTNC_NVRTC, if set; else: the library that
/// this process has opened already; the directories of $LD_LIBRARY_PATH; $CUDA_HOME/lib64; the directories fixed when
/// attnc was built; /usr/local/cuda/lib64; the usual library directories; finally the bare soname, which asks ld.so. A
/// path may name a directory.
class NvrtcLocator {
public:
  NvrtcLocator(std::string explicitPath, const Env& env);

  /// Returns stampOf() the file that open() would most likely open; nullopt if only ld.so knows it.
  std::optional<std::string> stamp() const;

  /// Returns "dev:inode:size:mtime" of a file, and its NV_NVVM_VERSION; nullopt if the file does not exist.
  std::optional<std::string> stampOf(const std::string& path) const;

  /// Returns NV_NVVM_VERSION as of when this process loaded the library at `path`; if not loaded yet, that of the given
  /// Env.
  std::string nvvmVersionOf(const std::string& path) const;

  /// Opens the library. Blame::Environment: none can be opened, and the message says where it looked; or
  /// NV_NVVM_VERSION differs from what stamp() reported.
  Expected<NvrtcApi> open() const;

private:
  std::optional<std::string> likelyPath() const;
  Expected<NvrtcApi> load() const;
  std::vector<std::string> candidates;
  bool mayShare; ///< whether a copy that is open already may be used
  std::string nvvmVersion;
};

/// Returns the stamp of a regular file; nullopt if it does not exist.
std::optional<std::string> fileStamp(const std::string& path);

} // namespace attnc::jit
