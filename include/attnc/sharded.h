// Attention of one rank of several, by a plan of shards. The caller's engine moves the bytes: NCCL, MPI, or another.
//
// ```
//   auto sharded = attnc::ShardedAttention::prepare(&compiler, mod, *plan, /*mask=*/0, rank, operands, outputs);
//   void* workspace = allocate(sharded->workspaceBytes());
//   sharded->initialise(operands, workspace, stream);                       // again if a mask's captures change
//   sharded->launch(operands, outputs, engine, workspace, stream, transfers); // any number of times, on all ranks
// ```
//
// For training, prepareTraining() settles both passes. Each launch() keeps what its launchBackward() needs.
//
// ```
//   void* kept = allocate(sharded->keptBytes());                            // one for each launch() under way
//   sharded->launch(operands, outputs, engine, workspace, stream, transfers, kept);
//   sharded->launchBackward(backwardOperands, gradients, engine, workspace, stream, transfers, kept);
// ```
//
// In: the rows of the rank, in the plan's order. Out: the attention of its rows of q to all keys. Each stage is one
// launch. Results of stages are merged in fp32 (shard.h). In a backward pass keys travel again, and their gradients
// travel back. Gradients are added up in fp32, in the order of stages and ranks.
//
// With groups of heads, the ranks of a team first exchange heads for rows. Each computes the rows of the team for its
// group of heads. In the end they exchange rows for heads. The same exchange() carries these messages.
//
// With a compiler, tensors are in device memory and kernels compute. Without one, tensors are in host memory and the
// reference computes (reference.h).
#pragma once

#include "attnc/compiler.h"
#include "attnc/shard.h"

#include <functional>
#include <memory>
#include <vector>

namespace attnc {

/// Bytes that travel between this rank and another.
struct ShardMessage {
  int peer = 0;         ///< The other rank.
  void* data = nullptr; ///< Where the bytes lie, or where they go: device or host memory, as the tensors.
  size_t bytes = 0;     ///< Number of bytes, above 0.
};

/// Moves bytes between ranks. Calls come from the thread that launches. They must not throw. An error ends the launch.
struct ShardEngine {
  /// Begins to send and to receive. All ranks are called equally often in a launch, in the same order, also without
  /// messages. Messages between two ranks are in the same order on both. None may wait for another one's end. Work of a
  /// GPU engine is enqueued on `stream`. Required.
  std::function<Status(const std::vector<ShardMessage>& sends, const std::vector<ShardMessage>& receives,
                       Stream stream)>
      exchange;
  /// Blocks until the messages of the last exchange() have gone and come. Empty: they are ordered by the stream.
  std::function<Status()> wait = {};
};

/// The attention of one rank, ready to launch. It is immutable, and copies share it. Threads may use it at the same
/// time with workspaces and engines of their own.
class ShardedAttention {
public:
  /// Prepares the launches of a rank. With a compiler, compiles the kernels of all stages, or takes them from memory or
  /// disk, and loads them into the current CUDA context. Null: the CPU computes. Arguments are borrowed during the
  /// call.
  ///
  /// `mod`: the mod of mask `mask` of the plan, or one with the same mask and any score. It sees positions, heads and
  /// lengths of the whole problem. Its captures are whole.
  ///
  /// Operands are the rank's: q [B, H, rows, D], k [B, HKV, keys, D], v [B, HKV, keys, DV]. Rows and keys are in the
  /// plan's order. Addresses may be null here. If keys travel, each row of k and v is dense over the heads: memory [B,
  /// keys, HKV, D]. Rows then travel from where they lie. With groups of heads, so are rows of q and out, and of
  /// gradients. Outputs are `out`, and `lse` if wanted.
  ///
  /// If the plan has lengths (ShardOptions::lengths), B is 1 here. Mods see sequences as b, and positions in them.
  ///
  /// Errors (environment): a mask or rank that the plan does not have; tensors that do not fit the plan; other operands
  /// and outputs. Also groups of heads that do not divide H and HKV; a capture with a name that begins with `attnc_`;
  /// those of Compiler::prepare().
  static Expected<ShardedAttention> prepare(const Compiler* compiler, const Mod& mod, const ShardPlan& plan, int mask,
                                            int rank, const Operands& operands, const Outputs& outputs,
                                            const PrepareOptions& options = {});

