// Finds libnvrtc and opens it.
//
// In: an explicit path or the environment. Out: the table of functions, and the file they come from. Not: compiling
// (nvrtc.h). Finding needs a few stat() calls; opening costs about 10 ms, so that the cache does without.
//
// NVRTC takes one setting from the environment that changes machine code: NV_NVVM_VERSION, which it reads when it is
// loaded and never again.
#pragma once

#include "attnc/error.h"
#include "jit/dynamic_library.h"
#include "jit/env.h"

#include <nvrtc.h>

#include <optional>
#include <string>
#include <vector>

namespace attnc::jit {

// Every function of NVRTC that is used here.
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
  std::string path; ///< of the opened library
};

/// Where libnvrtc is looked for, in this order: `explicitPath` alone if given; $ATTNC_NVRTC alone if set; the one that
/// this process has opened already; the directories of $LD_LIBRARY_PATH; $CUDA_HOME/lib64; the directories fixed when
/// attnc was built; /usr/local/cuda/lib64; the usual library directories; at last the bare soname, which asks ld.so.
/// A path may name a directory.
class NvrtcLocator {
public:
  NvrtcLocator(std::string explicitPath, const Env& env);

  /// stampOf() the file that open() would most likely open; nullopt if only ld.so knows it.
  std::optional<std::string> stamp() const;

  /// "dev:inode:size:mtime" of a file, and its NV_NVVM_VERSION; nullopt if there is none.
  std::optional<std::string> stampOf(const std::string& path) const;

  /// NV_NVVM_VERSION when this process loaded the library at `path`; before, that of the environment given.
  std::string nvvmVersionOf(const std::string& path) const;

  /// Blame::Environment: there is none that can be opened, and the message says where it looked; or NV_NVVM_VERSION is
  /// no longer what stamp() told.
  Expected<NvrtcApi> open() const;

private:
  std::optional<std::string> likelyPath() const;
  Expected<NvrtcApi> load() const;
  std::vector<std::string> candidates;
  bool mayShare; ///< a copy that is open already serves as well
  std::string nvvmVersion;
};

/// The stamp of a regular file; nullopt if there is none.
std::optional<std::string> fileStamp(const std::string& path);

} // namespace attnc::jit
