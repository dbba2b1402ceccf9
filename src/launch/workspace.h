// The device memory of a plan, divided among its uses.
#pragma once

#include "launch/launch_operands.h"

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/SmallVector.h>

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>

namespace attnc::plan {

/// What a part of a workspace holds.
enum class Use {
  Counters,     ///< by which CTAs take tiles
  Parts,        ///< decode: sums of V and states of rows, in f32, of items that several CTAs share
  Lists,        ///< a block mask's
  StepLists,    ///< decode: the live steps along KV
  SharedItems,  ///< decode of wide heads: which items CTAs share
  Delta,        ///< backward: an f32 per row of q
  TangentDelta, ///< tangents: an f32 per row of q
  RowSums,      ///< backward: an f32 per row of q, the factor by which weights computed from lse are off
  LargeRows,    ///< backward: which tiles of q have rows that need RowSums
  DqSums,       ///< backward: gradients of q, in f32
  DqTurns,      ///< backward: whose turn it is to add to DqSums
  KvSums,       ///< backward of wide heads: gradients of k and v that query heads share, in f32
  KvArrivals,   ///< backward of wide heads: how many CTAs have added to KvSums
  DqVisits,     ///< backward with lists: who adds to DqSums, a bit per block
  DiagonalSums, ///< backward: gradients of scores, by q_idx - kv_idx, in f32
  CaptureSums,  ///< backward: gradients of captures
  WideQ,        ///< low-rank terms: q with further columns, or only these
  WideK,        ///< low-rank terms: k with further columns, or only these
  WideV,        ///< low-rank terms: v for each head of WideK
  WideDq,       ///< low-rank terms, backward: the gradient of WideQ
  WideDk,       ///< low-rank terms, backward: the gradient of WideK
  WideDv,       ///< low-rank terms, backward: that of v for each head and batch entry of WideK
  Lse,          ///< outputs of mods: an f32 per row of q
  RowParts,     ///< outputs of mods for heads: an f32 per row of q, for each
};

/// A use of the workspace, and the memory that it takes. Launches whose operands have equal shapes take equal memory.
struct WorkspaceUse {
  enum class Zeroed {
    Never,
    Once,        ///< before the first launch; every launch leaves it zero
    EveryLaunch, ///< by the launch itself
  };
  Use use = Use::Counters;
  std::function<size_t(const LaunchOperands& operands)> bytes;
  Zeroed zeroed = Zeroed::Never;
  bool isOptional = false; ///< whether a launch can do without it
};

/// Returns two counters by which CTAs take tiles (templates/algo/tile_order.cuh). Without them, tiles are dealt round
/// robin.
WorkspaceUse tileCounters();

/// A part of a workspace, for given operands.
struct WorkspacePart {
  WorkspaceUse use;
  size_t offset = 0; ///< a multiple of kWorkspaceAlignment
  size_t bytes = 0;
};

/// Where the uses lie: one after another, in their order.
class WorkspaceLayout {
public:
  WorkspaceLayout(llvm::ArrayRef<WorkspaceUse> uses, const LaunchOperands& operands);

  size_t bytes() const { return end; }
  llvm::ArrayRef<WorkspacePart> parts() const { return all; }
  /// Returns the part of a use. Null if the plan lacks it, or if it takes no memory.
  const WorkspacePart* find(Use use) const;

private:
  llvm::SmallVector<WorkspacePart, 4> all;
  size_t end = 0;
};

/// A launch's workspace. `memory` is null if the launch goes without.
struct WorkspaceView {
  const WorkspaceLayout& layout;
  void* memory = nullptr;
  /// Returns the memory of a use, or null.
  void* at(Use use) const;
};

/// The operands of one launch with further columns of q and k, for each form of these: made once for all stages.
class WideOperands {
public:
  /// `workspace`: of the launch; null if only shapes matter. Kept by address.
  explicit WideOperands(const WorkspaceView* workspace) : space(workspace) {}

  const WorkspaceView* workspace() const { return space; }

  /// Returns what `make` returned for this form. At most kMostForms forms.
  const LaunchOperands& of(const void* form, llvm::function_ref<LaunchOperands()> make) {
    size_t i = 0;
    while (made[i] && made[i]->first != form) ++i;
    if (!made[i]) made[i].emplace(form, make());
    return made[i]->second;
  }

private:
  static constexpr size_t kMostForms = 2;
  const WorkspaceView* space;
  std::array<std::optional<std::pair<const void*, LaunchOperands>>, kMostForms> made;
};

/// Checks that a launch can use it: memory is aligned to kWorkspaceAlignment, or null if no use requires any.
Status checkWorkspace(const WorkspaceView& workspace);

} // namespace attnc::plan
