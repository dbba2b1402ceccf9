// Gradients of captured tensors and scalars, short and obviously right: the oracle on a GPU. Any sm, fp32 arithmetic.
//
//   s = scale q k^T,  p = exp(mod(s) - lse),  delta = sum over columns of d_out out - d_lse
//   g = p (d_out v^T - delta)      the gradient of mod(s); 0 where mask_mod says so
//   d_capture[offset] += value(s, g)    for each place where the mod reads a capture, and each round of it
//
// A warp owns a row of q, a lane one of 32 columns at a time, and each element of attention is an add of its own to memory.
// The lists of a block mask, or all columns.
//
// Grid: rows / 8 in one dimension, 256 threads. The mod is written plain.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/capture_sums.cuh"
#include "algo/sequence.cuh"
#include "algo/softmax.cuh"
#include "algo/step_walk.cuh"
#include "tile/element.cuh"

namespace attnc::naive {

constexpr int kRows = 8; // of a CTA, one a warp

template <int Columns> ATTNC_DEVICE float dot(const Element* x, const Element* y) {
  float sum = 0.f;
  for (int d = 0; d < Columns; ++d) sum += to_float(x[d]) * to_float(y[d]);
  return sum;
}

ATTNC_DEVICE const Element* row_of(const void* base, const Strides& stride, int b, int h, int row) {
  return (const Element*)base + b * stride.batch + h * stride.head + row * stride.row;
}

ATTNC_DEVICE auto walk_of(const ForwardParams& p, int b, int h, int q_idx) {
  if constexpr (kBlockSparse)
    return StepWalk<32, StepSource::Lists, Mod::kHasMaskMod>(
        p.kv_len, BlockRow(p.lists, b, h, q_idx / p.lists.q_block, p.lists.kv_block));
  else
    return StepWalk<32, StepSource::All, Mod::kHasMaskMod>(p.kv_len);
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_backward_captures(const __grid_constant__ CaptureParams p, const __grid_constant__ ModArgs args) {
  long long index = (long long)blockIdx.x * kRows + threadIdx.x / 32;
  int b, h, q_idx;
  if constexpr (kIsRagged<Mod>) {
    const RaggedRow row = ragged_q_row<Mod>(p.backward.forward, args, index);
    b = row.b, h = row.h, q_idx = row.row;
    if (!row.exists) return;
    index = row_of_head<Mod>(p.backward.forward, b, h) + q_idx; // from the sequence's first row on
  } else {
    const ForwardParams& f = p.backward.forward;
    if (index >= (long long)f.batch * f.q_heads * f.q_len) return;
    q_idx = index % f.q_len, h = index / f.q_len % f.q_heads, b = index / f.q_len / f.q_heads;
  }
  const BackwardParams& backward = params_of<Mod>(p.backward, args, b);
  const ForwardParams& f = backward.forward;
  const float lse = f.lse[index];
  if (lse == negative_infinity()) return;
  const Element* q = row_of(f.q, f.q_stride, b, h, q_idx);
  const Element* d_out = row_of(backward.d_out, backward.d_out_stride, b, h, q_idx);
  const float delta = dot<kHeadDimV>(d_out, row_of(f.out, f.out_stride, b, h, q_idx)) -
                      (backward.d_lse ? backward.d_lse[index] : 0.f);
  const Mod::Head head = Mod::head(args, b, h);                                  // SEAM(head)
  const int position = position_of<Mod>(args, head, q_idx);
  const Mod::Row row = Mod::row(args, head, b, h, position, float(position));    // SEAM(row)
  const auto walk = walk_of(f, b, h, q_idx);
  for (int i = 0; i < walk.count; ++i) {
    const Step step = walk.at(i);
    const int kv_idx = step.start + int(threadIdx.x) % 32;
    if (kv_idx >= f.kv_len) continue;
    const Mod::Col col = Mod::col(args, head, b, h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
    const Coord at = {b, h, position, kv_idx};
    if ((step.flags & kStepMasked) && !Mod::mask(args, head, row, col, at)) continue; // SEAM(mask)
    const float s = dot<kHeadDimQk>(q, row_of(f.k, f.k_stride, b, h / f.group, kv_idx)) * f.scale;
    const float weight = expf(Mod::score(args, head, row, col, at, s) - lse);    // SEAM(score)
    const float grad = weight * (dot<kHeadDimV>(d_out, row_of(f.v, f.v_stride, b, h / f.group, kv_idx)) - delta);
    if (weight == 0.f || grad == 0.f) continue;
    Mod::gradients([&](auto gradient) { // SEAM(gradients)
      using Gradient = decltype(gradient);
      for (int round = 0; round < Gradient::kRounds; ++round)
        add_to(p.sums[Gradient::kCapture], Gradient::offset(args, head, row, col, at, round),
               Gradient::value(args, head, row, col, at, s, grad, round));
    });
  }
}

} // namespace attnc::naive
