// Compiles CUDA text to machine code with NVRTC.
//
// In: a CompileJob, whole in memory. Out: cubin, PTX and log of one compile, checked. Not: caching, loading. No GPU and
// no driver is touched (`--no-cache` keeps NVRTC from opening libcuda), no file is read or written.
#pragma once

#include "jit/compile_job.h"
#include "jit/env.h"

#include <memory>
#include <string>
#include <vector>

namespace attnc::jit {

/// Everything NVRTC is told for a job, in order: what is always said, the arch, then the job's own options. A job that
/// names a C++ standard replaces the default one.
std::vector<std::string> nvrtcOptions(const CompileJob& job);

/// Blame::Internal if an option would make the result depend on files, or would have side effects: such a job has no
/// key.
Status checkOptions(const CompileJob& job);

/// libnvrtc, opened at first need. Thread-safe; compiles of several threads run in parallel.
class Nvrtc final : public KernelCompiler {
public:
  /// `path`: of the library or its directory; empty: see NvrtcLocator.
  explicit Nvrtc(const Env& env, std::string path = {});
  ~Nvrtc() override;

  std::optional<std::string> stamp() const override;

  /// Version and banner of the build, e.g. "13.0 | Compiler Build ID: CL-36424714 | Cuda compilation tools, release
  /// 13.0, V13.0.88 | ...", and NV_NVVM_VERSION if it is set. nvrtcVersion() alone would not tell 13.0.48 from 13.0.88.
  Expected<std::string> identity() override;

  /// The library that is open.
  Expected<std::string> path();

  /// Compute capabilities it compiles for: 80, 90, 100, ...
  Expected<std::vector<int>> supportedArchs();

  /// In a process that was forked while another thread compiled: Blame::Environment, since NVRTC would hang.
  Expected<CompileResult> compile(const CompileJob& job) override;

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace attnc::jit