  /// Prepares a forward and a backward pass. Otherwise as prepare(). `outputs` are those of the forward pass, with lse;
  /// `operands` repeat them. All addresses may be null. dQ, dK and dV are given. Captures with tensors in `gradients`
  /// get gradients; all captures must then be given.
  ///
  /// Errors (environment): those of prepare() and Compiler::prepareTraining(); a gradient of a capture that is not a
  /// contiguous f32 tensor of the capture's shape.
  static Expected<ShardedAttention> prepareTraining(const Compiler* compiler, const Mod& mod, const ShardPlan& plan,
                                                    int mask, int rank, const BackwardOperands& operands,
                                                    const Outputs& outputs, const BackwardOutputs& gradients,
                                                    const PrepareOptions& options = {});

  /// Returns the bytes of memory that initialise() and launches need, aligned to kWorkspaceAlignment: device memory, or
  /// host memory on the CPU. The caller owns it. It need not be cleared. Launches that do not overlap may share it.
  ///
  /// It holds two stages of received keys, a partial result, the sum of stages, and the workspaces of all launches. For
  /// a backward pass it holds two stages of gradients of keys, what comes back, and all sums in fp32. With groups of
  /// heads it also holds what a team exchanges.
  size_t workspaceBytes() const;

  /// Returns the bytes of memory that a launch() keeps for its launchBackward(), aligned and owned as the workspace. It
  /// holds lse of each stage. With groups of heads it also holds q, k, v, out and lse of the team. 0 if not prepared
  /// for training.
  size_t keptBytes() const;

  /// Fills a workspace: positions, counters, block masks. As Prepared::initialise(), but it may not be captured into a
  /// CUDA graph.
  Status initialise(const Operands& operands, void* workspace, Stream stream) const;

  /// Enqueues the attention of all stages on `stream`, and transfers on `transfers`. All ranks call it. Keys of a stage
  /// travel while the attention of the stage before runs. If both streams are the same, one waits for the other.
  /// Operands must stay unchanged until `stream` has passed. On the CPU it returns when it is done; streams are null.
  ///
  /// `kept`: keptBytes() of memory, written for launchBackward(). Null if that is 0.
  ///
  /// Errors (environment): operands unlike those of prepare(); those of Prepared::launch(); those of the engine. After
  /// one, outputs and kept memory are undefined, and the engine must end the calls of the other ranks.
  Status launch(const Operands& operands, const Outputs& outputs, const ShardEngine& engine, void* workspace,
                Stream stream, Stream transfers, void* kept = nullptr) const;

  /// Enqueues the backward pass on `stream`, and transfers on `transfers`, behind the launch() that wrote out, lse and
  /// `kept`. All ranks call it. Operands and captures are those of that launch. With groups of heads, q, k, v, out and
  /// lse are not read, and may be null. Another launch may have used the workspace since.
  ///
  /// Gradients of q, k and v are those of the rank's rows. Gradients of captures are the rank's part of a sum over all
  /// ranks. The caller adds the parts up, as for other parameters: by MPI_Allreduce() or ncclAllReduce(). With
  /// PrepareOptions::deterministic, equal launches give equal bits.
  ///
  /// Errors (environment): not prepared for training; as launch(). After an error of the engine, gradients are as they
  /// were: they are written behind the last message.
  Status launchBackward(const BackwardOperands& operands, const BackwardOutputs& gradients, const ShardEngine& engine,
                        void* workspace, Stream stream, Stream transfers, const void* kept) const;

private:
  struct Impl;
  explicit ShardedAttention(std::shared_ptr<const Impl> impl) : impl(std::move(impl)) {}
  static Expected<ShardedAttention> make(const Compiler* compiler, const Mod& mod, const ShardPlan& plan, int mask,
                                         int rank, const BackwardOperands& operands, const Outputs& outputs,
                                         const BackwardOutputs* gradients, const PrepareOptions& options);
  std::shared_ptr<const Impl> impl;
};

} // namespace attnc
