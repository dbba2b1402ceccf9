// What mask_mod says about off-grid tokens.
#pragma once

#include "analysis/grid_box.h"

namespace attnc::passes {

using analysis::Beside;
using analysis::BesideGrid;

/// Judges mask_mod for off-grid tokens. `module`: after the passes, with grids kept.
BesideGrid besideGrid(const ir::Module& module);

} // namespace attnc::passes
