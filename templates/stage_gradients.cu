// Gradients of the stages of a plan of shards. Backward kernels of a stage normalise by the lse of the stage's own
// keys, and so tell rows with a large lse by that one. out is that of all stages.
//
//   w = exp(lse of the stage) / (sum over stages of exp(lse))
//
// attnc_weigh_stage  d_out_stage = w d_out,   d_lse_stage = w d_lse
// attnc_add_stage    sum = sum + part, or out = sum + part, in fp32
//
// Then delta of the stage is w delta of the whole, and so are the gradients of its scores. A warp takes a row.
//
// Grid: rows of all heads and batch entries, kWarps each, in one dimension. Threads: 32 kWarps.
//
// Config: Element is the type of d_out, part and out; kHeadDimV the columns of d_out, kWarps.
#include "attnc_config.cuh"

#include "algo/softmax.cuh"
#include "params.cuh"
#include "tile/element.cuh"

namespace attnc::stage_gradients {

struct Place {
  long long row; // of all
  int b, head, in_head;

  ATTNC_DEVICE Place(int heads, int rows)
      : row((long long)blockIdx.x * kWarps + threadIdx.x / 32), b(int(row / rows / heads)),
        head(int(row / rows % heads)), in_head(int(row % rows)) {}
  ATTNC_DEVICE long long in(const Strides& stride) const {
    return b * stride.batch + head * stride.head + in_head * stride.row;
  }
};

ATTNC_DEVICE float exp_of(float x) { return ptx::ex2(x * kLog2e); }

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_weigh_stage(const __grid_constant__ WeighStageParams p) {
  const Place at(p.heads, p.rows);
  const long long rows = (long long)p.batch * p.heads * p.rows;
  if (at.row >= rows) return;
  float largest = negative_infinity();
  for (int i = 0; i < p.stages; ++i) {
    const float lse = p.lses[i * rows + at.row];
    largest = lse > largest || lse != lse ? lse : largest; // NaN stays NaN
  }
  float weight = 0.f;
  if (largest != negative_infinity()) {
    float sum = 0.f;
    for (int i = 0; i < p.stages; ++i) sum += exp_of(p.lses[i * rows + at.row] - largest);
    weight = exp_of(p.lses[p.stage * rows + at.row] - largest) * ptx::rcp(sum);
  }
  const Element* from = (const Element*)p.d_out + at.in(p.d_out_stride);
  Element* to = (Element*)p.to + at.row * kHeadDimV;
#pragma unroll
  for (int column = threadIdx.x % 32; column < kHeadDimV; column += 32)
    to[column] = from_float<Element>(weight == 0.f ? 0.f : weight * to_float(from[column]));
  if (threadIdx.x % 32 == 0 && p.d_lse) p.to_lse[at.row] = weight == 0.f ? 0.f : weight * p.d_lse[at.row];
}

extern "C" __global__ void __launch_bounds__(32 * kWarps) attnc_add_stage(const __grid_constant__ AddStageParams p) {
  const Place at(p.heads, p.rows);
  if (at.row >= (long long)p.batch * p.heads * p.rows) return;
  const long long part = at.in(p.part_stride), out = at.in(p.out_stride);
  float* sum = p.sum + at.in(p.sum_stride);
  for (int column = threadIdx.x % 32; column < p.columns; column += 32) {
    float x = sum[column];
    if (p.part)
      x += p.is_f32 ? ((const float*)p.part)[part + column] : to_float(((const Element*)p.part)[part + column]);
    if (!p.out)
      sum[column] = x;
    else if (p.is_f32)
      ((float*)p.out)[out + column] = x;
    else
      ((Element*)p.out)[out + column] = from_float<Element>(x);
  }
}

} // namespace attnc::stage_gradients
