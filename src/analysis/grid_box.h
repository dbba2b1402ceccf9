// The box of keys that a query on a grid sees, read from the outputs of the pass derive-grid-box.
//
// If a query and a key are both on their grids, mask_mod is true if and only if all of these hold:
//   box_begin_a <= k_a < box_end_a for each axis a of the key grid that has these outputs;
//   floor_mod(k_a, box_step_a) == box_phase_a for each axis that has these (a dilated neighborhood);
//   box_rest, if present: the conditions that are not part of the box.
// Bounds may lie outside [0, extent]; the box is empty if begin >= end. Bounds are functions of b, h, q_idx and the
// coordinates of q_idx. Steps are functions of only b and h, at least 1. Only box_rest may depend on the key.
#pragma once

#include "ir/ir.h"

#include <optional>
#include <string>

namespace attnc::analysis {

/// What mask_mod gives if at least one of the two tokens is off its grid.
enum class Beside {
  None, ///< false
  All,  ///< true
  Asks, ///< depends on the tokens
};

/// What mask_mod gives if only the key, only the query, or both are off their grids.
struct BesideGrid {
  Beside key = Beside::Asks, query = Beside::Asks, both = Beside::Asks;

  /// Whether kernels must evaluate mask_mod for some pairs with off-grid tokens.
  bool asks() const { return key == Beside::Asks || query == Beside::Asks || both == Beside::Asks; }
};

/// Returns the name of an output of the box. `what`: begin, end, step or phase.
std::string boxOutput(const char* what, size_t axis);

struct GridBox {
  struct Axis {
    std::optional<ir::Value> begin, end;  ///< both or none
    std::optional<ir::Value> step, phase; ///< both or none
  };
  unsigned keys = 0;               ///< the grid of kv_idx, as an index into Module::grids
  std::optional<unsigned> queries; ///< the grid of q_idx; unset if mask_mod reads no query coordinates
  llvm::SmallVector<Axis, 3> axes; ///< of the key grid
  std::optional<ir::Value> rest;
  std::optional<BesideGrid> beside; ///< set in modules with the outputs of setBeside()

  /// Whether mask_mod is exactly the box.
  bool isMask() const;
};

/// Returns the box of a module with the outputs of derive-grid-box; nullopt without these.
std::optional<GridBox> gridBox(const ir::Module& module);

/// Adds `beside` as constant outputs, for kernels whose launches may have off-grid tokens.
void setBeside(ir::Module& module, const BesideGrid& beside);

/// The grids on which mask_mod and score_mod read coordinates of q_idx and of kv_idx themselves. Each is unset if they
/// read none, or on several grids.
struct GridsUsed {
  std::optional<unsigned> queries, keys;
};
GridsUsed gridsUsed(const ir::Module& module);

} // namespace attnc::analysis
