// Finds libnvrtc and opens it.
//
// In: an explicit path or the environment. Out: the table of functions, and the file they come from. Not: compiling
// (nvrtc.h). Finding needs a few stat() calls; opening costs about 10 ms, so that the cache does without.
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

  /// "dev:inode:size:mtime" of the file that open() would most likely open; nullopt if only ld.so knows it.
  std::optional<std::string> stamp() const;

  /// Blame::Environment: there is none that can be opened; the message says where it looked.
  Expected<NvrtcApi> open() const;

private:
  std::vector<std::string> candidates;
  bool mayShare; ///< a copy that is open already serves as well
};

/// The stamp of a regular file; nullopt if there is none.
std::optional<std::string> fileStamp(const std::string& path);

} // namespace attnc::jit
