// Which of a text's functions are the mods, and what they return.
#pragma once

#include "dsl/tracing/tracer.h"

namespace attnc::dsl {

/// Executes the text and traces its score_mod and mask_mod into the module: those that the expressions of `picks`
/// yield, where there are any. What is wrong is reported.
void traceMods(Tracer& tracer, const Ast& ast, llvm::ArrayRef<const Expr*> picks);

} // namespace attnc::dsl
