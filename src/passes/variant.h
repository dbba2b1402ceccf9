// Variants of a mod that chooses between mods: the modules of these, each by itself.
#pragma once

#include "analysis/variants.h"
#include "attnc/error.h"
#include "ir/ir.h"

namespace attnc::passes {

/// Returns the module of variant `i`, simplified. It has the same declarations and outputs.
Expected<ir::Module> variantOf(const ir::Module& module, const analysis::Variants& variants, size_t i);

/// Adds the output `variant`: which variant a head has, or -1 if nothing of it lives.
void addVariant(ir::Module& module, const analysis::Variants& variants);

} // namespace attnc::passes
