/// Prepared attention: settled and compiled once, launched any number of times (prepared.h).
#pragma once

#include "attnc/c/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Whether to take a decode kernel (PrepareOptions::decode).
typedef int32_t attnc_decode;
enum {
  ATTNC_DECODE_DEFAULT = 0, ///< If it is faster, for few queries over long KV.
  ATTNC_DECODE_ALWAYS = 1,  ///< Take one; it is an error if none serves.
  ATTNC_DECODE_NEVER = 2,   ///< Take none.
};

/// Choices that cannot be derived from the operands (PrepareOptions).
typedef struct attnc_prepare_options {
  size_t struct_size;          ///< sizeof(attnc_prepare_options).
  const char* arch;            ///< GPU architecture. NULL or "": the device of the current CUDA context.
  const attnc_pin* pins;       ///< Extents and scalars of the mod to fold as constants.
  size_t pin_count;            ///< Number of pins.
  attnc_family family;         ///< Family of each pass. AUTO: the fastest one that takes the operands' layout.
  attnc_query_offsets offsets; ///< Where queries stand. DEFAULT: chosen by the given tensors.
  int32_t deterministic;       ///< 0 or 1: for a backward pass; as ATTNC_FEATURE_DETERMINISTIC.
  int32_t no_block_mask;       ///< 0 or 1: whether to build no block mask even if the kernel gains from one.
  attnc_decode decode;         ///< Whether to take a decode kernel.
  int32_t check;               ///< 0 or 1: whether each launch first checks the values of its operands, and waits.
  const char* tile;            ///< Tile of the forward or decode kernel. NULL or "": a stored choice, else the model's.
  const char* backward_tile;   ///< Tile of the backward kernel, for training. NULL or "": as for `tile`.
#define ATTNC_CHOICE(type, member, c_type, name, limit, flag, text) c_type name;
#include "attnc/choices.def"
  int64_t backward_later; ///< 0 or 1: whether the first backward launch compiles and loads its kernels.
} attnc_prepare_options;

/// The settled choices for given operands (Preparation).
typedef struct attnc_preparation attnc_preparation;

/// Creates the choices that attnc_prepare() would make. Compiles nothing, and needs no GPU if an arch is given.
/// `options` may be NULL (Compiler::settle).
ATTNC_API attnc_status attnc_settle(const attnc_compiler* compiler, const attnc_mod* mod,
                                    const attnc_operands* operands, const attnc_outputs* outputs,
                                    const attnc_prepare_options* options, attnc_preparation** preparation);
/// Creates the choices that attnc_prepare_training() would make. Otherwise as attnc_settle().
ATTNC_API attnc_status attnc_settle_training(const attnc_compiler* compiler, const attnc_mod* mod,
                                             const attnc_backward_operands* operands, const attnc_outputs* outputs,
                                             const attnc_backward_outputs* gradients,
                                             const attnc_prepare_options* options, attnc_preparation** preparation);
/// Destroys choices made by attnc_settle() or attnc_settle_training().
ATTNC_API void attnc_preparation_destroy(attnc_preparation* preparation);

/// The settled choices (Preparation), next to the plans of its kernels. Strings live as long as the preparation.
typedef struct attnc_preparation_info {
  size_t struct_size;                ///< sizeof(attnc_preparation_info).
  size_t workspace_bytes;            ///< Bytes of workspace: attnc_prepared_workspace_bytes().
  attnc_problem problem;             ///< Extents of the operands.
  attnc_block_mask_shape block_mask; ///< Shape of the mask built in the workspace. All 0 if blocks are boxes.
  const char* why_kind;              ///< Why a decode kernel was taken or not. "" if the caller decided it.
  int32_t is_training;               ///< 0 or 1: whether it is settled for training.
  int32_t builds_block_mask;         ///< 0 or 1: whether a block mask is built in the workspace.
} attnc_preparation_info;
/// Fills the settled choices.
ATTNC_API attnc_status attnc_preparation_get_info(const attnc_preparation* preparation, attnc_preparation_info* info);

/// Returns the number of kernels that attnc_prepare() compiles (Preparation::kernels); 0 for NULL.
ATTNC_API size_t attnc_preparation_plan_count(const attnc_preparation* preparation);
/// Returns the plan of one kernel, owned by the preparation. The forward or decode kernel comes first. If a block mask
/// is built, its kernel is next; for training, the backward kernel is last. NULL for an index out of range.
ATTNC_API const attnc_plan* attnc_preparation_get_plan(const attnc_preparation* preparation, size_t index);

