// Which of a text's functions are the mods, and what they return.
#pragma once

#include "dsl/tracing/tracer.h"

namespace attnc::dsl {

/// Executes the text and traces its score_mod and mask_mod into the module: those that the expressions of `picks`
/// yield, where there are any. What is wrong is reported. Returns which functions they are.
std::vector<ModChoice> traceMods(Tracer& tracer, const Ast& ast, llvm::ArrayRef<const Expr*> picks);

/// Warns of captures that the text declares and does not mention again.
void warnOfUnused(Tracer& tracer, const Ast& ast);

} // namespace attnc::dsl
