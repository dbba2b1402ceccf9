// The parameters of kernels, from checked operands.
#include "launch/launch_operands.h"

#include "support/ceil_div.h"

#include <algorithm>

namespace attnc::plan {

/// Returns the tiles of a length; for a ragged batch, the slots, which suffice for the tiles of any sequence lengths.
static int64_t tilesOf(bool isRagged, int64_t batch, int64_t length, int64_t rows) {
  return isRagged ? (batch ? length / rows + batch : 0) : batch * ((length + rows - 1) / rows);
}

int64_t qTilesOf(const LaunchOperands& operands, int64_t rows) {
  return tilesOf(operands.cuSeqlensQ.has_value(), operands.problem.batch, rowsOfQ(operands), rows);
}

int64_t kvTilesOf(const LaunchOperands& operands, int64_t rows) {
  return tilesOf(operands.cuSeqlensKv.has_value(), kvBatchOf(operands), rowsOfKv(operands), rows);
}

Strides stridesOf(const TensorView& tensor) {
  return {tensor.shape[0] > 1 ? tensor.stride[0] : 0, tensor.shape[1] > 1 ? tensor.stride[1] : 0,
          tensor.shape[2] > 1 ? tensor.stride[2] : 0};
}

/// Whether all rows begin at multiples of 16 bytes.
static bool rowsAreAligned(const TensorView& tensor) {
  const Strides s = stridesOf(tensor);
  const int64_t bytes = dtypeBytes(tensor.dtype);
  return reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0 && s.batch * bytes % 16 == 0 && s.head * bytes % 16 == 0 &&
         s.row * bytes % 16 == 0;
}

/// Returns lists along one axis, `count` for each head. `Lists`: BlockMaskView or BlockMaskColumns.
template <class Lists> static BlockLists blockLists(const BlockMaskShape& shape, const Lists& of, int64_t count) {
  BlockLists lists{};
  lists.partial_count = of.partialCount;
  lists.partial_index = of.partialIndex;
  lists.full_count = of.fullCount;
  lists.full_index = of.fullIndex;
  lists.head_stride = shape.heads > 1 ? count : 0;
  lists.batch_stride = shape.batch > 1 ? count * shape.heads : 0;
  lists.index_stride = of.indexStride;
  lists.q_block = shape.qBlock;
  lists.kv_block = shape.kvBlock;
  return lists;
}

/// Returns what only a ragged batch has. Blocks are at most 256 rows.
static RaggedRows raggedRows(const LaunchOperands& operands) {
  RaggedRows rows{};
  rows.q = int(rowsOfQ(operands));
  rows.kv = int(rowsOfKv(operands));
  if (!operands.lists) return rows;
  const BlockMaskShape& shape = operands.lists->shape;
  const BlockLists lists = blockLists(shape, *operands.lists, shape.qBlocks());
  rows.partial_count = lists.partial_count;
  rows.partial_index = lists.partial_index;
  rows.full_count = lists.full_count;
  rows.full_index = lists.full_index;
  rows.batch_stride = lists.batch_stride;
  rows.index_stride = lists.index_stride;
  rows.head_stride = int(lists.head_stride);
  rows.q_block = short(lists.q_block);
  rows.kv_block = short(lists.kv_block);
  return rows;
}

/// Returns the factors of a tensor's elements. Scales have rank 3; their last stride is 0 if they are of heads. With
/// rank 4, and a last extent of 1, they are of rows.
Scales scalesOf(const std::optional<TensorView>& scales) {
  if (!scales) return {};
  const bool isOfRows = scales->shape[3] == 1;
  return {static_cast<const float*>(scales->data),
          scales->shape[0] > 1 ? scales->stride[0] : 0,
          scales->stride[1],
          isOfRows ? 0 : scales->stride[2],
          isOfRows ? scales->stride[2] : 0,
          isOfRows};
}

CacheParams cacheParams(const LaunchOperands& operands) {
  CacheParams p{};
  if (const auto& table = operands.pageTable) {
    p.page_table = static_cast<const int*>(table->data);
    p.table_stride = table->shape[0] > 1 ? table->stride[0] : 0;
    p.pages = int(operands.k.shape[0]);
  }
  if (!operands.newK) return p;
  p.new_k = operands.newK->data;
  p.new_v = operands.newV->data;
  p.new_k_stride = stridesOf(*operands.newK);
  p.new_v_stride = stridesOf(*operands.newV);
  p.k_scale = scalesOf(operands.kScales);
  p.v_scale = scalesOf(operands.vScales);
  return p;
}

ForwardParams forwardParams(const LaunchOperands& operands) {
  const ProblemShape& problem = operands.problem;
  ForwardParams p{};
  p.q = operands.q.data;
  p.k = operands.k.data;
  p.v = operands.v.data;
  p.out = operands.out.data;
  p.lse = operands.lse;
  p.row_max = operands.rowMax;
  p.q_stride = stridesOf(operands.q);
  p.k_stride = stridesOf(operands.k); // batch 1: stride 0, which broadcasts
  p.v_stride = stridesOf(operands.v);
  p.out_stride = stridesOf(operands.out);
  p.batch = int(problem.batch);
  p.q_heads = int(problem.qHeads);
  p.kv_heads = int(problem.kvHeads);
  p.q_len = int(problem.qLen);
  p.kv_len = int(problem.kvLen);
  p.group = p.kv_heads ? p.q_heads / p.kv_heads : 1;
  p.scale = *operands.scale;
  p.vectors = rowsAreAligned(operands.q) && rowsAreAligned(operands.k) && rowsAreAligned(operands.v) &&
              rowsAreAligned(operands.out);
  if (operands.newK) p.vectors = p.vectors && rowsAreAligned(*operands.newK) && rowsAreAligned(*operands.newV);
  if (operands.cuSeqlensQ)
    p.rows = raggedRows(operands);
  else if (const std::optional<BlockMaskView>& lists = operands.lists)
    p.lists = blockLists(lists->shape, *lists, lists->shape.qBlocks());
  return p;
}

BackwardParams backwardParams(const LaunchOperands& operands) {
  BackwardParams p{};
  p.forward = forwardParams(operands);
  for (const TensorView* tensor : {&operands.dOut, &operands.dQ, &operands.dK, &operands.dV})
    p.forward.vectors = p.forward.vectors && rowsAreAligned(*tensor);
  p.d_out = operands.dOut.data;
  p.d_lse = operands.dLse;
  p.d_q = operands.dQ.data;
  p.d_k = operands.dK.data;
  p.d_v = operands.dV.data;
  p.d_out_stride = stridesOf(operands.dOut);
  p.d_q_stride = stridesOf(operands.dQ);
  p.d_k_stride = stridesOf(operands.dK);
  p.d_v_stride = stridesOf(operands.dV);
  p.kv_batch = int(kvBatchOf(operands));
  if (const std::optional<BlockMaskView>& lists = operands.lists)
    p.columns = blockLists(lists->shape, lists->columns, lists->shape.kvBlocks());
  return p;
}

TangentParams tangentParams(const LaunchOperands& operands, BackwardParams backward) {
  const LaunchOperands::Tangents& tangents = *operands.tangents;
  for (const TensorView* tensor : {&tangents.q, &tangents.k, &tangents.v, &tangents.out})
    backward.forward.vectors = backward.forward.vectors && rowsAreAligned(*tensor);
  return {backward,
          tangents.q.data,
          tangents.k.data,
          tangents.v.data,
          tangents.out.data,
          tangents.lse,
          nullptr,
          stridesOf(tangents.q),
          stridesOf(tangents.k),
          stridesOf(tangents.v),
          stridesOf(tangents.out)};
}

} // namespace attnc::plan
