// The tensors that a launch reads and writes, by kind of kernel. operands.def lists them for code that treats all
// alike.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/captures.h"
#include "attnc/features.h"
#include "attnc/tensor.h"

#include <optional>
#include <utility>

namespace attnc {

/// Rows of q, k or v of E4M3 that share a scale, if scales are of blocks.
inline constexpr int kRowsOfScale = 128;

/// The inputs of a launch: views of device memory that the caller owns. The memory must stay valid until the stream has
/// passed the launch. The views themselves, `captures` and `blockMask` are read only during the call.
///
/// Addresses are multiples of the element's size. Strides over batch, heads and rows are arbitrary, including 0 and
/// negative ones. Rows at multiples of 16 bytes are fastest; forwardFamilies() says what each family takes. Extents may
/// be 0. B, H, HKV and lengths go up to 2^24.
///
/// Tensors q, k, v and out share one dtype: BF16, F16 or F32. There are two exceptions, both with out of 16 bits.
/// Tensors k and v of a decode kernel may be E4M3 (Feature::Fp8Kv). Tensors q, k and v of a forward kernel may be E4M3
/// (Feature::Fp8Kv and Feature::Fp8Q).
struct Operands {
  TensorView q = {}; ///< [B, H, Q_LEN, D], last stride 1.
  TensorView k = {}; ///< [B or 1, HKV, KV_LEN, D], last stride 1. H is a multiple of HKV. Or a pool: see pageTable.
  /// [B or 1, HKV, KV_LEN, DV], last stride 1. Or a pool: see pageTable. Rows that a mask hides must be finite, since
  /// they are multiplied by 0. It may be a view of k's first columns, with k's strides: see vIsInK().
  TensorView v = {};
  std::optional<float> scale = {}; ///< Factor of q k^T. Default: 1 / sqrt(D).
  /// f32 [H], [1, H] or [B, H]; [1 or B, H, blocks] with a scale for each kRowsOfScale rows of Q_LEN. Or
  /// [1 or B, H, Q_LEN], with a scale for each row of q. For q of E4M3: each element is multiplied by the scale of its
  /// head, block or row, a finite number >= 0. Default: 1. In a ragged batch, B is the number of sequences, and each
  /// has its own blocks. Scales of rows are packed as q is, [1, H, rows of q]. Each launch reads them.
  std::optional<TensorView> qScales = {};
  /// f32 [HKV], [1, HKV] or [B, HKV], with the batch of k or of the page table. For k and v of E4M3, as qScales. There
  /// may be a scale for each row, with the shape of k without its last axis. With a page table these are [pages, HKV,
  /// page_size], or [pages, HKV, 1] with a scale for each page. If q is not E4M3, rows are then not appended. If q is,
  /// they may also be [1 or B, HKV, blocks], with a scale for each kRowsOfScale positions of KV_LEN. A fourth axis of 1
  /// says that they are of rows or pages. It is needed with q of E4M3 in pages, and where both fit. Scales of rows
  /// behind kvLengths are not read. In e4m3 forward kernels, those of V are from 2^-60 to 2^60.
  std::optional<TensorView> kScales = {}, vScales = {};
  /// i32 [B]: rows of k and v in each sequence, clamped to 0 .. KV_LEN. Rows past the length never reach a result, even
  /// if they are NaN; they must be valid memory all the same. A sequence without rows gives out 0 and lse -inf. A mod's
  /// KV_LEN stays the extent of k. Gradients of rows past the length are 0. For kernels with Feature::Lengths.
  std::optional<TensorView> kvLengths = {};
  /// i32 [B]: position of the first query of each sequence, which mods see in q_idx. Clamped to -2^24 .. 2^24 - Q_LEN.
  /// For kernels with QueryOffsets::Tensor.
  std::optional<TensorView> qOffsets = {};
  /// i32 [B, N]: page table; k and v are then pools of pages. A pool of k is [pages, HKV, page_size, D], one of v is
  /// [pages, HKV, page_size, DV], last stride 1. A pool stored as [pages, page_size, HKV, D] is the same view with
  /// strides swapped.
  ///
  /// Entry (b, i) is the page of positions i * page_size .. (i + 1) * page_size - 1 of sequence b. The page_size is one
  /// of kPageSizes. Pages lie in any order, and sequences may share them. A mod's KV_LEN is N * page_size.
  ///
  /// kvLengths must be given. Entries up to a length must be pages of the pool. Entries past it are never read, and
  /// rows past it never reach a result. In a ragged batch only q is packed, and the table has a row for each sequence.
  /// For kernels with KernelOptions::pageSize.
  std::optional<TensorView> pageTable = {};
  /// [B, HKV, Q_LEN, D] and [B, HKV, Q_LEN, DV], dtype of q, last stride 1: keys and values of the tokens of q. The
  /// launch writes them into k and v, or into the pages, and attends to them. Give both or neither.
  ///
  /// kvLengths count the new rows. Row i goes to position kvLengths - Q_LEN + i; it is dropped if that is below 0.
  /// Tensors k and v must have a batch entry for each of q's. Rows that are written belong to one sequence only. The
  /// tensors overlap no other tensor. For kernels with Feature::Appends.
  ///
  /// If k and v are E4M3 and q is not, the new rows are divided by the scale of their head, above 0, and
  /// rounded. If q is, they are E4M3 as well, and stored as they are.
  ///
  /// In a ragged batch, k and v must lie in pages. The new rows are packed as q is: [1, HKV, total of rows, D or DV].
  /// Q_LEN above is then the sequence's own length.
  std::optional<TensorView> newK = {}, newV = {};
  /// i32 [B + 1]: makes the batch ragged ("varlen"), with sequences of different lengths, packed without padding rows.
  /// Sequence b has rows cuSeqlensQ[b] .. cuSeqlensQ[b + 1] - 1 of q; it may be empty. Tensors q and out, and their
  /// gradients, are views [1, H, total of rows, D] of memory [total, H, D]. Tensors k and v have the same layout with
  /// HKV heads, or are pools: see pageTable. B is the number of sequences.
  ///
  /// A mod sees the sequence as b = 0 .. B - 1. Coordinates q_idx and kv_idx begin at 0 in each sequence, unless
  /// queries have offsets. Q_LEN and KV_LEN are the longest lengths.
  ///
  /// The kernel reads cumulative lengths when it runs, and checks them only if it is asked to (PrepareOptions::check).
  /// They ascend from 0 or above, and end at or before the end of the tensors. Rows outside all sequences are neither
  /// read nor written, nor is anything behind the tensors. For kernels with Feature::Ragged.
  std::optional<TensorView> cuSeqlensQ = {};
  /// i32 [B + 1]: the same for rows of k and v, unless these lie in pages. Default: cuSeqlensQ.
  std::optional<TensorView> cuSeqlensKv = {};
  /// Longest sequence of a ragged batch, in rows of q, and of k and v; longer ones are cut off. They are the mod's
  /// Q_LEN and KV_LEN, and a block mask has these lengths. If they are unknown, 0, the rows of the tensor are used, or
  /// those that the page table has room for.
  int64_t maxQLen = 0, maxKvLen = 0;
  /// All captures of the mod; tensors in device memory. Null if it has none.
  const Captures* captures = nullptr;
  /// Block mask with its lists in device memory, for kernels with KernelOptions::blockSparse. Its lengths are those of
  /// q and k; its batch and heads are B and H, or 1. Blocks are of rows of q, not of positions. Columns past kvLengths
  /// are masked even if they are listed. Backward kernels also need its lists by column.
  ///
  /// In a ragged batch, its batch is the sequences (or 1), and its lengths are maxQLen and maxKvLen, or what stands for
  /// these. Blocks are of rows and positions of each sequence.
  const BlockMaskView* blockMask = nullptr;
};

/// The outputs of a launch: those asked for, in device memory that the caller owns. They overlap neither each other nor
/// the inputs. Different elements of `out` have different addresses.
struct Outputs {
  /// [B, H, Q_LEN, DV], dtype of q, last stride 1; BF16 or F16 if q is E4M3. Required by forward kernels.
  std::optional<TensorView> out = {};
  /// f32 [B, H, Q_LEN], dense: natural log of the sum of exponentials; -inf for a fully masked row. If the mod has a
  /// weight_mod, it is 0. In a ragged batch, lse, rowMax and their gradients are [1, H, rows of q].
  std::optional<TensorView> lse = {};
  /// f32 [B, H, Q_LEN], dense: maximum score of a row in natural units; -inf for a fully masked row. Needs
  /// Feature::RowMax.
  std::optional<TensorView> rowMax = {};
  /// Outputs that the mod declares (Mod::reductions()): a tensor for each name that is wanted. It is f32 and dense,
  /// with the declared axes. [B, H, Q_LEN] has the shape of lse. In a ragged batch with packed k and v, [B, H, KV_LEN]
  /// is [1, H, rows of k]. Rows outside all sequences are not written. Null if there are none. For forward and decode
  /// kernels with Feature::Reductions.
  const Captures* reductions = nullptr;
};

/// The inputs of a backward launch: the forward launch's operands and outputs, and the gradients of a scalar loss by
/// these outputs. All are in device memory, have last stride 1, and are not modified.
///
/// If the loss reads outputs of the mod, Operands::captures hold the gradient of each sum NAME as NAME_gradient. It is
/// f32, with the axes of the sum and any strides. Maxima have no gradient. Training is settled with these captures, and
/// forward launches do not read them. For kernels with Feature::Reductions. A mod that captures NAME_gradient
/// itself has no gradient of NAME.
struct BackwardOperands : Operands {
  TensorView out = {};  ///< [B, H, Q_LEN, DV], dtype of q: Outputs::out of the forward launch.
  TensorView lse = {};  ///< f32 [B, H, Q_LEN], dense: Outputs::lse of the forward launch.
  TensorView dOut = {}; ///< Gradient of out; shape and dtype of out.
  /// Gradient of lse; shape and dtype of lse. Default: 0. Entries of fully masked rows are not read.
  std::optional<TensorView> dLse = {};
  /// Directions of q, k and v, with their shapes and dtype and any strides, last 1: give all or none. With them the
  /// launch computes derivatives along these directions ("tangents", forward-mode differentiation). BackwardOutputs are
  /// then the tangents of out, of lse and of the gradients, for fixed dOut and dLse. Each captured float NAME has its
  /// direction in Operands::captures as NAME_tangent, with the shape and dtype of NAME. prob_mod counts as constant.
  ///
  /// With w as directions these are second derivatives in reverse mode, of the sum of w times the gradients. Tangents
  /// of out and lse are its gradients by dOut and dLse; tangents of gradients are those by q, k, v and captures. For
  /// kernels with Feature::Tangents.
  std::optional<TensorView> qTangent = {}, kTangent = {}, vTangent = {};
};

/// The outputs of a backward launch: gradients of the loss, in device memory that the caller owns. They overlap neither
/// each other nor an operand. Rows and columns without live elements get 0.
struct BackwardOutputs {
  /// Gradient of q; shape and dtype of q. Give dQ, dK and dV, or none of them if only captures need gradients. The
  /// kernels that compute them then do not run.
  std::optional<TensorView> dQ = {};
  std::optional<TensorView> dK = {}; ///< Gradient of k; shape and dtype of k. Summed over the batch if k has batch 1.
  std::optional<TensorView> dV = {}; ///< Gradient of v; shape and dtype of v. Summed over the batch if v has batch 1.
  /// Gradients of captures: a tensor for each name in KernelOptions::gradients; other names are ignored. Null if there
  /// are no names. A tensor has the capture's shape; a scalar's has rank 0. Its dtype is f32 or the capture's. Strides
  /// are arbitrary if different elements have different addresses.
  ///
  /// Gradients are written, not added to. Each is the sum over all reads of the element. A read at an index outside the
  /// capture counts for the nearest element inside.
  const Captures* captures = nullptr;
  /// With BackwardOperands::qTangent, and required then: tangents of out and lse, like these. dQ, dK and dV are
  /// optional then.
  std::optional<TensorView> outTangent = {}, lseTangent = {};
};

/// Returns whether `v` is a view of the first columns of `k`: its address and strides are those of k. Decode kernels of
/// head dims above 256 then load only k (Feature::VInK). Null addresses tell only if v has fewer columns. To settle a
/// kernel without memory, give both any one address.
inline bool vIsInK(const TensorView& k, const TensorView& v) {
  bool same = k.data == v.data && k.dtype == v.dtype && k.rank == 4 && v.rank == 4 && v.shape[3] <= k.shape[3] &&
              (k.data || v.shape[3] < k.shape[3]);
  for (size_t axis = 0; axis < 3 && same; ++axis)
    same = k.shape[axis] == v.shape[axis] && (k.shape[axis] <= 1 || k.stride[axis] == v.stride[axis]);
  return same;
}

/// Returns whether scales of q, k or v of a forward kernel are of rows or pages, not of heads or blocks. `length`:
/// Q_LEN or KV_LEN. `isPool`: whether the rows lie in pages.
inline bool scalesAreOfRows(const TensorView& scales, int64_t length, bool isPool = false) {
  const bool isOfBlocks = isPool || scales.shape[2] == (length + kRowsOfScale - 1) / kRowsOfScale;
  return scales.rank == 4 || (scales.rank == 3 && !isOfBlocks);
}

/// Calls visit(name, tensor, feature) for each optional tensor of Operands, given or not.
template <class OperandsLike, class Visit> void forEachOptional(OperandsLike& operands, Visit visit) {
#define ATTNC_OPTIONAL(member, name, feature) visit(#name, operands.member, Feature::feature);
#include "attnc/operands.def"
}

/// Returns the features that the given tensors need.
inline Features featuresOf(const Operands& operands) {
  Features features;
  forEachOptional(operands, [&](const char*, const std::optional<TensorView>& tensor, Feature feature) {
    if (tensor) features.set(feature);
  });
  if (operands.k.dtype == DType::E4M3) features.set(Feature::Fp8Kv);
  if (operands.q.dtype == DType::E4M3) {
    features.set(Feature::Fp8Q);
    const bool isRagged = operands.cuSeqlensQ.has_value();
    const auto& table = operands.pageTable;
    const int64_t qLen = isRagged && operands.maxQLen ? operands.maxQLen : operands.q.shape[2];
    const int64_t kvLen =
        isRagged && operands.maxKvLen ? operands.maxKvLen : (table ? table->shape[1] : 1) * operands.k.shape[2];
    const auto have = [](const std::optional<TensorView>& scales, int64_t length, bool isPool) {
      return scales && scalesAreOfRows(*scales, length, isPool);
    };
    if (have(operands.qScales, qLen, false) || have(operands.kScales, kvLen, table.has_value()) ||
        have(operands.vScales, kvLen, table.has_value()))
      features.set(Feature::RowScales);
  }
  if (operands.q.dtype == DType::F32) features.set(Feature::F32);
  if (operands.blockMask) features.set(operands.blockMask->shape.boxes ? Feature::BoxMask : Feature::BlockMask);
  return features;
}

} // namespace attnc
