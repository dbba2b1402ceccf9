// What mask_mod says of tokens beside a grid.
#pragma once

#include "analysis/grid_box.h"

namespace attnc::passes {

using analysis::Beside;
using analysis::BesideGrid;

/// The module is one after the passes, with grids kept.
BesideGrid besideGrid(const ir::Module& module);

} // namespace attnc::passes
