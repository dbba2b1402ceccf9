// What a compiler is given and what it hands back, as plain values.
#pragma once

#include "cache/cache.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace attnc::jit {

/// One kernel to compile. Everything that can change the machine code is in here; nothing is read from disk.
struct CompileJob {
  std::string name;                                         ///< of the source in messages, e.g. "forward_sm80.cu"
  std::string source;                                       ///< text of the translation unit
  std::vector<std::pair<std::string, std::string>> headers; ///< name as included, text
  /// Header name -> what stands for its text in the key. Whoever sets it vouches that equal stand-ins give equal machine
  /// code; so names, comments and #line of a generated header need not make another kernel.
  std::map<std::string, std::string> keyedAs;
  std::vector<std::string> options;                         ///< beyond those of nvrtcOptions(), in order
  std::string arch;                                         ///< "sm_80", "sm_90a", ...
  std::string entry;                                        ///< name of the `extern "C" __global__` function
  std::string label; ///< what it is, for people: words "name=value" with spaces between; not part of the key
};

/// A compiled kernel. Numbers come from the log of ptxas.
struct CompileResult {
  std::vector<char> cubin;
  std::string ptx;                     ///< of the same compile
  std::string log;                     ///< of NVRTC and ptxas, unabridged
  int registers = 0;                   ///< a thread's, the largest of all functions
  int spillBytes = 0;                  ///< stores and loads, summed over all functions
  int64_t staticSharedBytes = 0;       ///< the largest of all functions
  int64_t stackBytes = 0;              ///< stack frames, summed over all functions
  std::vector<std::string> advisories; ///< lines of ptxas with C7504 or C7510..C7520: silently slow code
  double ms = 0;                       ///< wall time of the compile
};

/// Turns jobs into kernels. NVRTC in production, a fake in tests. All functions may be called from any thread.
class KernelCompiler : public cache::CompilerIdentity {
public:
  /// Blame::Environment: no compiler, or one that cannot serve this arch. Blame::Internal: the source does not
  /// compile, with the log.
  virtual Expected<CompileResult> compile(const CompileJob& job) = 0;
};

} // namespace attnc::jit
