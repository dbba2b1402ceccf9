// Forward attention, short and obviously right: the GPU oracle. Any sm, fp32 arithmetic.
//
//   out = softmax(mod(scale q k^T)) v,   lse = log sum exp mod(scale q k^T)
//
// All warps have one role: a warp owns a row of q. KV passes through shared memory in chunks of 32 columns, one per
// lane; the softmax is online. The mod is generated in plain form: score() is score_mod.
//
//   shared memory (static)   fp32                             lifetime
//   q_tile                   kRows x kHeadDimQk               whole kernel; each warp reads its own row
//   kv_tile                  32 x (kColumnsAtOnce + 1)        columns of a chunk of K, then of V; odd stride: no bank
//                                                             conflicts
//
//   barrier         when                        what it guarantees
//   __syncthreads   before a chunk is copied    all warps have released the one before
//   __syncthreads   after                       the chunk is ready
//
// Grid: q tiles * heads * batch, in one dimension. Threads: 32 kRows.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/pages.cuh"
#include "algo/prob_mod.cuh"
#include "algo/scaled.cuh"
#include "algo/sequence.cuh"
#include "algo/sink.cuh"
#include "algo/softmax.cuh"
#include "algo/step_walk.cuh"
#include "tile/element.cuh"

namespace attnc::naive {

constexpr int kRows = 8;   // q rows of a CTA, one per warp
constexpr int kChunk = 32; // kv columns of a step, one per lane
constexpr int kHeadDimMax = kHeadDimQk > kHeadDimV ? kHeadDimQk : kHeadDimV;
constexpr int kColumnsAtOnce = kHeadDimMax > 256 ? 128 : kHeadDimMax; // static shared memory has 48 KiB

using Input = typename Choose<kFp8, E4M3, Element>::Type; // of q, k and v
using Params = typename ParametersOf<ScaledIf<ForwardParams, kFp8>, kPageSize != 0>::Type;

/// Returns the elements from the beginning of k or v of a (batch, KV head), or of a KV head's pool, to a row.
ATTNC_DEVICE long long row_offset(const Strides& strides, const int* pages, int kv_idx) {
  if constexpr (kPageSize == 0) return kv_idx * strides.row;
  return paged_offset < kPageSize ? kPageSize : 1 > (pages, strides, kv_idx);
}

/// Copies `columns` columns, from `first` on, of rows [kv_start, kv_start + 32) of k or v to shared memory as fp32;
/// zeros past kv_len. Called by the whole CTA.
ATTNC_DEVICE void load_chunk(float (*tile)[kColumnsAtOnce + 1], const Input* base, const Strides& strides,
                             const int* pages, int kv_start, int kv_len, int first, int columns) {
  __syncthreads();
  for (int i = threadIdx.x; i < kChunk * columns; i += blockDim.x) {
    const int row = i / columns, d = i % columns;
    tile[row][d] =
        kv_start + row < kv_len ? to_float(base[row_offset(strides, pages, kv_start + row) + first + d]) : 0.f;
  }
  __syncthreads();
}

/// Returns the walk over all columns before kv_len, or those of the lists: the oracle does not trust a mod's bounds.
ATTNC_DEVICE auto walk_of(const ForwardParams& p, int b, int h, int q_start, int kv_len) {
  if constexpr (kBlockSparse) {
    const BlockLists& lists = lists_of<Mod>(p);
    return StepWalk<kChunk, StepSource::Lists, Mod::kHasMaskMod>(
        kv_len, BlockRow(lists, b, h, q_start / lists.q_block, lists.kv_block));
  } else {
    return StepWalk<kChunk, StepSource::All, Mod::kHasMaskMod>(kv_len);
  }
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_forward(const __grid_constant__ Params launch, const __grid_constant__ ModArgs args) {
  __shared__ float q_tile[kRows][kHeadDimQk];
  __shared__ float kv_tile[kChunk][kColumnsAtOnce + 1];

  const auto [b, h, q_start] = q_tile_at<Mod, kRows>(launch, args, blockIdx.x);
  const ForwardParams& p = params_of<Mod>(launch, args, b);
  if (!has_rows<Mod>(q_start, p.q_len)) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int q_idx = min(q_start + warp, p.q_len - 1); // a surplus warp repeats the last row and stores nothing

  // NOTE: from the launch's addresses, because params_of() counts in Elements.
  const auto head_of = [&](const void* tensor, const Strides& strides, int batch, int head, long long first_row) {
    return (const Input*)tensor + batch * strides.batch + head * strides.head + first_row * strides.row;
  };
  const int kv_batch = kPageSize ? 0 : b, kv_start = kv_row_of<Mod>(args, b, 0);
  const Input* q = head_of(launch.q, p.q_stride, b, h, q_row_of<Mod>(args, b, q_idx));
  const Input* k = head_of(launch.k, p.k_stride, kv_batch, h / p.group, kv_start);
  const Input* v = head_of(launch.v, p.v_stride, kv_batch, h / p.group, kv_start);
  for (int d = lane; d < kHeadDimQk; d += 32) q_tile[warp][d] = to_float(q[d]);

  const float scale = p.scale * (kRowScales ? scale_of_q(launch, b, h, q_idx, q_row_of<Mod>(args, b, q_idx))
                                            : scale_of_products<false>(launch, b, h, h / p.group, q_idx));
  const float v_scale = scale_of_v<kRowScales>(launch, b, h / p.group);

  const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
  const int position = q_offset<Mod>(args, head) + q_idx;
  const Mod::Row row = Mod::row(args, head, b, h, position, float(position)); // SEAM(row)
  float out[(kHeadDimV + 31) / 32] = {};                                      // lane l: columns l, l + 32, ...
  float row_max = negative_infinity(), row_sum = 0.f;

  const auto walk = walk_of(p, b, h, q_start, kv_length<Mod>(p, args, head));
  for (int i = 0; i < walk.count; ++i) {
    const Step step = walk.at(i);
    const int kv_idx = min(step.start + lane, max(p.kv_len, 1) - 1);
    StepScales factors = {0.f, 0.f}; // of this lane's column, with kRowScales
    if (!kRowScales)
      factors = scales_of_step(launch, b, h / p.group, step.start, p.kv_len);
    else if (step.start + lane < kv_length<Mod>(p, args, head))
      factors = scales_of_column<kPageSize>(launch, pages_of(launch, b), b, h / p.group, kv_idx, kv_start + kv_idx);

    // S = mod(scale q k^T)
    float score = 0.f;
    for (int first = 0; first < kHeadDimQk; first += kColumnsAtOnce) {
      const int columns = min(kHeadDimQk - first, kColumnsAtOnce);
      load_chunk(kv_tile, k, p.k_stride, pages_of(launch, b), step.start, kv_length<Mod>(p, args, head), first,
                 columns);
      for (int d = 0; d < columns; ++d) score += q_tile[warp][first + d] * kv_tile[lane][d];
    }
    const Mod::Col col = Mod::col(args, head, b, h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
    const Coord at = {b, h, position, kv_idx};
    score = Mod::score(args, head, row, col, at, score * (scale * factors.k));                           // SEAM(score)
    if ((step.flags & kStepMasked) && !Mod::mask(args, head, row, col, at)) score = negative_infinity(); // SEAM(mask)
    if (step.start + lane >= kv_length<Mod>(p, args, head)) score = negative_infinity();

    float share; // of V
    if constexpr (kIsWeight<Mod>) {
      share = score == negative_infinity() ? 0.f : score;
    } else {
      // P = exp(S - max), O = O exp(old max - max) + P V
      float new_max = fmaxf(row_max, score);
      for (int step = 16; step; step /= 2) new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, step));
      const float reference = new_max == negative_infinity() ? 0.f : new_max;
      const float rescale = expf(row_max - reference), weight = expf(score - reference);
      row_max = new_max;
      row_sum = row_sum * rescale + weight; // this lane's part
      share = weight * prob_factor<Mod>(weight, args, head, row, col, at);
      for (float& x : out) x *= rescale;
    }
#pragma unroll
    for (int first = 0; first < kHeadDimV; first += kColumnsAtOnce) {
      const int columns = min(kHeadDimV - first, kColumnsAtOnce);
      load_chunk(kv_tile, v, p.v_stride, pages_of(launch, b), step.start, kv_length<Mod>(p, args, head), first,
                 columns);
      for (int j = 0; j < kChunk; ++j) {
        const float w = __shfl_sync(0xffffffffu, kRowScales ? share * factors.v : share, j);
        for (int c = 0; c < (columns + 31) / 32; ++c)
          if (lane + 32 * c < columns)
            out[first / 32 + c] += w * (kRowScales ? 1.f : factors.v) * kv_tile[j][lane + 32 * c];
      }
    }
  }

  for (int step = 16; step; step /= 2) row_sum += __shfl_xor_sync(0xffffffffu, row_sum, step);
  if constexpr (kIsWeight<Mod>) row_max = 0.f, row_sum = 1.f;
  float greatest = row_max; // of scores and sink
  if constexpr (kHasSink<Mod>) {
    const float sink = sink_of<Mod>(args, b, h, position);
    greatest = fmaxf(row_max, sink);
    const float reference = greatest == negative_infinity() ? 0.f : greatest, rescale = expf(row_max - reference);
    row_sum = row_sum * rescale + expf(sink - reference);
    for (float& x : out) x *= rescale;
  }
  if (q_start + warp >= p.q_len) return;
  Element* o = (Element*)p.out + b * p.out_stride.batch + h * p.out_stride.head + q_idx * p.out_stride.row;
  for (int c = 0; c < (kHeadDimV + 31) / 32; ++c)
    if (lane + 32 * c < kHeadDimV)
      o[lane + 32 * c] = from_float<Element>(row_sum == 0.f ? 0.f : out[c] / row_sum * v_scale);
  const long long row_of_all = row_of_head<Mod>(p, b, h) + q_idx;
  if (p.lse && lane == 0) p.lse[row_of_all] = greatest + logf(row_sum); // -inf + log 0 = -inf
  if (p.row_max && lane == 0) p.row_max[row_of_all] = unless_nan(row_sum, row_max);
}

} // namespace attnc::naive
