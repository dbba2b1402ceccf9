/// Attention on the CPU (reference.h).
#pragma once

#include "attnc/c/operands.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Compute what attnc_prepared_launch() and attnc_prepared_launch_backward() write, in double precision and straight
/// from the definition: for machines without a GPU, slowly, and to hold kernels against. All memory is host memory. Of
/// backward operands the memory of out and lse is not read.
ATTNC_API attnc_status attnc_compute_on_cpu(const attnc_mod* mod, const attnc_operands* operands,
                                            const attnc_outputs* outputs);
ATTNC_API attnc_status attnc_compute_backward_on_cpu(const attnc_mod* mod, const attnc_backward_operands* operands,
                                                     const attnc_backward_outputs* outputs);

#ifdef __cplusplus
}
#endif
