/// Attention of one rank of several, by a plan of shards (sharded.h).
#pragma once

#include "attnc/c/prepared.h"
#include "attnc/c/shard.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Bytes that travel between this rank and another (ShardMessage).
typedef struct attnc_shard_message {
  void* data;       ///< Where the bytes lie, or where they go: device or host memory, as the tensors.
  size_t bytes;     ///< Number of bytes, above 0.
  int32_t peer;     ///< The other rank.
  int32_t reserved; ///< 0.
} attnc_shard_message;

/// Begins to send and to receive (ShardEngine::exchange). `user` is that of the engine. Returns 0, or a number of the
/// engine's that the error of the launch tells.
typedef int32_t (*attnc_shard_exchange)(void* user, const attnc_shard_message* sends, size_t send_count,
                                        const attnc_shard_message* receives, size_t receive_count, attnc_stream stream);
/// Blocks until the messages of the last exchange have gone and come (ShardEngine::wait). Returns as
/// attnc_shard_exchange.
typedef int32_t (*attnc_shard_wait)(void* user);

/// Moves bytes between ranks (ShardEngine).
typedef struct attnc_shard_engine {
  size_t struct_size;            ///< sizeof(attnc_shard_engine).
  attnc_shard_exchange exchange; ///< Begins to send and to receive. Required.
  attnc_shard_wait wait;         ///< Waits for messages. NULL: they are ordered by the stream.
  void* user;                    ///< First argument of both.
} attnc_shard_engine;

/// The attention of one rank, ready to launch (ShardedAttention). It is immutable. Its code stays loaded while it or
/// the compiler lives.
typedef struct attnc_sharded attnc_sharded;

/// Prepares the launches of a rank (ShardedAttention::prepare). `compiler` NULL: the CPU computes, on tensors in host
/// memory. `options` may be NULL. The plan may be destroyed afterwards.
ATTNC_API attnc_status attnc_sharded_prepare(const attnc_compiler* compiler, const attnc_mod* mod,
                                             const attnc_shard_plan* plan, size_t mask, size_t rank,
                                             const attnc_operands* operands, const attnc_outputs* outputs,
                                             const attnc_prepare_options* options, attnc_sharded** sharded);
/// Prepares a forward and a backward pass (ShardedAttention::prepareTraining). Otherwise as attnc_sharded_prepare().
ATTNC_API attnc_status attnc_sharded_prepare_training(const attnc_compiler* compiler, const attnc_mod* mod,
                                                      const attnc_shard_plan* plan, size_t mask, size_t rank,
                                                      const attnc_backward_operands* operands,
                                                      const attnc_outputs* outputs,
                                                      const attnc_backward_outputs* gradients,
                                                      const attnc_prepare_options* options, attnc_sharded** sharded);
/// Destroys it. Its code must outlive the launched work.
ATTNC_API void attnc_sharded_destroy(attnc_sharded* sharded);

/// Computes the bytes of memory that the calls below need, aligned to 256 bytes (ShardedAttention::workspaceBytes).
ATTNC_API attnc_status attnc_sharded_workspace_bytes(const attnc_sharded* sharded, size_t* bytes);
/// Computes the bytes of memory that a launch keeps for its backward pass, aligned to 256 bytes
/// (ShardedAttention::keptBytes). 0 if not prepared for training.
ATTNC_API attnc_status attnc_sharded_kept_bytes(const attnc_sharded* sharded, size_t* bytes);
/// Fills a workspace (ShardedAttention::initialise). Call it before the first launch with the workspace, and again if
/// captures that mask_mod reads change.
ATTNC_API attnc_status attnc_sharded_initialise(const attnc_sharded* sharded, const attnc_operands* operands,
                                                void* workspace, attnc_stream stream);
/// Enqueues the attention of all stages on `stream`, and transfers on `transfers` (ShardedAttention::launch). All ranks
/// call it. The engine is called during the call.
ATTNC_API attnc_status attnc_sharded_launch(const attnc_sharded* sharded, const attnc_operands* operands,
                                            const attnc_outputs* outputs, const attnc_shard_engine* engine,
                                            void* workspace, attnc_stream stream, attnc_stream transfers);
/// Launches the forward pass of training: fills `kept`, attnc_sharded_kept_bytes() of memory, for the backward pass.
/// Otherwise as attnc_sharded_launch().
ATTNC_API attnc_status attnc_sharded_launch_training(const attnc_sharded* sharded, const attnc_operands* operands,
                                                     const attnc_outputs* outputs, const attnc_shard_engine* engine,
                                                     void* workspace, attnc_stream stream, attnc_stream transfers,
                                                     void* kept);
/// Enqueues the backward pass behind the launch that filled `kept` (ShardedAttention::launchBackward). All ranks call
/// it. Gradients of captures are the rank's part of a sum over all ranks, which the caller computes. After an error of
/// the engine, gradients are as they were.
ATTNC_API attnc_status attnc_sharded_launch_backward(const attnc_sharded* sharded,
                                                     const attnc_backward_operands* operands,
                                                     const attnc_backward_outputs* gradients,
                                                     const attnc_shard_engine* engine, void* workspace,
                                                     attnc_stream stream, attnc_stream transfers, const void* kept);

#ifdef __cplusplus
}
#endif
