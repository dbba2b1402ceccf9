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

#include <array>

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
  std::optional<TensorView> cuSeqlensQ, cuSeqlensKv; ///< i32 [batch + 1], of a ragged batch: both
  ProblemShape problem;               ///< what the mod sees
  TensorView dOut, dQ, dK, dV;        ///< of backward kernels
  const float* dLse = nullptr;        ///< null: 0
  bool wantsOperands = true;          ///< of a backward launch: dQ, dK and dV are given
  llvm::SmallVector<CaptureOutput, 2> captures; ///< of a backward launch, in the order of Plan::captures
  bool loopsBatches = false; ///< sums of captures: a CTA takes all batch entries
  /// Of kernels by boxes: extents of the grids, three axes, the slowest first. Unset where captures are not known.
  struct Grids {
    std::array<int64_t, 3> queries, keys;
    /// Where the first extent is what the others leave of the length: the tokens that it counts.
    std::optional<int64_t> sliceOfQueries = {}, sliceOfKeys = {};
    std::optional<int64_t> farScalar = {}; ///< of a module that takes none
    /// Tokens before each, of mods that mean some beside their grids; unset of others.
    struct Before {
      int64_t queries, keys;
    };
    std::optional<Before> before = {};
  };
  std::optional<Grids> grids;
  std::optional<BlockMaskView> lists; ///< that a kernel walks, or that a block-mask kernel fills
};

/// Of operands that fit each other.
ProblemShape problemOf(const Operands& operands);

/// Checks q, k, v, out, and what else is given, against each other and against `options` (headDimV filled in): ranks,
/// dtypes, extents, strides. Addresses may be null. Errors are Blame::Environment and name the tensor.
Expected<LaunchOperands> checkLayout(const Operands& operands, const Outputs& outputs, const KernelOptions& options);

/// What of checkLayout() is of the operands beside q, k and v, but for a block mask: fills in the problem, and them.
/// Preconditions: q, k and v of `all` have rank 4, and checkOptions() or checkSequenceOptions() took the options.
Status checkSequences(const Operands& operands, const KernelOptions& options, LaunchOperands& all);

/// Checks that none of these is null that would be read.
Status checkSequencesExist(const LaunchOperands& operands);

/// Whether lengths, offsets and cumulative lengths of sequences are given as the kernel was compiled for.
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
  const auto given = [](const std::optional<TensorView>& tensor) { return tensor ? &*tensor : nullptr; };
  return {given(operands.kvLengths), given(operands.qOffsets), given(operands.cuSeqlensQ), given(operands.cuSeqlensKv)};
}

/// Rows of q, and of k and v, of one (batch, head) of the tensors: of a ragged batch those of all sequences. Of pages those
/// of a sequence.
inline int64_t rowsOfQ(const LaunchOperands& operands) { return operands.q.shape[2]; }
inline int64_t rowsOfKv(const LaunchOperands& operands) {
  return operands.pageTable ? operands.problem.kvLen : operands.k.shape[2];
}

/// Tiles of `rows` rows of q of one query head, of all batch entries; of a ragged batch slots for such
/// (templates/algo/sequence.cuh). Likewise of k and v of one KV head, of all of their batch entries.
int64_t qTilesOf(const LaunchOperands& operands, int64_t rows);
int64_t kvTilesOf(const LaunchOperands& operands, int64_t rows);

/// Batch entries of k and v: less than the problem's where they are broadcast.
inline int64_t kvBatchOf(const LaunchOperands& operands) {
  return operands.cuSeqlensQ ? operands.problem.batch : operands.k.shape[0];
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

/// Those of all backward kernels, but for what lies in the workspace.
BackwardParams backwardParams(const LaunchOperands& operands);

} // namespace attnc::plan
