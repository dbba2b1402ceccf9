// What a compiler takes.
#pragma once

#include "attnc/kernel.h"
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

/// Compiles jobs to kernels: NVRTC in production, a fake in tests. All functions may be called from any thread.
class KernelCompiler : public cache::CompilerIdentity {
public:
  /// Compiles a job. The result tells neither entry and templateName nor dynamicSharedBytes. Blame::Environment: no
  /// compiler, or one that does not support this arch. Blame::Internal: the source does not compile; the error contains
  /// the log.
  virtual Expected<CompiledKernel> compile(const CompileJob& job) = 0;
};

} // namespace attnc::jit
