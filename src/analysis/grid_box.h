// The box of keys that a query on a grid sees: what the pass derive-grid-box found, read from the outputs that it added.
//
// For a query and a key that are both on their grids, mask_mod is true if and only if
//   box_begin_a <= k_a < box_end_a for each axis a of the grid of keys that has these outputs,
//   floor_mod(k_a, box_step_a) == box_phase_a for each axis that has these (a dilated neighborhood), and
//   box_rest, where there is one: conditions that are no box.
// The bounds may lie outside 0 to the extent; begin >= end is an empty box. They are functions of b, h, q_idx and of
// the coordinates of q_idx, the step of b and h alone and at least 1; of keys only box_rest knows.
#pragma once

#include "ir/ir.h"

#include <optional>
#include <string>

namespace attnc::analysis {

/// What mask_mod says where not both tokens are on their grids.
enum class Beside {
  None, ///< false
  All,  ///< true
  Asks, ///< depends on more
};

/// What mask_mod says of a query on its grid and a key beside it, and so on.
struct BesideGrid {
  Beside key = Beside::Asks, query = Beside::Asks, both = Beside::Asks;

  /// Whether there are pairs of which it has to be asked.
  bool asks() const { return key == Beside::Asks || query == Beside::Asks || both == Beside::Asks; }
};

/// The name of an output of the box: `what` is begin, end, step or phase.
std::string boxOutput(const char* what, size_t axis);

struct GridBox {
  struct Axis {
    std::optional<ir::Value> begin, end;  ///< both or none
    std::optional<ir::Value> step, phase; ///< both or none
  };
  unsigned keys = 0;               ///< the grid of kv_idx, by its index in Module::grids
  std::optional<unsigned> queries; ///< the grid of q_idx; none where mask_mod asks for no coordinates of queries
  llvm::SmallVector<Axis, 3> axes; ///< of the grid of keys
  std::optional<ir::Value> rest;
  std::optional<BesideGrid> beside; ///< of modules with the outputs of setBeside()

  /// Whether mask_mod says the box and nothing else.
  bool isMask() const;
};

/// The box of a module with the outputs of derive-grid-box; nothing without.
std::optional<GridBox> gridBox(const ir::Module& module);

/// Adds outputs that say it: constants, for kernels whose launches may have tokens beside the grids.
void setBeside(ir::Module& module, const BesideGrid& beside);

/// The grids whose coordinates mask_mod and score_mod take of q_idx and of kv_idx, as they are; nothing where they take
/// none, or of several grids.
struct GridsUsed {
  std::optional<unsigned> queries, keys;
};
GridsUsed gridsUsed(const ir::Module& module);

} // namespace attnc::analysis
