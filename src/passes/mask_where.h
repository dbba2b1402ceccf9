// What is left of mask_mod once some of its values are known.
#pragma once

#include "analysis/grid_box.h"
#include "attnc/error.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <optional>

namespace attnc::passes {

/// The mask with values replaced by what they are taken to be, and the passes run again.
Expected<ir::Module> assuming(const ir::Module& module,
                              llvm::function_ref<std::optional<bool>(ir::Value)> taken);

/// Where a token lies: before the first one of its grid, on the grid, or behind the last one.
enum class GridSide { Before, On, Behind };

/// What the mask says of tokens of which is known where they lie: comparisons of positions with either end of their
/// grid are decided.
Expected<ir::Module> maskWhere(const ir::Module& module, const analysis::GridsUsed& grids, GridSide query,
                               GridSide key);

} // namespace attnc::passes