/// Returns the choices as text for people, owned by the preparation: family, arch, loop over KV, block mask and
/// workspace. For a prepared attention it adds registers, spills and shared memory of each stage. NULL on a failure.
ATTNC_API const char* attnc_preparation_text(const attnc_preparation* preparation);

/// Sets `*json` to one JSON object: what the kernel of these choices is, why it was chosen, and what it costs
/// (explain.h). Compiles the kernel, or takes it from memory or disk, and counts the mask's blocks. The text lives as
/// long as the preparation, which keeps each one that differs. Captures of the mod are in host memory; NULL: it has
/// none.
ATTNC_API attnc_status attnc_explain(const attnc_compiler* compiler, const attnc_preparation* preparation,
                                     const attnc_capture* captures, size_t capture_count, const char** json);

/// Attention over operands of certain shapes, ready to launch (Prepared). It is immutable. Its code stays loaded while
/// it or the compiler that made it lives. One of them must outlive the launched work.
typedef struct attnc_prepared attnc_prepared;

/// Settles the choices, compiles the kernels or takes them from the cache, and loads them into the current CUDA
/// context. `options` may be NULL (Compiler::prepare).
ATTNC_API attnc_status attnc_prepare(const attnc_compiler* compiler, const attnc_mod* mod,
                                     const attnc_operands* operands, const attnc_outputs* outputs,
                                     const attnc_prepare_options* options, attnc_prepared** prepared);
/// Prepares a forward and a backward pass (Compiler::prepareTraining). Otherwise as attnc_prepare().
ATTNC_API attnc_status attnc_prepare_training(const attnc_compiler* compiler, const attnc_mod* mod,
                                              const attnc_backward_operands* operands, const attnc_outputs* outputs,
                                              const attnc_backward_outputs* gradients,
                                              const attnc_prepare_options* options, attnc_prepared** prepared);
/// Destroys a prepared attention. Its code must outlive the launched work.
ATTNC_API void attnc_prepared_destroy(attnc_prepared* prepared);

/// Returns the settled choices, which live as long as `prepared`; do not destroy them. NULL on a failure.
ATTNC_API const attnc_preparation* attnc_prepared_get_preparation(const attnc_prepared* prepared);

/// Computes the bytes of device memory that the calls below need, aligned to 256 bytes. If it is 0, the workspace may
/// be NULL. The caller owns it, and need not clear it (Prepared::workspaceBytes).
ATTNC_API attnc_status attnc_prepared_workspace_bytes(const attnc_prepared* prepared, size_t* bytes);
/// Enqueues the initialisation of a workspace on `stream` (Prepared::initialise). Call it before the first launch with
/// the workspace, and again if captures that mask_mod reads change.
ATTNC_API attnc_status attnc_prepared_initialise(const attnc_prepared* prepared, const attnc_operands* operands,
                                                 void* workspace, attnc_stream stream);
/// Enqueues the forward pass on `stream` (Prepared::launch). Does not compile, allocate device memory or synchronise.
/// It may be captured into a CUDA graph.
ATTNC_API attnc_status attnc_prepared_launch(const attnc_prepared* prepared, const attnc_operands* operands,
                                             const attnc_outputs* outputs, void* workspace, attnc_stream stream);
/// Enqueues the backward pass on `stream` (Prepared::launchBackward). Otherwise as attnc_prepared_launch().
ATTNC_API attnc_status attnc_prepared_launch_backward(const attnc_prepared* prepared,
                                                      const attnc_backward_operands* operands,
                                                      const attnc_backward_outputs* outputs, void* workspace,
                                                      attnc_stream stream);
/// Fills a view of the lists in `workspace` that attnc_prepared_initialise() fills, or a launch. Errors: no block mask
/// is built there; its blocks are boxes (ATTNC_KV_LOOP_BOX_MASK), which a view cannot describe.
ATTNC_API attnc_status attnc_prepared_block_mask_in(const attnc_prepared* prepared, void* workspace,
                                                    attnc_block_mask_view* view);

#ifdef __cplusplus
}
#endif
