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

/// What the mask says of tokens of which is known whether they are on their grids.
Expected<ir::Module> maskWhere(const ir::Module& module, const analysis::GridsUsed& grids, bool isQueryIn, bool isKeyIn);

} // namespace attnc::passes
