// Compiles CUDA text to machine code with NVRTC.
//
// In: a KernelSource, entirely in memory. Out: cubin, PTX and log of one compilation, checked. Not: caching, loading.
// Touches no GPU and no driver (`--no-cache` keeps NVRTC from opening libcuda); reads and writes no files.
#pragma once

#include "jit/env.h"
#include "jit/kernel_compiler.h"

#include <memory>
#include <string>
#include <vector>

namespace attnc::jit {

/// Returns all options for NVRTC, in order: the fixed ones, the arch, then the source's own. A source that names a C++
/// standard replaces the default one.
std::vector<std::string> nvrtcOptions(const KernelSource& source);

/// Checks the source's options. Blame::Internal if one would make the result depend on files, or has side effects: the
/// source then has no valid key.
Status checkOptions(const KernelSource& source);

/// libnvrtc, opened on first use. Thread-safe; compilations of several threads run in parallel.
class Nvrtc final : public KernelCompiler {
public:
  /// `path`: the library or its directory. Empty: see NvrtcLocator.
  explicit Nvrtc(const Env& env, std::string path = {});
  ~Nvrtc() override;

  std::optional<std::string> stamp() const override;

  /// Returns the version and banner of the build, e.g. "13.0 | Compiler Build ID: CL-36424714 | Cuda compilation tools,
  /// release 13.0, V13.0.88 | ...", and NV_NVVM_VERSION if set. nvrtcVersion() cannot distinguish 13.0.48 from 13.0.88.
  Expected<std::string> identity() override;

  /// Returns the path of the open library.
  Expected<std::string> path();

  /// Returns the compute capabilities it compiles for: 80, 90, 100, ...
  Expected<std::vector<int>> supportedArchs();

  /// Compiles a source. Blame::Environment in a process that was forked while another thread compiled, since NVRTC
  /// would hang.
  Expected<CompiledKernel> compile(const KernelSource& source) override;

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace attnc::jit
