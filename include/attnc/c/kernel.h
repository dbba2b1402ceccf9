/// Loaded kernels (kernel.h), for who wants to choose by himself; prepared.h is the usual way.
#pragma once

#include "attnc/c/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A forward, a backward or a block mask kernel, loaded on one device. Immutable. Its code stays loaded as long as it,
/// what it was taken from, or the compiler that made it lives; one of them must outlive the work that was launched.
typedef struct attnc_kernel attnc_kernel;

/// Compiles, and loads into the current CUDA context. options->kind says which kind.
ATTNC_API attnc_status attnc_kernel_load(const attnc_compiler* compiler, const attnc_mod* mod,
                                         const attnc_kernel_options* options, attnc_kernel** kernel);
ATTNC_API void attnc_kernel_destroy(attnc_kernel* kernel);

/// The options that it has, complete: family and arch as chosen. Strings and arrays live as long as the kernel.
ATTNC_API attnc_status attnc_kernel_get_options(const attnc_kernel* kernel, attnc_kernel_options* options);
/// Its machine code, which lives as long as the kernel and is not destroyed; NULL on a failure.
ATTNC_API const attnc_compiled* attnc_kernel_get_compiled(const attnc_kernel* kernel);

/// Bytes of device memory that launches can use (forward) or need (backward). Errors: a kernel of another kind.
ATTNC_API attnc_status attnc_kernel_workspace_bytes(const attnc_kernel* kernel, const attnc_operands* operands,
                                                    const attnc_outputs* outputs, size_t* bytes);
/// `outputs` may be NULL.
ATTNC_API attnc_status attnc_kernel_backward_workspace_bytes(const attnc_kernel* kernel,
                                                             const attnc_backward_operands* operands,
                                                             const attnc_backward_outputs* outputs, size_t* bytes);

/// Enqueue. Errors, with nothing enqueued: a kernel of another kind; those of the C++ functions.
ATTNC_API attnc_status attnc_kernel_launch(const attnc_kernel* kernel, const attnc_operands* operands,
                                           const attnc_outputs* outputs, void* workspace, attnc_stream stream);
ATTNC_API attnc_status attnc_kernel_launch_backward(const attnc_kernel* kernel, const attnc_backward_operands* operands,
                                                    const attnc_backward_outputs* outputs, void* workspace,
                                                    attnc_stream stream);
/// Fills the lists of `mask`, in device memory, as attnc_block_mask_view_into() lays them out.
ATTNC_API attnc_status attnc_kernel_launch_block_mask(const attnc_kernel* kernel, const attnc_block_mask_view* mask,
                                                      const attnc_problem* problem, const attnc_capture* captures,
                                                      size_t capture_count, attnc_stream stream);

#ifdef __cplusplus
}
#endif
