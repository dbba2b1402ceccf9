// What mask_mod says of tokens beside a grid.
#pragma once

#include "ir/ir.h"

namespace attnc::passes {

/// What mask_mod says where not both tokens are on their grids.
enum class Beside {
  None, ///< false
  All,  ///< true
  Asks, ///< depends on more
};

/// What mask_mod says of a query on its grid and a key beside it, and so on. The module is one after the passes, with
/// grids kept.
struct BesideGrid {
  Beside key = Beside::Asks, query = Beside::Asks, both = Beside::Asks;
};
BesideGrid besideGrid(const ir::Module& module);

} // namespace attnc::passes
