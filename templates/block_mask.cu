// Builds BlockLists from a mask_mod: which blocks of the score matrix are empty, partial, full.
//
// A CTA owns one row of blocks: one (batch, head, q block). All threads together evaluate block after block, and live
// blocks are appended to the lists in order; a dense [q, kv] mask never exists. Elements past q_len or kv_len do not
// count, but a block that reaches past either end is never full, because its surplus columns must be masked.
//
// All threads have one role. No shared memory. The only barriers are two votes per block, __syncthreads_or: whether any
// element lives, and whether any is masked. Thread 0 writes the lists.
//
// Grid: q blocks * heads * batch, in one dimension. Threads: 32 kWarps.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "params.cuh"

namespace attnc::block_mask {

constexpr int kThreads = 32 * kWarps;

/// Evaluates one block with all threads. Returns bit 0: some element lives; bit 1: some element is masked.
ATTNC_DEVICE int classify(const BlockMaskParams& p, const ModArgs& args, const Mod::Head& head, int b, int h,
                          int q_start, int kv_start) {
  const int rows = min(p.q_block, p.q_len - q_start), columns = min(p.kv_block, p.kv_len - kv_start);
  int seen = rows < p.q_block || columns < p.kv_block ? 2 : 0;
  // A warp takes rows, a lane columns: a column's values are fetched once per row, and coalesce.
  for (int i = threadIdx.x / 32; i < rows; i += kWarps) {
    const int q_idx = q_start + i;
    const Mod::Row row = Mod::row(args, head, b, h, q_idx, float(q_idx)); // SEAM(row)
    for (int j = threadIdx.x % 32; j < columns; j += 32) {
      const int kv_idx = kv_start + j;
      const Mod::Col col = Mod::col(args, head, b, h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
      seen |= Mod::mask(args, head, row, col, {b, h, q_idx, kv_idx}) ? 1 : 2;      // SEAM(mask)
    }
  }
  return (__syncthreads_or(seen & 1) ? 1 : 0) | (__syncthreads_or(seen & 2) ? 2 : 0);
}

// NOTE: with the 1, ptxas takes the registers it needs; without it, ptxas spills some to fit one more CTA on an SM.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_block_mask(const __grid_constant__ BlockMaskParams p, const __grid_constant__ ModArgs args) {
  const int q_blocks = (p.q_len + p.q_block - 1) / p.q_block, kv_blocks = (p.kv_len + p.kv_block - 1) / p.kv_block;
  const int q_start = int(blockIdx.x % q_blocks) * p.q_block;
  const int h = blockIdx.x / q_blocks % p.heads, b = blockIdx.x / q_blocks / p.heads;
  const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
  int* partial = p.partial_index + (long long)blockIdx.x * kv_blocks;
  int* full = p.full_index + (long long)blockIdx.x * kv_blocks;
  int partial_count = 0, full_count = 0;
  for (int block = 0; block < kv_blocks; ++block) {
    const int seen = classify(p, args, head, b, h, q_start, block * p.kv_block);
    if (threadIdx.x == 0 && seen == 1) full[full_count] = block;
    if (threadIdx.x == 0 && seen == 3) partial[partial_count] = block;
    full_count += seen == 1;
    partial_count += seen == 3;
  }
  if (threadIdx.x == 0) {
    p.partial_count[blockIdx.x] = partial_count;
    p.full_count[blockIdx.x] = full_count;
  }
}

} // namespace attnc::block_mask
