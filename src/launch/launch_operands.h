// Operands of one launch, checked once. The parameter blocks of all stages are filled from them. Pure host code:
// touches no GPU.
#pragma once

#include "attnc/kernel.h"
#include "attnc/operands.h"
#include "attnc/problem.h"
#include "ir/bind.h"
#include "ir/ir.h"
#include "templates/params.cuh"

#include <llvm/ADT/SmallVector.h>

#include <array>

namespace attnc::plan {

/// Where the gradient of a capture goes, and how it is summed.
struct CaptureOutput {
  TensorView out;         ///< if nothing is launched, only its shape and dtype are valid
  int64_t elements = 0;   ///< of the capture
  bool isOwned = false;   ///< one thread computes all scores that read an element: its sum needs no atomics
  bool isExact = false;   ///< summed in words of templates/algo/exact_sum.cuh, else in f32
  bool isDirect = false;  ///< summed in `out` itself
  bool inColumns = false; ///< as CaptureAccess::inColumns
  size_t offset = 0;      ///< if not isDirect: offset of the sums in Use::CaptureSums
  size_t bytes() const;   ///< of the sums
};

class WideOperands;

/// Operands as the caller gave them, with derived values. Scales have rank 3, or 4 if they are of rows or pages;
/// `scale` and both cumulative lengths are filled in, and the pointers to captures and block mask are null.
struct LaunchOperands : Operands {
  TensorView out;
  float* lse = nullptr;                 ///< null: not requested
  float* rowMax = nullptr;              ///< null: not requested
  const Captures* reductions = nullptr; ///< Outputs::reductions
  ProblemShape problem;                 ///< the shape that the mod sees
  TensorView dOut, dQ, dK, dV;          ///< for backward kernels
  const float* dLse = nullptr;          ///< null: 0
  bool wantsOperands = true;            ///< backward: whether dQ, dK and dV are given
  /// Directions of q, k and v, and the results along them; see BackwardOperands::qTangent.
  struct Tangents {
    TensorView q, k, v, out;
    float* lse = nullptr;
  };
  std::optional<Tangents> tangents;                   ///< for backward kernels with Feature::Tangents
  llvm::SmallVector<CaptureOutput, 2> captureOutputs; ///< backward, in the order of Plan::captures
  bool loopsBatches = false;                          ///< for sums of captures: whether a CTA takes all batch entries
  /// For box kernels: extents of the grids, three axes, the slowest first. Unset if captures are unknown.
  struct Grids {
    std::array<int64_t, 3> queries, keys;
    /// If the first extent is derived from the length: the number of tokens that it counts in.
    std::optional<int64_t> sliceOfQueries = {}, sliceOfKeys = {};
    /// A run-time scalar outside ±kMaxExtent, if any. Modules with hasNearScalars reject launches that have one.
    std::optional<int64_t> farScalar = {};
    /// Tokens before each grid. Set if the mod allows off-grid tokens.
    struct Before {
      int64_t queries, keys;
    };
    std::optional<Before> before = {};
  };
  std::optional<Grids> grids;
  /// Further columns of q and k in tensors of their own, for kernels of a head dim that counts these. Both have query
  /// heads. All batch entries, or heads, share an axis of extent 1.
  struct Columns {
    TensorView q, k;
  };
  std::optional<Columns> columns;
  const ir::Bindings* bindings = nullptr; ///< values of captures. Null if they are unknown, or no stage asks for them
  std::optional<BlockMaskView> lists;     ///< the lists that a kernel walks, or that a block-mask kernel fills
  WideOperands* wide = nullptr;           ///< where stages share their wider operands. Null: each makes its own
};

/// Returns the problem's shape, with or without a page table. Precondition: the operands fit each other.
ProblemShape problemOf(const Operands& operands);

/// Checks q, k, v, out, and all else that is given, against each other and against `options` (headDimV filled in):
/// ranks, dtypes, extents, strides. Addresses may be null. Errors are Blame::Environment and name the tensor.
Expected<LaunchOperands> checkLayout(const Operands& operands, const Outputs& outputs, const KernelOptions& options);

/// The part of checkLayout() that concerns the optional tensors. Fills in the problem, and what they leave open.
/// Preconditions: q, k and v have rank 4, and checkOptions() or checkSequenceOptions() accepted the options.
Status checkSequences(const KernelOptions& options, LaunchOperands& all);

/// Checks the address of a tensor with elements: it is not null, and a multiple of the element's size.
Status checkAddress(std::string_view name, const TensorView& tensor);

/// Checks the addresses of all tensors that are given.
Status checkAddresses(const Operands& operands);

/// Checks that different elements of a tensor that is written have different addresses, by its strides: each passes
/// over the elements of the smaller ones.
Status checkDistinct(std::string_view name, const TensorView& tensor);

/// Checks lse, row_max or dlse of `q`: f32 [B, H, Q_LEN], dense.
Status checkRowOutput(std::string_view name, const TensorView& tensor, const TensorView& q);

/// Checks that the optional tensors are given that the kernel was compiled for, and no others.
Status checkGiven(const Operands& operands, const KernelOptions& options);

/// checkLayout() for a launch of a forward kernel. Also checks that nothing that would be touched is null, and that row
/// maxima, lists, lengths and offsets are given as the kernel was compiled for.
Expected<LaunchOperands> checkForward(const Operands& operands, const Outputs& outputs, const KernelOptions& options);

/// checkLayout() for backward kernels. Also checks the gradients, given and computed.
Expected<LaunchOperands> checkBackwardLayout(const BackwardOperands& operands, const BackwardOutputs& outputs,
                                             const KernelOptions& options);

/// checkBackwardLayout() for a launch. Also checks that nothing that would be touched is null.
Expected<LaunchOperands> checkBackward(const BackwardOperands& operands, const BackwardOutputs& outputs,
                                       const KernelOptions& options);

/// Checks a launch of a block-mask kernel of the module's mask_mod. `sequences`: checked operands, whose lengths and
/// offsets the lists are of. Null: there are none.
Expected<LaunchOperands> checkBlockMask(const ir::Module& module, const BlockMaskView& mask,
                                        const ProblemShape& problem, const KernelOptions& options,
                                        const LaunchOperands* sequences = nullptr);

/// Returns the tiles of `rows` rows of q of one query head, over all batch entries. For a ragged batch, returns slots
/// of tiles (templates/algo/sequence.cuh). kvTilesOf() returns the same for k and v, of one KV head and all of their
/// batch entries.
int64_t qTilesOf(const LaunchOperands& operands, int64_t rows);
int64_t kvTilesOf(const LaunchOperands& operands, int64_t rows);

/// Returns the strides of a [batch, heads, rows, head_dim] tensor. Strides that are never stepped over do not matter
/// and become 0.
Strides stridesOf(const TensorView& tensor);

/// Returns the factors of the elements of q, k or v. Scales have rank 3; their last stride is 0 if they are of heads.
Scales scalesOf(const std::optional<TensorView>& scales);

/// Returns the parameters that all forward kernels share.
ForwardParams forwardParams(const LaunchOperands& operands);

/// Returns the parameters of kernels of a cache: with pages, new rows, or both.
CacheParams cacheParams(const LaunchOperands& operands);

/// Returns the parameters that all backward kernels share, without those in the workspace.
BackwardParams backwardParams(const LaunchOperands& operands);

/// Returns the parameters of kernels of tangents, without t_delta. `backward`: from backwardParams().
TangentParams tangentParams(const LaunchOperands& operands, BackwardParams backward);

/// Return the rows of q, or of k and v, in one (batch, head) of the tensors. For a ragged batch, these are the rows of
/// all sequences; with pages, the rows of one sequence.
inline int64_t rowsOfQ(const LaunchOperands& operands) { return operands.q.shape[2]; }
inline int64_t rowsOfKv(const LaunchOperands& operands) {
  return operands.pageTable ? operands.problem.kvLen : operands.k.shape[2];
}

/// Returns the batch entries of k and v: fewer than the problem's if they are broadcast.
inline int64_t kvBatchOf(const LaunchOperands& operands) {
  return operands.cuSeqlensQ ? operands.problem.batch : operands.k.shape[0];
}

/// Returns how many query heads share a KV head, over all batches that share K and V; at least 1,
/// since somebody must write the gradients of k and v.
inline int64_t sharersOf(const LaunchOperands& operands) {
  const ProblemShape& problem = operands.problem;
  if (problem.kvHeads == 0 || problem.qHeads == 0 || problem.batch == 0) return 1;
  return (kvBatchOf(operands) == problem.batch ? 1 : problem.batch) * (problem.qHeads / problem.kvHeads);
}

} // namespace attnc::plan
