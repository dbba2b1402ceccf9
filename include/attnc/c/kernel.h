/// Loaded kernels (kernel.h), for callers who choose kernels themselves; prepared.h is the usual way.
#pragma once

#include "attnc/c/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A forward, decode, backward or block mask kernel, loaded on one device. It is immutable. Its code stays loaded while
/// it, the object that it was taken from, or the compiler that made it lives. One of them must outlive the launched
/// work.
typedef struct attnc_kernel attnc_kernel;

/// Compiles a kernel, and loads it into the current CUDA context. Block mask kernels are loaded by attnc_prepare() and
/// attnc_prepare_training().
ATTNC_API attnc_status attnc_kernel_load(const attnc_compiler* compiler, const attnc_plan* plan, attnc_kernel** kernel);
/// Destroys a kernel. Its code must outlive the launched work.
ATTNC_API void attnc_kernel_destroy(attnc_kernel* kernel);

/// Fills the options of the kernel, with the chosen family and arch. Strings and arrays live as long as the kernel.
ATTNC_API attnc_status attnc_kernel_get_options(const attnc_kernel* kernel, attnc_kernel_options* options);
/// Returns the kernel's machine code, which lives as long as the kernel; do not destroy it. NULL on a failure.
ATTNC_API const attnc_compiled* attnc_kernel_get_compiled(const attnc_kernel* kernel);

/// Computes the bytes of device memory that launches of a forward or decode kernel can use
/// (ForwardKernel::workspaceBytes). Errors: a kernel of another kind; those of the C++ function.
ATTNC_API attnc_status attnc_kernel_workspace_bytes(const attnc_kernel* kernel, const attnc_operands* operands,
                                                    const attnc_outputs* outputs, size_t* bytes);
/// Computes the bytes of device memory that launches of a backward kernel need (BackwardKernel::workspaceBytes).
/// `outputs` may be NULL. Errors: a kernel of another kind; those of the C++ function.
ATTNC_API attnc_status attnc_kernel_backward_workspace_bytes(const attnc_kernel* kernel,
                                                             const attnc_backward_operands* operands,
                                                             const attnc_backward_outputs* outputs, size_t* bytes);

/// Enqueues a forward or decode kernel on `stream` (ForwardKernel::launch). Errors, with nothing enqueued: a kernel of
/// another kind; those of the C++ function.
ATTNC_API attnc_status attnc_kernel_launch(const attnc_kernel* kernel, const attnc_operands* operands,
                                           const attnc_outputs* outputs, void* workspace, attnc_stream stream);
/// Enqueues a backward kernel on `stream` (BackwardKernel::launch). Errors as for attnc_kernel_launch().
ATTNC_API attnc_status attnc_kernel_launch_backward(const attnc_kernel* kernel, const attnc_backward_operands* operands,
                                                    const attnc_backward_outputs* outputs, void* workspace,
                                                    attnc_stream stream);
/// Enqueues the filling of the lists of `mask` on `stream` (BlockMaskKernel::launch). They are in device memory, laid
/// out as by attnc_block_mask_view_into(). Errors as for attnc_kernel_launch().
ATTNC_API attnc_status attnc_kernel_launch_block_mask(const attnc_kernel* kernel, const attnc_block_mask_view* mask,
                                                      const attnc_problem* problem, const attnc_capture* captures,
                                                      size_t capture_count, attnc_stream stream);

#ifdef __cplusplus
}
#endif
