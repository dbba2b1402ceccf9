// Gradients of rows of q whose lse is so large that fp32 cannot normalise by it (is_large(), algo/gradients.cuh), such
// as padding of -1e9 in all columns. Other backward kernels treat these rows as dead. Any sm, fp32 arithmetic, pair by
// pair (algo/pairs.cuh), hence slow. If no row is large, a CTA only scans what backward_delta.cu left, a byte per 32
// rows, and ends. Deterministic, except for sums along diagonals.
//
// Runs after the kernels that wrote dQ, dK and dV. CTAs take tiles of q, then tiles of k and v; a warp takes one row at
// a time:
//
//   a row of q         sets the row's sum, writes its dQ, adds its scores' gradients to sums along diagonals, if any
//   a row of k and v   adds to its dK and dV, for all query heads of the KV head and, if k and v are broadcast, batches
//
// A tile of k and v waits until all tiles of q are done. That is no deadlock: tiles of q were taken earlier, by running
// CTAs that wait for nothing.
//
// Shared memory: the tile's number. Barriers:
//
//   __syncthreads_or   once                 votes whether any row is large
//   __syncthreads      before a tile        all have read the number of the last tile
//                      behind its number    the number is ready; for k and v also the sums of all rows of q
//                      behind a tile of q   its sums are written
//   __syncwarp         behind a row's sum   with outputs: its delta is written
//
// Grid: min(q tiles, SMs). Threads: 32 kWarps. The mod is generated in plain form.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/gradients.cuh"
#include "algo/pairs.cuh"
#include "ptx/red.cuh"
#include "ptx/turn.cuh"

namespace attnc::backward_large {

using namespace pairs;

/// Computes tile `n` of q.
ATTNC_DEVICE void take_q_tile(const BackwardParams& launch, const ModArgs& args, int n) {
  const auto [b, h, q_start] = q_tile_at<Mod, kBlockM>(launch.forward, args, n);
  const BackwardParams& p = params_of<Mod>(launch, args, b);
  const ForwardParams& f = p.forward;
  if (!has_rows<Mod>(q_start, f.q_len)) return;
  const int rows = min(kBlockM, f.q_len - q_start);
  const float* const lse = f.lse + row_of_all(f, b, h, q_start);
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < rows; i += kWarps) {
    if (!is_large(lse[i])) continue;
    const QueryRow row(f, args, b, h, q_start + i);
    const float sum = sum_up_row(p, args, row);
    float* const diagonals =
        p.diagonals ? p.diagonals + (long long)(b * f.q_heads + h) * (f.q_len + f.kv_len) : nullptr;
    const auto of = [&](int kv_idx, bool exists, bool masked) {
      return contribution(p, args, row, kv_idx, exists, masked, sum);
    };
    write_d_q(p, row, of, [&](int kv_idx, Contribution mine) {
      if (diagonals && mine.g != 0.f) ptx::red_add(diagonals + f.kv_len - 1 + row.q_idx - kv_idx, mine.g);
    });
  }
}

/// Computes tile `n` of k and v.
ATTNC_DEVICE void take_kv_tile(const BackwardParams& launch, const ModArgs& args, int n) {
  const auto [kv_b, kv_head, kv_start] = kv_tile_at<Mod, kBlockN>(launch.forward, args, n);
  const BackwardParams& p = params_of<Mod>(launch, args, kv_b);
  const ForwardParams& f = p.forward;
  if (!has_rows<Mod>(kv_start, f.kv_len)) return;
  const int heads = (p.kv_batch == f.batch || kIsRagged<Mod> ? 1 : f.batch) * f.group;
#pragma unroll 1
  for (int kv_idx = kv_start + threadIdx.x / 32; kv_idx < min(kv_start + kBlockN, f.kv_len); kv_idx += kWarps) {
    KvSums sums;
#pragma unroll 1
    for (int i = 0; i < heads; ++i) {
      const int b = kv_b + i / f.group, h = kv_head * f.group + i % f.group;
      const auto walk = walk_of(f.q_len, p.columns, b, h, kv_idx, p.columns.kv_block, p.columns.q_block);
#pragma unroll 1
      for (int step = 0; step < walk.count; ++step) {
        const auto [start, flags] = walk.at(step);
        if (kBlockSparse && kIsRagged<Mod> && start >= f.q_len) continue; // a step of a longer sequence
        if (!launch.large_rows
                 .chunks[(head_tile_of<Mod, kBlockM>(f, args, b, h, start) * kBlockM + start % kBlockM) / 32])
          continue;
        const int q_idx = start + int(threadIdx.x) % 32;
        const QueryRow row(f, args, b, h, min(q_idx, f.q_len - 1));
        const bool counts = q_idx < f.q_len && is_large(row.lse);
        if (!__any_sync(0xffffffffu, counts)) continue;
        sums.add(p, b, h, start,
                 contribution(p, args, row, kv_idx, counts, flags & kStepMasked, counts ? p.row_sums[row.index] : 1.f));
      }
    }
    sums.store<true>(p, kv_b, kv_head, kv_idx);
  }
}

/// Whether one of `count` bytes is not 0. Called by all threads of the CTA.
ATTNC_DEVICE bool any_set(const unsigned char* bytes, int count) {
  struct alignas(16) Chunk {
    unsigned x[4];
  };
  unsigned found = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < count / 16; i += 32 * kWarps) {
    const Chunk chunk = ((const Chunk*)bytes)[i];
    found |= chunk.x[0] | chunk.x[1] | chunk.x[2] | chunk.x[3];
  }
  const int rest = count / 16 * 16 + threadIdx.x;
  if (rest < count) found |= bytes[rest];
  return __syncthreads_or(found);
}

extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
    attnc_backward_large(const __grid_constant__ BackwardParams p, const __grid_constant__ ModArgs args) {
  const ForwardParams& f = p.forward;
  const LargeRows& large = p.large_rows;
  const int q_tiles = q_tiles_of<Mod, kBlockM>(f) * f.q_heads * (kIsRagged<Mod> ? 1 : f.batch);
  if (!any_set(large.chunks, q_tiles * (kBlockM / 32))) return;
  const int kv_tiles = p.d_k ? kv_tiles_of<Mod, kBlockN>(f) * f.kv_heads * (kIsRagged<Mod> ? 1 : p.kv_batch) : 0;
  __shared__ int tile;
  while (true) {
    __syncthreads();
    if (threadIdx.x == 0) {
      tile = atomicAdd(large.counters, 1);
      while (tile >= q_tiles && ptx::load_acquire(large.counters + 1) < q_tiles) {
      }
    }
    __syncthreads();
    if (tile >= q_tiles + kv_tiles) break;
    if (tile >= q_tiles) {
      take_kv_tile(p, args, tile - q_tiles);
      continue;
    }
    take_q_tile(p, args, tile);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(large.counters + 1, 1);
  }
}

} // namespace attnc::backward_large
