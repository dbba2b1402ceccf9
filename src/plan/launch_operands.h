// Operands of one launch, checked once; the parameter blocks of all its stages are filled from them. Pure host code: no
// GPU is touched.
#pragma once

#include "attnc/kernel.h"
#include "attnc/operands.h"
#include "attnc/problem.h"
#include "ir/bindings.h"
#include "ir/ir.h"
#include "templates/params.cuh"

#include <llvm/ADT/SmallVector.h>

namespace attnc::plan {

/// Where the gradient of a capture goes, and how it is summed.
struct CaptureOutput {
  TensorView out;       ///< shape and dtype alone where nothing is launched
  int64_t elements = 0; ///< of the capture
  bool isOwned = false; ///< elements of attention that read one element of it are of one thread: no atomics
  bool isExact = false; ///< by words of templates/algo/exact_sum.cuh, else in f32
  bool isDirect = false; ///< summed in `out` itself
  size_t offset = 0;    ///< else in Use::CaptureSums, from here
  size_t bytes() const; ///< of the sums
};

/// Views as they were given, with what follows from them.
struct LaunchOperands {
  TensorView q, k, v, out;
  float* lse = nullptr;    ///< null: not asked for
  float* rowMax = nullptr; ///< null: not asked for
  float scale = 1;
  std::optional<TensorView> kvLengths, qOffsets; ///< i32 [batch]
  std::optional<TensorView> kScales, vScales;    ///< f32 [batch or 1, kv heads] of fp8
  std::optional<TensorView> newK, newV; ///< both or none
  std::optional<TensorView> pageTable; ///< i32 [batch, pages of a sequence]; k and v are pools then
  ProblemShape problem;               ///< what the mod sees
  TensorView dOut, dQ, dK, dV;        ///< of backward kernels
  const float* dLse = nullptr;        ///< null: 0
  bool wantsOperands = true;          ///< of a backward launch: dQ, dK and dV are given
  llvm::SmallVector<CaptureOutput, 2> captures; ///< of a backward launch, in the order of Plan::captures
  bool loopsBatches = false; ///< sums of captures: a CTA takes all batch entries
  std::optional<BlockMaskView> lists; ///< that a kernel walks, or that a block-mask kernel fills
};

/// Checks q, k, v, out, and what else is given, against each other and against `options` (headDimV filled in): ranks,
/// dtypes, extents, strides. Addresses may be null. Errors are Blame::Environment and name the tensor.
Expected<LaunchOperands> checkLayout(const Operands& operands, const Outputs& outputs, const KernelOptions& options);

/// Whether lengths and offsets of sequences are given as the kernel was compiled for.
Status checkSequencesGiven(const Operands& operands, const KernelOptions& options);

/// checkLayout() for a launch of a forward kernel: nothing is null that would be touched, and row maxima, lists,
/// lengths and offsets are given as the kernel was compiled for.
Expected<LaunchOperands> checkForward(const Operands& operands, const Outputs& outputs, const KernelOptions& options);

/// checkLayout() for backward kernels: gradients and what flows back are checked as well.
Expected<LaunchOperands> checkBackwardLayout(const BackwardOperands& operands, const BackwardOutputs& outputs,
                                             const KernelOptions& options);

/// The same for a launch of backward kernels: nothing is null that would be touched.
Expected<LaunchOperands> checkBackward(const BackwardOperands& operands, const BackwardOutputs& outputs,
                                       const KernelOptions& options);

/// For a launch of a block-mask kernel of the module's mask_mod.
Expected<LaunchOperands> checkBlockMask(const ir::Module& module, const BlockMaskView& mask,
                                        const ProblemShape& problem, const KernelOptions& options);

/// What bind() needs of them.
inline ir::SequenceTensors sequencesOf(const LaunchOperands& operands) {
  return {operands.kvLengths ? &*operands.kvLengths : nullptr, operands.qOffsets ? &*operands.qOffsets : nullptr};
}

/// Strides of a [batch, heads, rows, head_dim] tensor; those of extents that are never stepped over do not matter and
/// become 0.
Strides stridesOf(const TensorView& tensor);

/// The parameters that all forward kernels have in common.
ForwardParams forwardParams(const LaunchOperands& operands);

/// Those of kernels of a cache: of pages, new rows, or both.
CacheParams cacheParams(const LaunchOperands& operands);

/// What q, k and v pose, with a page table or without. Precondition: ranks as they must be.
ProblemShape problemOf(const Operands& operands);

/// Those of all backward kernels. `delta`: workspace, an f32 a row of q.
BackwardParams backwardParams(const LaunchOperands& operands, float* delta);

} // namespace attnc::plan
