// Converts dQ from its fp32 sums, times the softmax scale. Runs after backward_grid_sm90.cu. sm_90a.
//
// Grid: q tiles * q_heads * batch, in one dimension. Threads: 256. d_q has 16-byte aligned rows.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/finish_rows.cuh"
#include "params_grid_sm90.cuh"

namespace attnc::sm90 {

using Params = Choose<Mod::kHasBeside, BackwardGridBesideParamsSm90, BackwardGridParamsSm90>::Type;

struct DenseSums {
  static constexpr int kFloats = kHeadDimQk, kGroup = 8;
  static constexpr bool kAligned = true;
  ATTNC_DEVICE static constexpr int place(int c) { return c; }
};

extern "C" __global__ void __launch_bounds__(256)
    attnc_backward_finish(const __grid_constant__ Params p, const __grid_constant__ ModArgs) {
  finish_rows<DenseSums, 256>(p.base, p.d_q_sums);
}

} // namespace attnc::sm90
