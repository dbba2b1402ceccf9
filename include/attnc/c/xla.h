/// Attention as custom calls of XLA, and so of JAX: handlers of XLA's foreign function interface (FFI).
///
/// attnc.jax registers them. Other programs that give XLA custom calls may register them under names of their own, with
/// API version 4 (typed FFI). Platform "cpu" needs `execute`; platform "CUDA" needs `initialize` and `execute`. Nothing
/// of XLA is linked. Major version 0 of XLA's FFI is understood.
///
/// Arrays are dense and row-major. A forward pass has the operands q, k, v, then captured tensors. Its results are out
/// and lse, then outputs of the mod. A backward pass has the operands q, k, v, out, lse, dout, perhaps dlse, then
/// captured tensors, gradients of sums (NAME_gradient) among them. Its results are dq, dk, dv, then gradients of
/// captures. A pass of tangents (attnc_backward_operands::q_tangent) has the operands of a backward pass, then
/// q_tangent, k_tangent and v_tangent, then captured tensors, those of directions among them. Its results are
/// out_tangent and lse_tangent, then those of a backward pass if there is an attribute `gradients`.
///
/// On platform "CUDA" the last result is a workspace, u8 [bytes]. Its size is that of the preparation which
/// attnc_settle() or attnc_settle_training() makes for these operands. It is missing if that is 0. Each call
/// initialises it.
///
/// Attribute `mod` is the mod as IR text. Attribute `captures` holds the names of the captured tensors, each followed
/// by a space. Attribute `outputs`, which may be missing, holds the names of the mod's outputs among the results of a
/// forward pass, in the same form. Attribute `gradients` makes the pass a backward one: it holds the names of the
/// captures that get a gradient, in the same form. Attribute `tangents`, a string, makes it one of tangents. Attribute
/// `scale`, an f32, is the factor of q k^T.
#pragma once

#include "attnc/c/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;

/// Sets the compiler whose kernels attnc_xla_attention_on_cuda() launches. It must live as long as the process. NULL,
/// the default: the first call creates one.
ATTNC_API void attnc_xla_set_compiler(const attnc_compiler* compiler);

/// Handles a call on platform "CUDA". At the stage `initialize` it prepares: compiles kernels for operands of a new
/// kind, or takes them from the cache. At the stage `execute` it enqueues the pass on XLA's stream, which may be
/// captured into a command buffer. What is prepared is kept for the process. Returns NULL, or an error that belongs to
/// XLA.
ATTNC_API struct XLA_FFI_Error* attnc_xla_attention_on_cuda(struct XLA_FFI_CallFrame* frame);

/// Handles a call on platform "cpu": computes as attnc_compute_on_cpu() and attnc_compute_backward_on_cpu(). Otherwise
/// as attnc_xla_attention_on_cuda().
ATTNC_API struct XLA_FFI_Error* attnc_xla_attention_on_cpu(struct XLA_FFI_CallFrame* frame);

#ifdef __cplusplus
}
#endif
