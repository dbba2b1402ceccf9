// A compiler's input and output, as plain values.
#pragma once

#include "cache/cache.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace attnc::jit {

/// One kernel to compile. Contains everything that can change the machine code; nothing is read from disk.
struct CompileJob {
  std::string name;                                         ///< name of the source in messages, e.g. "forward_sm80.cu"
  std::string source;                                       ///< text of the translation unit
  std::vector<std::pair<std::string, std::string>> headers; ///< name as included, text
  /// Header name -> replacement of its text in the key. The caller guarantees that equal replacements give equal
  /// machine code. So names, comments and #line of a generated header need not make another kernel.
  std::map<std::string, std::string> keyedAs;
  std::vector<std::string> options; ///< in addition to those of nvrtcOptions(), in order
  std::string arch;                 ///< "sm_80", "sm_90a", ...
  std::string entry;                ///< name of the `extern "C" __global__` function
  std::string label; ///< description for people: words "name=value" separated by spaces; not part of the key
};

/// A compiled kernel. Numbers come from the log of ptxas.
struct CompileResult {
  std::vector<char> cubin;
  std::string ptx;                     ///< from the same compilation
  std::string log;                     ///< of NVRTC and ptxas, unabridged
  int registers = 0;                   ///< per thread, the largest of all functions
  int spillBytes = 0;                  ///< stores and loads, summed over all functions
  int64_t staticSharedBytes = 0;       ///< the largest of all functions
  int64_t stackBytes = 0;              ///< stack frames, summed over all functions
  std::vector<std::string> advisories; ///< lines of ptxas with C7504 or C7510..C7520: silently slow code
  double ms = 0;                       ///< wall time of the compilation
};

/// Compiles jobs to kernels: NVRTC in production, a fake in tests. All functions may be called from any thread.
class KernelCompiler : public cache::CompilerIdentity {
public:
  /// Compiles a job. Blame::Environment: no compiler, or one that does not support this arch. Blame::Internal: the
  /// source does not compile; the error contains the log.
  virtual Expected<CompileResult> compile(const CompileJob& job) = 0;
};

} // namespace attnc::jit
