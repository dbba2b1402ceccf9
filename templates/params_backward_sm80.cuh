// Kernel parameters of backward_sm80.cu, one definition for kernels and host. Plain types only.
#pragma once

#include "params.cuh"

namespace attnc {

/// Backward pass in one walk. dq is summed in fp32 in `d_q_sums`, zero before the launch, tile by tile of kBlockM rows
/// of q, in the order of algo/d_q_sums_mma.cuh.
struct BackwardParamsSm80 {
  BackwardParams base;
  float* d_q_sums;
};

} // namespace attnc
