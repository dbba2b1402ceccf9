// Backward attention, short and obviously right: the oracle on a GPU. Any sm, fp32 arithmetic, deterministic.
//
//   s = scale q k^T,  p = exp(mod(s) - lse),  delta = sum over columns of d_out out - d_lse
//   g = p (d_out v^T - delta)      the gradient of mod(s); 0 where mask_mod or the end of KV says so
//   d_s = scale mod'(s) g          d_q = d_s k,  d_k = d_s^T q,  d_v = p^T d_out
//
// Two kernels. attnc_backward_q: a warp owns a row of q, and a lane one of 32 columns at a time. attnc_backward_kv: a warp
// owns a row of k and v, and a lane one of 32 rows of q at a time, of all query heads of the KV head and, where k and v
// are broadcast, of all batches. With lists, chunks that they leave out are passed over, and full ones do not ask
// mask_mod. Rows are read as they come; nothing is kept from one kernel to the other.
//
// No shared memory. Grid: rows / 8 in one dimension, 256 threads. The mod is written plain.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/sequence.cuh"
#include "algo/softmax.cuh"
#include "algo/step_walk.cuh"
#include "params.cuh"
#include "tile/element.cuh"

namespace attnc::naive {

constexpr int kRows = 8;   // of a CTA, one a warp
constexpr int kChunk = 32; // of the other axis, a lane each
constexpr int kHeadDimMax = kHeadDimQk > kHeadDimV ? kHeadDimQk : kHeadDimV;

/// Where a row of a tensor begins.
ATTNC_DEVICE const Element* row_of(const void* base, const Strides& stride, int b, int h, int row) {
  return (const Element*)base + b * stride.batch + h * stride.head + row * stride.row;
}

template <int Columns> ATTNC_DEVICE float dot(const Element* x, const Element* y) {
  float sum = 0.f;
  for (int d = 0; d < Columns; ++d) sum += to_float(x[d]) * to_float(y[d]);
  return sum;
}

/// All positions of the axis that is walked, or those of lists: the oracle does not trust a mod's bounds. `at`: position
/// along the other axis.
ATTNC_DEVICE auto walk_of(int length, const BlockLists& lists, int b, int h, int at, int own_block, int walked_block) {
  if constexpr (kBlockSparse)
    return StepWalk<kChunk, StepSource::Lists, Mod::kHasMaskMod>(
        length, BlockRow(lists, b, h, at / own_block, walked_block));
  else
    return StepWalk<kChunk, StepSource::All, Mod::kHasMaskMod>(length);
}

/// What one element of the score matrix contributes; 0 and 0 where it is dead.
struct Contribution {
  float p;   ///< weight
  float d_s; ///< gradient of q k^T
};

ATTNC_DEVICE Contribution contribution(const BackwardParams& p, const ModArgs& args, int b, int h, int q_idx, int kv_idx,
                                       bool masked) {
  const ForwardParams& f = p.forward;
  const Mod::Head head = Mod::head(args, b, h);                                  // SEAM(head)
  const int position = position_of<Mod>(args, head, q_idx);
  const Mod::Row row = Mod::row(args, head, b, h, position, float(position));    // SEAM(row)
  const Mod::Col col = Mod::col(args, head, b, h, kv_idx, float(kv_idx), 0.f);   // SEAM(col)
  const Coord at = {b, h, position, kv_idx};
  if (masked && !Mod::mask(args, head, row, col, at)) return {0.f, 0.f};         // SEAM(mask)
  const long long row_of_all = row_of_head<Mod>(f, b, h) + q_idx;
  const float lse = f.lse[row_of_all];
  if (lse == negative_infinity()) return {0.f, 0.f};
  const int kv_head = h / f.group;
  const Element* d_out = row_of(p.d_out, p.d_out_stride, b, h, q_idx);
  const float s = dot<kHeadDimQk>(row_of(f.q, f.q_stride, b, h, q_idx), row_of(f.k, f.k_stride, b, kv_head, kv_idx)) * f.scale;
  const float weight = expf(Mod::score(args, head, row, col, at, s) - lse);      // SEAM(score)
  const float d_weight = dot<kHeadDimV>(d_out, row_of(f.v, f.v_stride, b, kv_head, kv_idx));
  const float delta =
      dot<kHeadDimV>(d_out, row_of(f.out, f.out_stride, b, h, q_idx)) - (p.d_lse ? p.d_lse[row_of_all] : 0.f);
  const float g = weight * (d_weight - delta);
  return {weight, f.scale * Mod::d_score(args, head, row, col, at, s, g)};       // SEAM(d_score)
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_backward_q(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  const int lane = threadIdx.x % 32;
  const long long index = (long long)blockIdx.x * kRows + threadIdx.x / 32;
  int b, h, q_idx;
  if constexpr (kIsRagged<Mod>) {
    const RaggedRow row = ragged_q_row<Mod>(launch.forward, args, index);
    b = row.b, h = row.h, q_idx = row.row;
    if (!row.exists) return;
  } else {
    const ForwardParams& f = launch.forward;
    if (index >= (long long)f.batch * f.q_heads * f.q_len) return;
    q_idx = index % f.q_len, h = index / f.q_len % f.q_heads, b = index / f.q_len / f.q_heads;
  }
  const BackwardParams& p = params_of<Mod>(launch, args, b);
  const ForwardParams& f = p.forward;
  float d_q[(kHeadDimQk + 31) / 32] = {}; // lane l: columns l, l + 32, ...
  const auto walk = walk_of(f.kv_len, f.lists, b, h, q_idx, f.lists.q_block, f.lists.kv_block);
  for (int i = 0; i < walk.count; ++i) {
    const Step step = walk.at(i);
    const int kv_idx = step.start + lane;
    const float d_s =
        kv_idx < f.kv_len ? contribution(p, args, b, h, q_idx, kv_idx, step.flags & kStepMasked).d_s : 0.f;
    for (int j = 0; j < min(kChunk, f.kv_len - step.start); ++j) {
      const float weight = __shfl_sync(0xffffffffu, d_s, j);
      const Element* k = row_of(f.k, f.k_stride, b, h / f.group, step.start + j);
      for (int c = 0; c < (kHeadDimQk + 31) / 32; ++c)
        if (lane + 32 * c < kHeadDimQk) d_q[c] += weight * to_float(k[lane + 32 * c]);
    }
  }
  Element* out = (Element*)row_of(p.d_q, p.d_q_stride, b, h, q_idx);
  for (int c = 0; c < (kHeadDimQk + 31) / 32; ++c)
    if (lane + 32 * c < kHeadDimQk) out[lane + 32 * c] = from_float<Element>(d_q[c]);
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_backward_kv(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  const int lane = threadIdx.x % 32;
  const long long index = (long long)blockIdx.x * kRows + threadIdx.x / 32;
  int kv_b, kv_head, kv_idx;
  if constexpr (kIsRagged<Mod>) {
    const RaggedRow row = ragged_kv_row<Mod>(launch.forward, args, index);
    kv_b = row.b, kv_head = row.h, kv_idx = row.row;
    if (!row.exists) return;
  } else {
    const ForwardParams& f = launch.forward;
    if (index >= (long long)launch.kv_batch * f.kv_heads * f.kv_len) return;
    kv_idx = index % f.kv_len, kv_head = index / f.kv_len % f.kv_heads, kv_b = index / f.kv_len / f.kv_heads;
  }
  const BackwardParams& p = params_of<Mod>(launch, args, kv_b);
  const ForwardParams& f = p.forward;
  float d_k[(kHeadDimQk + 31) / 32] = {}, d_v[(kHeadDimV + 31) / 32] = {};
  const int batches = p.kv_batch == f.batch ? 1 : f.batch;
  for (int i = 0; i < batches * f.group; ++i) {
    const int b = kv_b + i / f.group, h = kv_head * f.group + i % f.group;
    const auto walk = walk_of(f.q_len, p.columns, b, h, kv_idx, p.columns.kv_block, p.columns.q_block);
    for (int n = 0; n < walk.count; ++n) {
      const Step step = walk.at(n);
      const int q_idx = step.start + lane;
      Contribution mine = {0.f, 0.f};
      if (q_idx < f.q_len) mine = contribution(p, args, b, h, q_idx, kv_idx, step.flags & kStepMasked);
      for (int j = 0; j < min(kChunk, f.q_len - step.start); ++j) {
        const float weight = __shfl_sync(0xffffffffu, mine.p, j), d_s = __shfl_sync(0xffffffffu, mine.d_s, j);
        const Element* q = row_of(f.q, f.q_stride, b, h, step.start + j);
        const Element* d_out = row_of(p.d_out, p.d_out_stride, b, h, step.start + j);
        for (int c = 0; c < (kHeadDimMax + 31) / 32; ++c) {
          const int d = lane + 32 * c;
          if (d < kHeadDimQk) d_k[c] += d_s * to_float(q[d]);
          if (d < kHeadDimV) d_v[c] += weight * to_float(d_out[d]);
        }
      }
    }
  }
  Element* to_k = (Element*)row_of(p.d_k, p.d_k_stride, kv_b, kv_head, kv_idx);
  Element* to_v = (Element*)row_of(p.d_v, p.d_v_stride, kv_b, kv_head, kv_idx);
  for (int c = 0; c < (kHeadDimMax + 31) / 32; ++c) {
    const int d = lane + 32 * c;
    if (d < kHeadDimQk) to_k[d] = from_float<Element>(d_k[c]);
    if (d < kHeadDimV) to_v[d] = from_float<Element>(d_v[c]);
  }
}

} // namespace attnc::naive
