// What a launch reads and writes, by kind of kernel.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/captures.h"
#include "attnc/tensor.h"

#include <optional>

namespace attnc {

/// Sequences of different lengths, packed: their rows lie one behind the other in tensors of batch 1, so that no row is
/// padding ("varlen"). q, out and gradients are views [1, H, total of rows, D] of memory [total, H, D], k and v likewise.
/// A mod sees b = 0 .. B - 1, the sequence, and positions within it: q_idx and kv_idx begin at 0 in each, unless queries
/// have offsets. Q_LEN and KV_LEN are the longest lengths. Cumulative lengths are read when the kernel runs, and not
/// checked: they ascend from 0 or above, and end at or before the end of the tensors. Rows outside of all sequences are
/// neither read nor written.
struct RaggedBatch {
  TensorView cuSeqlensQ; ///< i32 [B + 1]: sequence b has rows cuSeqlensQ[b] to cuSeqlensQ[b + 1] of q; maybe none
  std::optional<TensorView> cuSeqlensKv; ///< the same of k and v; not given: cuSeqlensQ
  /// No sequence has more rows of q, of k and v: what is longer is cut off. 0: not known, the rows of the tensor. Only the
  /// mod asks for them (Q_LEN, KV_LEN).
  int64_t maxQLen = 0, maxKvLen = 0;
};

/// What a launch reads: views of device memory that the caller owns, and that must stay valid until the stream has
/// passed the launch. The views themselves, `captures` and `blockMask` are read during the call alone. Addresses are
/// multiples of the element's size, strides over batch, heads and rows anything, 0 and negative ones included: fastest
/// are rows that begin at multiples of 16 bytes (forwardFamilies() says what each family takes). Extents may be 0; B, H
/// and HKV go up to 2^24, so do lengths. q, k, v and out have one dtype: BF16, F16 or F32;
/// only that k and v of a decode kernel may be E4M3 where q and out are of 16 bits (KernelOptions::fp8Kv).
struct Operands {
  TensorView q;               ///< [B, H, Q_LEN, D], last stride 1
  TensorView k;               ///< [B or 1, HKV, KV_LEN, D], last stride 1; H a multiple of HKV. Or pages: see pageTable
  /// [B or 1, HKV, KV_LEN, DV], last stride 1. Or pages. Rows that a mask hides must be finite: their weight is 0.
  TensorView v;
  std::optional<float> scale; ///< of q k^T; default 1 / sqrt(D)
  /// f32 [HKV], or [1, HKV] or [B, HKV] with the batch of k or of the page table, where k and v are E4M3: what the elements of
  /// a KV head stand for is that many times their value. Not given: 1. Read by each launch.
  std::optional<TensorView> kScales, vScales;
  /// i32 [B]: how many rows of k and v each sequence has; below 0 counts as 0, above KV_LEN as KV_LEN. What lies behind
  /// them never reaches a result, NaN neither; it must be memory all the same. A sequence without rows gives out 0 and
  /// lse -inf. A mod's KV_LEN stays the extent of k. For forward kernels with KernelOptions::lengths.
  std::optional<TensorView> kvLengths;
  /// i32 [B]: the position of the first query of each sequence, which mods see as q_idx; -2^24 to 2^24 - Q_LEN,
  /// clamped. For kernels with QueryOffsets::Tensor.
  std::optional<TensorView> qOffsets;
  /// i32 [B, N]: k and v are pools of pages, k [pages, HKV, page_size, D] and v [pages, HKV, page_size, DV], a
  /// page_size of kPageSizes, and entry (b, i) is the page of positions i * page_size .. (i + 1) * page_size - 1 of
  /// sequence b. Pages lie in any order, and sequences may share some. A mod's KV_LEN is N * page_size; kvLengths must
  /// be given, and entries of pages behind them are never read, nor do rows there reach any result. Entries before them
  /// must be pages of the pool. The last stride is 1. A pool that lies as [pages, page_size, HKV, D] is the same view
  /// with strides swapped. For kernels with KernelOptions::pageSize.
  std::optional<TensorView> pageTable;
  /// [B, HKV, Q_LEN, D] and [B, HKV, Q_LEN, DV], dtype of q, last stride 1: the keys and values of the tokens of q,
  /// which the launch writes into k and v, or into the pages, and attends to. kvLengths count them: row i goes to
  /// position kvLengths - Q_LEN
  /// + i, unless that is below 0. Both or none. k and v then have a batch entry for each of q's, and pages that are
  /// written are no other sequence's. They overlap no other tensor. For kernels with KernelOptions::appends.
  std::optional<TensorView> newK, newV;
  /// For kernels with KernelOptions::ragged. The batch of q, k, v and out is then 1, B the number of sequences.
  std::optional<RaggedBatch> ragged;
  /// All that the mod captures; tensors in device memory. Null: nothing.
  const Captures* captures = nullptr;
  /// Lists of the blocks that live, in device memory, for kernels that walk some (KernelOptions::blockSparse). Its
  /// lengths are those of q and k, its batch and heads B and H, or 1. Blocks are of rows of q, not of positions;
  /// columns behind kvLengths do not live, whatever is listed. Backward kernels need its lists by column, too.
  const BlockMaskView* blockMask = nullptr;
};

/// What a launch writes: those that are asked for, in device memory that the caller owns. They overlap neither each
/// other nor what is read, and different elements of `out` lie at different addresses.
struct Outputs {
  std::optional<TensorView> out; ///< [B, H, Q_LEN, DV], dtype of q, last stride 1. Forward kernels always write it
  /// f32 [B, H, Q_LEN], dense; natural log; -inf for a fully masked row. Of a ragged batch [1, H, rows of q]; so are the
  /// row maxima, and gradients by lse.
  std::optional<TensorView> lse;
  /// f32 [B, H, Q_LEN], dense; natural units; -inf for a fully masked row. Needs KernelOptions::rowMax.
  std::optional<TensorView> rowMax;
};

/// What a backward launch reads: the operands of the forward launch, what it wrote, and the gradients of a scalar loss
/// by that. All in device memory, last stride 1; they are not modified.
struct BackwardOperands : Operands {
  TensorView out;                 ///< [B, H, Q_LEN, DV], dtype of q: Outputs::out
  TensorView lse;                 ///< f32 [B, H, Q_LEN], dense: Outputs::lse
  TensorView dOut;                ///< as out: gradient of out
  std::optional<TensorView> dLse; ///< as lse: gradient of lse; not given: 0. Where a row is fully masked it is not read
};

/// What a backward launch writes, in device memory that the caller owns: gradients of the loss. They overlap neither
/// each other nor an operand. Rows and columns without live elements get 0.
struct BackwardOutputs {
  /// All three, or none of them where only captures want gradients: then what computes them is not run.
  std::optional<TensorView> dQ; ///< as q
  std::optional<TensorView> dK; ///< as k; where k is broadcast over the batch (batch 1), the sum over it
  std::optional<TensorView> dV; ///< as v; likewise
  /// A tensor for each name in KernelOptions::gradients; others are not looked at. Of the capture's shape, a scalar's
  /// without axes; f32 or of the capture's dtype; any strides, under which different elements lie at different
  /// addresses. Written, not added to: the sum over all reads of the element, where an index outside the capture reads
  /// the nearest element inside. Null: no name.
  const Captures* captures = nullptr;
};

} // namespace attnc
