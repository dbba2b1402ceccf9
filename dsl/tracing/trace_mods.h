// Decides which of a text's functions are the mods, and traces them.
#pragma once

#include "dsl/tracing/tracer.h"

namespace attnc::dsl {

/// Executes the text and traces its score_mod and mask_mod into the module. If there are `picks`, these expressions
/// yield the mods. Reports errors. Returns which functions were taken.
std::vector<ModChoice> traceMods(Tracer& tracer, const Ast& ast, llvm::ArrayRef<const Expr*> picks);

/// Warns of captures that the text declares but never uses.
void warnOfUnused(Tracer& tracer, const Ast& ast);

} // namespace attnc::dsl
