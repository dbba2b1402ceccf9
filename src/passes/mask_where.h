// mask_mod simplified under assumptions about some of its values.
#pragma once

#include "analysis/grid_box.h"
#include "attnc/error.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <optional>

namespace attnc::passes {

/// Returns the mask with each value that `taken` answers for replaced by that answer, after running the passes again.
Expected<ir::Module> assuming(const ir::Module& module, llvm::function_ref<std::optional<bool>(ir::Value)> taken);

/// Where a token lies: before its grid, on the grid, or behind it.
enum class GridSide { Before, On, Behind };

/// Returns the mask for a query and a key whose sides of their grids are known. Comparisons of positions with the ends
/// of the grids are decided.
Expected<ir::Module> maskWhere(const ir::Module& module, const analysis::GridsUsed& grids, GridSide query,
                               GridSide key);

} // namespace attnc::passes
