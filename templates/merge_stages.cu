// Merges the attention of a stage of a plan of shards into that of the stages before, in fp32.
//
//   lse = log(exp(sum_lse) + exp(part_lse)),   sum = exp(sum_lse - lse) sum + exp(part_lse - lse) part
//
// The last stage writes out, so that it is rounded once. A warp takes a row.
//
// Grid: rows of all heads and batch entries, kWarps each, in one dimension. Threads: 32 kWarps.
//
// Config: Element is the type of part and out; kHeadDimV their columns, kWarps.
#include "attnc_config.cuh"

#include "algo/merge_stages.cuh"
#include "params.cuh"
#include "tile/element.cuh"

namespace attnc::merge_stages {

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_merge_stages(const __grid_constant__ MergeStagesParams p) {
  const long long row = (long long)blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= (long long)p.batch * p.heads * p.rows) return;
  const int lane = threadIdx.x % 32;
  const MergedStages merged = MergedStages::of(p.is_first ? negative_infinity() : p.sum_lse[row],
                                               p.part ? p.part_lse[row] : negative_infinity());
  const int in_head = int(row % p.rows), head = int(row / p.rows % p.heads), b = int(row / p.rows / p.heads);
  Element* out = (Element*)p.out + b * p.out_stride.batch + head * p.out_stride.head + in_head * p.out_stride.row;
#pragma unroll
  for (int column = lane; column < kHeadDimV; column += 32) {
    const long long at = row * kHeadDimV + column;
    // A factor of 0 comes with memory that nobody has written.
    const float before = merged.before == 0.f ? 0.f : merged.before * p.sum[at];
    const float x = merged.part == 0.f ? before : before + merged.part * to_float(((const Element*)p.part)[at]);
    if (p.out)
      out[column] = from_float<Element>(x);
    else
      p.sum[at] = x;
  }
  __syncwarp(); // all lanes have read the lse
  if (lane == 0 && !p.out) p.sum_lse[row] = merged.lse;
  if (lane == 0 && p.out && p.out_lse) p.out_lse[row] = merged.lse;
}

} // namespace attnc::merge_stages
