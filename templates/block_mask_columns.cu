// Lists of a block mask by column, from those by row: for each block of KV columns, the blocks of Q rows that live
// there.
//
// A warp owns one column of blocks: one (batch, head, kv block). Its lanes look for it in the lists of 32 rows of
// blocks at a time, by bisection. Runs after block_mask.cu, whose lists ascend. The lists by column ascend as well.
//
// All warps have one role. No shared memory, no barriers.
//
// Grid: kv blocks * heads * batch / kWarps, in one dimension. Threads: 32 kWarps.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "params.cuh"

namespace attnc::block_mask {

/// Whether an ascending list contains a block.
ATTNC_DEVICE bool lists(const int* index, int count, int block) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (index[middle] < block)
      low = middle + 1;
    else
      high = middle;
  }
  return low < count && index[low] == block;
}

/// One kind of lists, partial or full, along both axes.
struct Kind {
  const int *row_count, *row_index;
  int *column_count, *column_index;
};

/// Builds the list of one column. Called by all lanes.
ATTNC_DEVICE void transpose(const Kind& kind, long long head, int block, int q_blocks, int kv_blocks) {
  const int lane = threadIdx.x % 32;
  const long long column = head * kv_blocks + block;
  int* const to = kind.column_index + column * q_blocks;
  int count = 0;
  for (int start = 0; start < q_blocks; start += 32) {
    const int q_block = start + lane;
    const long long row = head * q_blocks + q_block;
    const bool live = q_block < q_blocks && lists(kind.row_index + row * kv_blocks, kind.row_count[row], block);
    const unsigned all = __ballot_sync(0xffffffffu, live);
    if (live) to[count + __popc(all & ((1u << lane) - 1))] = q_block;
    count += __popc(all);
  }
  if (lane == 0) kind.column_count[column] = count;
}

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_block_mask_columns(const __grid_constant__ BlockMaskParams p, const __grid_constant__ ModArgs) {
  const int q_blocks = (p.q_len + p.q_block - 1) / p.q_block, kv_blocks = (p.kv_len + p.kv_block - 1) / p.kv_block;
  const long long column = (long long)blockIdx.x * kWarps + threadIdx.x / 32;
  if (column >= (long long)p.batch * p.heads * kv_blocks) return;
  const long long head = column / kv_blocks;
  const int block = int(column % kv_blocks);
  transpose({p.partial_count, p.partial_index, p.column_partial_count, p.column_partial_index}, head, block, q_blocks,
            kv_blocks);
  transpose({p.full_count, p.full_index, p.column_full_count, p.column_full_index}, head, block, q_blocks, kv_blocks);
}

} // namespace attnc::block_mask
