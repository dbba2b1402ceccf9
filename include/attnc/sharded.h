// Attention of one rank of several, by a plan of shards. The caller's engine moves the bytes: NCCL, MPI, or another.
//
// ```
//   auto sharded = attnc::ShardedAttention::prepare(&compiler, mod, *plan, /*mask=*/0, rank, operands, outputs);
//   void* workspace = allocate(sharded->workspaceBytes());
//   sharded->initialise(operands, workspace, stream);                       // again if a mask's captures change
//   sharded->launch(operands, outputs, engine, workspace, stream, transfers); // any number of times, on all ranks
// ```
//
// In: the rows of the rank, in the plan's order. Out: the attention of its rows of q to all keys. Each stage is one
// launch. Results of stages are merged in fp32 (shard.h).
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
  /// Begins to send and to receive. Each rank is called once for each stage with transfers, in order, also if it has no
  /// message. Messages between two ranks are in the same order on both. None may wait for another one's end. Work of a
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
  /// `mod`: the mod of mask `mask` of the plan, or one with the same mask and any score. It sees positions and lengths
  /// of the whole problem. Its captures are whole.
  ///
  /// Operands are the rank's: q [B, H, rows, D], k [B, HKV, keys, D], v [B, HKV, keys, DV]. Rows and keys are in the
  /// plan's order. Addresses may be null here. If keys travel, each row of k and v is dense over the heads: memory [B,
  /// keys, HKV, D]. Rows then travel from where they lie. Outputs are `out`, and `lse` if wanted.
  ///
  /// If the plan has lengths (ShardOptions::lengths), B is 1 here. Mods see sequences as b, and positions in them.
  ///
  /// Errors (environment): a mask or rank that the plan does not have; tensors that do not fit the plan; other operands
  /// and outputs. Also a plan with groups of heads; a capture with a name that begins with
  /// `attnc_`; those of Compiler::prepare().
  static Expected<ShardedAttention> prepare(const Compiler* compiler, const Mod& mod, const ShardPlan& plan, int mask,
                                            int rank, const Operands& operands, const Outputs& outputs,
                                            const PrepareOptions& options = {});

  /// Returns the bytes of memory that initialise() and launch() need, aligned to kWorkspaceAlignment: device memory, or
  /// host memory on the CPU. It holds two stages of received keys, a partial result, the sum of stages, and the
  /// workspaces of all launches. The caller owns it. It need not be cleared.
  size_t workspaceBytes() const;

  /// Fills a workspace: positions, counters, block masks. As Prepared::initialise(), but it may not be captured into a
  /// CUDA graph.
  Status initialise(const Operands& operands, void* workspace, Stream stream) const;

  /// Enqueues the attention of all stages on `stream`, and transfers on `transfers`. All ranks call it. Keys of a stage
  /// travel while the attention of the stage before runs. If both streams are the same, one waits for the other.
  /// Operands must stay unchanged until `stream` has passed. On the CPU it returns when it is done; streams are null.
  ///
  /// Errors (environment): operands unlike those of prepare(); those of Prepared::launch(); those of the engine. After
  /// one, outputs are undefined, and the engine must end the calls of the other ranks.
  Status launch(const Operands& operands, const Outputs& outputs, const ShardEngine& engine, void* workspace,
                Stream stream, Stream transfers) const;

private:
  struct Impl;
  explicit ShardedAttention(std::shared_ptr<const Impl> impl) : impl(std::move(impl)) {}
  std::shared_ptr<const Impl> impl;
};

} // namespace attnc
