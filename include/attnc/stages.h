// Texts between a mod and machine code: the IR between passes, the generated headers, and kernels as CUDA files that
// need nothing else.
//
// Functions are thread-safe and need no GPU.
#pragma once

#include "attnc/plan.h"

#include <string>
#include <vector>

namespace attnc {

/// Returns the names of the passes, in alphabetical order.
std::vector<std::string> passNames();
/// Returns the IR after each run of a pass on the way to a kernel. A line "; after NAME" is above each. `pass`: a name,
/// or "all" for every pass in order. Errors (environment): an unknown name; a pass that does not run for this kernel.
Expected<std::string> irTextAfter(const Plan& plan, const std::string& pass);

/// Returns the generated text of a kernel's launches: attnc_config.cuh and attnc_mod.cuh. Equal texts come once.
/// `launch`: counted from 1; 0: all. Errors: those of Plan::sources().
Expected<std::string> modText(const Plan& plan, int launch = 0);

/// The launch that a launcher is written for, as a kernel of its options takes it. Addresses only say which tensors are
/// given (not null), and whether v has the address of k: see vIsInK().
struct LaunchShape {
  BackwardOperands operands = {}; ///< Forward and decode kernels use the members of Operands.
  Outputs outputs = {};           ///< Of forward and decode kernels.
  BackwardOutputs gradients = {}; ///< Of backward kernels.
  int multiprocessors = 132;      ///< The GPU's; larger ones also run the launch.
  int64_t l2Bytes = 50 << 20;     ///< The GPU's. Decides only the order of tiles.
};
/// What a CUDA file is written for.
struct CudaFileOptions {
  int launch = 0; ///< The launch of the kernel, counted from 1; 0: all.
  /// Null, or the one launch of a host function in the file. Grids and parameters are numbers in it. Addresses and
  /// tensor maps are filled in when it is called. Read only during the call.
  const LaunchShape* launcher = nullptr;
};
/// Returns a CUDA file that needs only CUDA: the kernels of all launches. Its first lines say what it is, how to
/// compile it, and how it is launched. The launcher is named as the mod and the kind of kernel: "alibi_forward".
/// Errors: those of Plan::sources(). Also those of a launch with these operands, if there is a launcher.
Expected<std::string> cudaFile(const Plan& plan, const CudaFileOptions& file = {});
/// Returns the launches of which cudaFile() writes the kernels, in order. The entries are the names in that file: those
/// that different kernels would share have the number of the launch behind them, "attnc_forward_launch2". Errors: those
/// of cudaFile().
Expected<std::vector<KernelSource>> cudaFileLaunches(const Plan& plan, const CudaFileOptions& file = {});

} // namespace attnc
