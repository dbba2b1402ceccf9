// The device memory of a plan, divided among its uses.
#pragma once

#include "plan/launch_operands.h"

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>

#include <cstddef>

namespace attnc::plan {

/// What a part of a workspace holds.
enum class Use {
  Counters,     ///< by which CTAs take tiles
  Parts,        ///< of items that several CTAs share: sums of V, and states of rows, in f32
  Lists,        ///< of a block mask
  StepLists,    ///< of a decode kernel: the steps along KV that live
  Delta,        ///< of a backward pass: an f32 a row of q
  RowSums,      ///< of a backward pass: an f32 a row of q, by which weights of lse are off
  LargeRows,    ///< of a backward pass: which tiles of q have rows that need these sums
  DqSums,       ///< of a backward pass: gradients of q, in f32
  DqTurns,      ///< of a backward pass: who may add to them
  DqVisits,     ///< of a backward pass by lists: who does, a bit a block
  DiagonalSums, ///< of a backward pass: gradients of scores, by q_idx - kv_idx, in f32
  CaptureSums,  ///< of gradients of captures
};

/// A use of the workspace, and how much of it that takes. A launch of operands with the same shapes takes the same.
struct WorkspaceUse {
  enum class Zeroed {
    Never,
    Once,        ///< before the first launch; every launch leaves it zero
    EveryLaunch, ///< by the launch itself
  };
  Use use = Use::Counters;
  size_t (*bytes)(const LaunchOperands& operands) = nullptr;
  Zeroed zeroed = Zeroed::Never;
  bool isOptional = false; ///< a launch does without it
};

/// Two counters by which CTAs take tiles (templates/algo/tile_order.cuh); without them tiles are dealt round robin.
WorkspaceUse tileCounters();

/// A part of a workspace, given the operands.
struct WorkspacePart {
  WorkspaceUse use;
  size_t offset = 0; ///< a multiple of kWorkspaceAlignment
  size_t bytes = 0;
};

/// Where the uses lie, one behind the other in their order.
class WorkspaceLayout {
public:
  WorkspaceLayout(llvm::ArrayRef<WorkspaceUse> uses, const LaunchOperands& operands);

  size_t bytes() const { return end; }
  llvm::ArrayRef<WorkspacePart> parts() const { return all; }
  /// Null: there is no such use, or it takes nothing.
  const WorkspacePart* find(Use use) const;

private:
  llvm::SmallVector<WorkspacePart, 4> all;
  size_t end = 0;
};

/// A workspace of a launch; without memory, where the launch goes without.
struct WorkspaceView {
  const WorkspaceLayout& layout;
  void* memory = nullptr;
  /// The memory of a use, or null.
  void* at(Use use) const;
};

/// Whether a launch can do with it: memory at a multiple of kWorkspaceAlignment, or none if no use needs it.
Status checkWorkspace(const WorkspaceView& workspace);

} // namespace attnc::plan
