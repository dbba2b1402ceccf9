// Converts dQ from its fp32 sums, times the softmax scale. Runs after backward_grid_sm80.cu. sm_80 and later.
//
// Grid: q tiles * q_heads * batch, in one dimension. Threads: 32 kWarps.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/d_q_rows_mma.cuh"
#include "algo/finish_rows.cuh"
#include "params_grid_sm80.cuh"

namespace attnc::sm80 {

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_backward_finish(const __grid_constant__ BackwardGridParamsSm80 p, const __grid_constant__ ModArgs) {
  finish_rows<mma::DqRows, 32 * kWarps>(p.base, p.d_q_sums);
}

} // namespace attnc::sm80
