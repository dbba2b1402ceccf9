// Texts between a mod and machine code: the IR between passes, the generated headers, and kernels as CUDA files that
// need nothing else.
//
// Functions are thread-safe and need no GPU.
#pragma once

#include "attnc/kernel.h"
#include "attnc/mod.h"

#include <string>
#include <vector>

namespace attnc {

/// Returns the names of the passes, in alphabetical order.
std::vector<std::string> passNames();
/// Returns the IR after each run of a pass on the way to a kernel. A line "; after NAME" is above each. `pass`: a name,
/// or "all" for every pass in order. Errors (environment): an unknown name; a pass that does not run for this kernel.
Expected<std::string> irTextAfter(const Mod& mod, const KernelOptions& options, const std::string& pass);

/// Returns the generated text of a kernel's launches: attnc_config.cuh and attnc_mod.cuh. Equal texts come once.
/// `launch`: counted from 1; 0: all. Errors: those of Compiler::source().
Expected<std::string> modText(const Mod& mod, const KernelOptions& options, int launch = 0);

/// What a CUDA file is written for.
struct CudaFileOptions {
  int launch = 0;        ///< The launch of the kernel, counted from 1; 0: all.
  bool launcher = false; ///< Whether the file also has a host function that launches the kernel.
};
/// Returns a CUDA file that needs only CUDA: the kernels of all launches. Its first lines say what it is, how to
/// compile it, and how it is launched. The launcher is named as the mod and the kind of kernel: "alibi_forward".
/// Errors: those of Compiler::source(). Also (environment) options that launchers do not serve.
Expected<std::string> cudaFile(const Mod& mod, const KernelOptions& options, const CudaFileOptions& file = {});
/// Returns the launches of which cudaFile() writes the kernels, in order. The entries are the names in that file: those
/// that different kernels would share have the number of the launch behind them, "attnc_forward_launch2". Errors: those
/// of cudaFile().
Expected<std::vector<KernelSource>> cudaFileLaunches(const Mod& mod, const KernelOptions& options,
                                                     const CudaFileOptions& file = {});

} // namespace attnc
