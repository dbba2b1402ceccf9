// Tangents of attention and of its gradients, short and obviously right: the GPU oracle. Any sm, fp32 arithmetic,
// deterministic. algo/tangents.cuh has the formulas.
//
// Three kernels, after attnc_backward_sums of backward_naive.cu. attnc_tangent_rows: a warp owns a row of q and writes
// out., lse. and delta.. attnc_tangent_q: a warp owns a row of q and writes d_q.. attnc_tangent_kv: a warp owns a row
// of k and v and writes d_k. and d_v.; a lane takes one of 32 rows of q at a time.
//
// No shared memory. Grid: rows / 8 in one dimension, 256 threads.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/tangents.cuh"

namespace attnc::naive {

using namespace pairs;

constexpr int kRows = kRowsOfCta;

/// Adds x y to the lane's columns of a row, of `columns`.
ATTNC_DEVICE void add_times(float (&sums)[kLaneColumns], float x, const Element* y, int columns) {
  for (int c = 0; c < kLaneColumns; ++c)
    if (const int d = int(threadIdx.x) % 32 + 32 * c; d < columns) sums[c] += x * to_float(y[d]);
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_tangent_rows(const __grid_constant__ TangentParams t, const __grid_constant__ ModArgs args) {
  at_query_row(t.backward.forward, args, [&](const QueryRow& row) {
    const ForwardParams& f = t.backward.forward;
    const int lane = threadIdx.x % 32, kv_head = row.h / f.group;
    float moved[kLaneColumns] = {}, out[kLaneColumns] = {}, t_lse = 0.f;
    at_each_chunk(t, args, row, [&](int first, int, const Moving& pair) {
      t_lse += pair.weight * pair.t_score;
      for (int j = 0; j < min(kChunk, f.kv_len - first); ++j) {
        const float share = __shfl_sync(0xffffffffu, pair.weight * pair.factor, j),
                    t_score = __shfl_sync(0xffffffffu, pair.t_score, j);
        if (share == 0.f) continue;
        const Element* v = row_of(f.v, f.v_stride, row.b, kv_head, first + j);
        add_times(out, share, v, kHeadDimV);
        add_times(moved, share * t_score, v, kHeadDimV);
        add_times(moved, share, row_of(t.t_v, t.t_v_stride, row.b, kv_head, first + j), kHeadDimV);
      }
    });
    t_lse = sum_of_lanes(t_lse);
    if (const float sink = sink_of<Mod>(args, row.b, row.h, row.position); sink != negative_infinity())
      t_lse += expf(sink - row.lse) / t.backward.row_sums[row.index] *
               t_sink_of<Mod>(args, row.head, row.row, {row.b, row.h, row.position, 0});
    const Element* d_out = row_of(t.backward.d_out, t.backward.d_out_stride, row.b, row.h, row.q_idx);
    Element* t_out = (Element*)row_of(t.t_out, t.t_out_stride, row.b, row.h, row.q_idx);
    float t_delta = 0.f;
    for (int c = 0; c < kLaneColumns; ++c)
      if (const int d = lane + 32 * c; d < kHeadDimV) {
        const float x = moved[c] - t_lse * out[c];
        t_delta += x * to_float(d_out[d]);
        t_out[d] = from_float<Element>(x);
      }
    t_delta = sum_of_lanes(t_delta);
    if (lane == 0) t.t_lse[row.index] = t_lse, t.t_delta[row.index] = t_delta;
  });
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_tangent_q(const __grid_constant__ TangentParams t, const __grid_constant__ ModArgs args) {
  at_query_row(t.backward.forward, args, [&](const QueryRow& row) {
    const ForwardParams& f = t.backward.forward;
    const int kv_head = row.h / f.group;
    float d_q[kLaneColumns] = {};
    at_each_chunk(t, args, row, [&](int first, int kv_idx, const Moving& pair) {
      const MovingGradient mine(t, args, row, kv_idx, pair);
      for (int j = 0; j < min(kChunk, f.kv_len - first); ++j) {
        const float d_s = __shfl_sync(0xffffffffu, mine.d_s, j), t_d_s = __shfl_sync(0xffffffffu, mine.t_d_s, j);
        add_times(d_q, t_d_s, row_of(f.k, f.k_stride, row.b, kv_head, first + j), kHeadDimQk);
        add_times(d_q, d_s, row_of(t.t_k, t.t_k_stride, row.b, kv_head, first + j), kHeadDimQk);
      }
    });
    Element* out = (Element*)row_of(t.backward.d_q, t.backward.d_q_stride, row.b, row.h, row.q_idx);
    for (int c = 0; c < kLaneColumns; ++c)
      if (const int d = int(threadIdx.x) % 32 + 32 * c; d < kHeadDimQk) out[d] = from_float<Element>(d_q[c]);
  });
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_tangent_kv(const __grid_constant__ TangentParams t, const __grid_constant__ ModArgs args) {
  const BackwardParams& p = t.backward;
  const ForwardParams& f = p.forward;
  const long long index = (long long)blockIdx.x * kRows + threadIdx.x / 32;
  if (index >= (long long)p.kv_batch * f.kv_heads * f.kv_len) return;
  const int kv_idx = index % f.kv_len, kv_head = index / f.kv_len % f.kv_heads, kv_b = index / f.kv_len / f.kv_heads;
  KvSums sums;
  const int batches = p.kv_batch == f.batch ? 1 : f.batch;
  for (int i = 0; i < batches * f.group; ++i) {
    const int b = kv_b + i / f.group, h = kv_head * f.group + i % f.group;
    const auto walk = walk_of(f.q_len, p.columns, b, h, kv_idx, p.columns.kv_block, p.columns.q_block);
    for (int n = 0; n < walk.count; ++n) {
      const Step step = walk.at(n);
      const int q_idx = step.start + int(threadIdx.x) % 32;
      const QueryRow row(f, args, b, h, min(q_idx, f.q_len - 1));
      const Moving pair(t, args, row, kv_idx, q_idx < f.q_len, step.flags & kStepMasked, p.row_sums[row.index]);
      const MovingGradient mine(t, args, row, kv_idx, pair);
      for (int j = 0; j < min(kChunk, f.q_len - step.start); ++j) {
        const float d_s = __shfl_sync(0xffffffffu, mine.d_s, j), t_d_s = __shfl_sync(0xffffffffu, mine.t_d_s, j),
                    t_p = __shfl_sync(0xffffffffu, mine.t_p, j);
        add_times(sums.d_k, t_d_s, row_of(f.q, f.q_stride, b, h, step.start + j), kHeadDimQk);
        add_times(sums.d_k, d_s, row_of(t.t_q, t.t_q_stride, b, h, step.start + j), kHeadDimQk);
        add_times(sums.d_v, t_p, row_of(p.d_out, p.d_out_stride, b, h, step.start + j), kHeadDimV);
      }
    }
  }
  sums.store<false>(p, kv_b, kv_head, kv_idx);
}

} // namespace attnc::naive
