// Kernels: what is static in one, what it is made of, and launching it.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/error.h"
#include "attnc/operands.h"
#include "attnc/problem.h"
#include "attnc/tensor.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

struct CUstream_st; // as in cuda.h; cudaStream_t is the same type

namespace attnc {

using Stream = CUstream_st*;

enum class KernelKind { Forward, Backward, BlockMask };
enum class Family { Auto, Naive, Sm80, Sm90 };

/// What is static in a kernel: a change of any of these is another kernel. Lengths, batch, heads, strides, scale and
/// the captures' values are given at launch and never compile.
struct KernelOptions {
  KernelKind kind = KernelKind::Forward;
  Family family = Family::Auto; ///< Auto: the catalogue picks for the arch; for a layout, Compiler::forLayout
  std::string arch;             ///< "sm_80", "sm_90a", ...; empty: that of the current CUDA context's device
  DType dtype = DType::BF16;    ///< of q, k, v, out: BF16, F16, F32
  int headDim = 128;            ///< of q and k: a multiple of 8, 8..256
  int headDimV = 0;             ///< of v and out; 0: headDim
  bool blockSparse = false;     ///< launches pass a block mask
  int maskQBlock = 128;         ///< with blockSparse: block size of the masks to come
  int maskKvBlock = 128;
  bool rowMax = false; ///< launches may ask for the row maximum
  bool tf32 = false;   ///< F32: one TF32 product instead of three (about 1e-3 instead of 1e-6 relative error)
  std::map<std::string, int64_t> pins; ///< "KV_LEN" -> 8192: folded into the kernel, and then part of the key
};

/// Generated text of one kernel: what NVRTC is given.
struct KernelSource {
  std::string entry;                                        ///< name of the __global__ function
  std::string templateName;                                 ///< e.g. "forward_sm80.cu"
  std::string text;                                         ///< the template
  std::vector<std::pair<std::string, std::string>> headers; ///< name, text: the templates and the two generated ones
  std::vector<std::string> options;
  std::string arch;
  Family family = Family::Naive;
  /// One self-contained .cu: the headers pasted into the template once each, in order.
  std::string flattened() const;
};

/// A compiled kernel, not yet on a device.
struct CompiledKernel {
  std::vector<char> cubin;
  std::string ptx;
  std::string log; ///< of NVRTC and ptxas
  int registers = 0;
  int spillBytes = 0; ///< stores and loads, all functions
  int64_t staticSharedBytes = 0;
  int64_t dynamicSharedBytes = 0;      ///< what the launch asks for
  std::vector<std::string> advisories; ///< of ptxas, C7504 and C7510..C7520: code that is silently slow
  bool fromDisk = false;               ///< the call that gave this read it from the disk cache
  double compileMs = 0; ///< what compiling took that call; 0 when it came from the cache, in memory or on disk
};

/// What a workspace is aligned to, in bytes. Device allocators of CUDA and of its libraries do no less.
constexpr size_t kWorkspaceAlignment = 256;

/// A loaded kernel and its plan (src/api).
struct LoadedPlan;

/// A forward kernel, loaded on one device. Immutable; copies share; any number of threads may launch it on any streams
/// of that device. Its code stays loaded as long as a copy or the Compiler that made it lives; one of them must outlive
/// the work that was launched.
class ForwardKernel {
public:
  /// Enqueues. Checks operands and outputs first and launches nothing on an error (Blame::Environment naming the
  /// tensor); a layout that its family does not take is one, for a launch never picks another kernel. Allocates no
  /// device memory, synchronises nothing, compiles nothing; may be captured into a CUDA graph. `workspace`:
  /// workspaceBytes() of device memory, or null, with which the kernel runs as well, only its work is dealt less
  /// evenly. Empty problems (an extent 0) are legal: kv_len 0 gives out 0 and lse -inf.
  Status launch(const Operands& operands, const Outputs& outputs, void* workspace, Stream stream) const;

  /// Bytes of device memory that a launch can use, at a multiple of kWorkspaceAlignment; 0: none. The caller zeroes
  /// them once; a launch leaves them zero, and two launches that may overlap need a workspace each.
  size_t workspaceBytes() const;

  const CompiledKernel& compiled() const;
  const KernelOptions& options() const; ///< with family and arch as chosen

private:
  friend class Compiler;
  explicit ForwardKernel(std::shared_ptr<const LoadedPlan> plan) : plan(std::move(plan)) {}
  std::shared_ptr<const LoadedPlan> plan;
};

/// The backward kernels of a mod: gradients of q, k and v through out and lse. Deterministic. In all else like
/// ForwardKernel, but that a workspace is needed.
class BackwardKernel {
public:
  /// Enqueues. `workspace`: workspaceBytes() of device memory at a multiple of kWorkspaceAlignment, whatever is in it.
  Status launch(const Operands& operands, const Outputs& outputs, void* workspace, Stream stream) const;

  /// Bytes for a problem: 4 for each row of q.
  size_t workspaceBytes(const ProblemShape& problem) const;

  const KernelOptions& options() const;

private:
  friend class Compiler;
  explicit BackwardKernel(std::shared_ptr<const LoadedPlan> plan) : plan(std::move(plan)) {}
  std::shared_ptr<const LoadedPlan> plan;
};

/// A kernel that builds block masks by evaluating mask_mod. In all else like ForwardKernel.
class BlockMaskKernel {
public:
  /// Enqueues the filling of the lists of `mask`: device memory, laid out as BlockMask::viewInto does, of the lengths
  /// of `problem`. Tensors of `captures` are in device memory.
  Status launch(const BlockMaskView& mask, const ProblemShape& problem, const Captures& captures, Stream stream) const;

  const CompiledKernel& compiled() const;
  const KernelOptions& options() const;

private:
  friend class Compiler;
  explicit BlockMaskKernel(std::shared_ptr<const LoadedPlan> plan) : plan(std::move(plan)) {}
  std::shared_ptr<const LoadedPlan> plan;
};

} // namespace attnc
