/// Prepared attention: settled and compiled once, launched any number of times (prepared.h).
#pragma once

#include "attnc/c/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Whether a decode kernel is taken.
typedef int32_t attnc_decode;
enum {
  ATTNC_DECODE_DEFAULT = 0, ///< where that is faster, for few queries over long KV
  ATTNC_DECODE_ALWAYS = 1,
  ATTNC_DECODE_NEVER = 2,
};

/// What cannot be told from the operands (PrepareOptions).
typedef struct attnc_prepare_options {
  size_t struct_size;
  const char* arch; ///< NULL or "": that of the current CUDA context's device
  const attnc_pin* pins;
  size_t pin_count;
  attnc_family family; ///< of each pass
  attnc_query_offsets offsets;
  int32_t tf32;          ///< 0 or 1, as all below
  int32_t deterministic; ///< of a backward pass
  int32_t no_block_mask; ///< build none, even where the kernel gains from one
  attnc_decode decode;
  const char* tile; ///< of the forward or decode kernel; NULL or "": one that was measured, or else the catalogue's
  const char* backward_tile; ///< the same of the backward kernel, for training
} attnc_prepare_options;

/// What is settled for given operands, and why.
typedef struct attnc_preparation attnc_preparation;

/// What would be chosen. Needs no GPU if an arch is named; compiles nothing. `options` may be NULL.
ATTNC_API attnc_status attnc_settle(const attnc_compiler* compiler, const attnc_mod* mod,
                                    const attnc_operands* operands, const attnc_outputs* outputs,
                                    const attnc_prepare_options* options, attnc_preparation** preparation);
ATTNC_API attnc_status attnc_settle_training(const attnc_compiler* compiler, const attnc_mod* mod,
                                             const attnc_backward_operands* operands, const attnc_outputs* outputs,
                                             const attnc_backward_outputs* gradients,
                                             const attnc_prepare_options* options, attnc_preparation** preparation);
ATTNC_API void attnc_preparation_destroy(attnc_preparation* preparation);

/// What is chosen (Preparation). Strings live as long as the preparation.
typedef struct attnc_preparation_info {
  size_t struct_size;
  const char* arch;
  size_t workspace_bytes;
  attnc_problem problem;
  attnc_block_mask_shape block_mask; ///< of the mask built in the workspace, if builds_block_mask; of boxes all 0
  const char* passed_over;           ///< why a family that the catalogue would prefer was not taken; "": it was
  const char* backward_passed_over;  ///< of the backward pass
  attnc_family family;               ///< of the forward kernel
  attnc_family backward_family;      ///< AUTO: not settled for training
  attnc_kv_loop kv_loop;
  attnc_kv_loop backward_kv_loop;
  int32_t is_training;       ///< 0 or 1
  int32_t builds_block_mask; ///< 0 or 1
  const char* why_kind; ///< why a decode kernel is taken, or is not; "": the caller settled that
  const char* tile;     ///< of the forward or decode kernel, as attnc_prepare_options has it
  const char* tuned_by; ///< the measured choice that it is: its file, and its date; "": none
  const char* backward_tile; ///< the same of the backward kernel; "": not settled for training
  const char* backward_tuned_by;
} attnc_preparation_info;
ATTNC_API attnc_status attnc_preparation_get_info(const attnc_preparation* preparation, attnc_preparation_info* info);

/// The options of the kernels of a pass, complete, as attnc_compile() and attnc_kernel_load() take them. Strings and
/// arrays live as long as the preparation. Errors: a backward pass that was not settled.
ATTNC_API attnc_status attnc_preparation_get_options(const attnc_preparation* preparation, attnc_pass pass,
                                                     attnc_kernel_options* options);

/// The same for people: lines on family, arch, loop over KV, block mask and workspace; of a prepared attention also on
/// registers, spills and shared memory of each stage. NULL on a failure.
ATTNC_API const char* attnc_preparation_text(const attnc_preparation* preparation);

/// Attention over operands of certain shapes, ready to be launched (Prepared). Immutable. Its code stays loaded as long
/// as it or the compiler that made it lives; one of them must outlive the work that was launched.
typedef struct attnc_prepared attnc_prepared;

/// Settles, compiles what is needed or takes it from the cache, and loads it into the current CUDA context. `options`
/// may be NULL.
ATTNC_API attnc_status attnc_prepare(const attnc_compiler* compiler, const attnc_mod* mod,
                                     const attnc_operands* operands, const attnc_outputs* outputs,
                                     const attnc_prepare_options* options, attnc_prepared** prepared);
ATTNC_API attnc_status attnc_prepare_training(const attnc_compiler* compiler, const attnc_mod* mod,
                                              const attnc_backward_operands* operands, const attnc_outputs* outputs,
                                              const attnc_backward_outputs* gradients,
                                              const attnc_prepare_options* options, attnc_prepared** prepared);
ATTNC_API void attnc_prepared_destroy(attnc_prepared* prepared);

/// What was settled; it lives as long as `prepared` and is not destroyed. NULL on a failure.
ATTNC_API const attnc_preparation* attnc_prepared_get_preparation(const attnc_prepared* prepared);
/// The kernels, likewise; the decode kernel, where it is taken, is the forward kernel. `*kernel` is NULL where there is
/// none: no backward pass, no block mask in the workspace.
ATTNC_API attnc_status attnc_prepared_get_kernel(const attnc_prepared* prepared, attnc_kernel_kind kind,
                                                 const attnc_kernel** kernel);

/// Bytes of device memory that the calls below need, at a multiple of 256 bytes; 0: none, and NULL will do.
ATTNC_API attnc_status attnc_prepared_workspace_bytes(const attnc_prepared* prepared, size_t* bytes);
/// Enqueues what makes a workspace ready: before the first launch with it, and when values of captures change that
/// mask_mod reads.
ATTNC_API attnc_status attnc_prepared_initialise(const attnc_prepared* prepared, const attnc_operands* operands,
                                                 void* workspace, attnc_stream stream);
/// Enqueue. They compile nothing, allocate nothing on the device, wait for nothing, and may be captured into CUDA
/// graphs.
ATTNC_API attnc_status attnc_prepared_launch(const attnc_prepared* prepared, const attnc_operands* operands,
                                             const attnc_outputs* outputs, void* workspace, attnc_stream stream);
ATTNC_API attnc_status attnc_prepared_launch_backward(const attnc_prepared* prepared,
                                                      const attnc_backward_operands* operands,
                                                      const attnc_backward_outputs* outputs, void* workspace,
                                                      attnc_stream stream);
/// The lists that attnc_prepared_initialise() fills. Errors: no block mask is built there, or one whose blocks are
/// boxes (ATTNC_KV_LOOP_BOX_MASK), which a view does not describe.
ATTNC_API attnc_status attnc_prepared_block_mask_in(const attnc_prepared* prepared, void* workspace,
                                                    attnc_block_mask_view* view);

#ifdef __cplusplus
}
#endif
