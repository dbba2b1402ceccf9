/// Attention on the CPU (reference.h).
#pragma once

#include "attnc/c/operands.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Computes what attnc_prepared_launch() writes, on the CPU in double precision, from the definition. All memory is
/// host memory. It serves machines without a GPU, slowly, and tests of kernels.
ATTNC_API attnc_status attnc_compute_on_cpu(const attnc_mod* mod, const attnc_operands* operands,
                                            const attnc_outputs* outputs);
/// Computes what attnc_prepared_launch_backward() writes. Otherwise as attnc_compute_on_cpu(). Memory of out and lse of
/// the operands is not read.
ATTNC_API attnc_status attnc_compute_backward_on_cpu(const attnc_mod* mod, const attnc_backward_operands* operands,
                                                     const attnc_backward_outputs* outputs);

#ifdef __cplusplus
}
#endif
