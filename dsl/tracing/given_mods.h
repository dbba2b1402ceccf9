// Which functions a text gives to create_block_mask and flex_attention: they are its mod, as FlexAttention takes it.
//
// In: a text whose module has been executed. Out: the distinct mods of its calls. A script makes them in its main part,
// in functions that this calls, or in functions that others are to call: these are executed as far as they can be, with
// arguments that are not known. Not: which of several mods is meant.
#pragma once

#include "dsl/tracing/tracer.h"

namespace attnc::dsl {

/// What one call is given. A function that cannot be evaluated is Deferred.
struct GivenMod {
  std::optional<Object> score, mask; ///< None: not given; nothing: the call does not tell
  Loc at;                            ///< of the call
  const char* callee = "";
};

/// The distinct mods of the calls that the text makes when it is run, else of those in functions that it does not call.
/// `last`: the expression that ends the text, not yet executed; may be null. Reports nothing.
std::vector<GivenMod> givenMods(Tracer& tracer, const Ast& ast, const Expr* last);

/// Whether two functions are the same one, made once or several times.
bool isSameFunction(Object a, Object b);
/// A function as a text names it: `causal`, `and_masks(causal, document)`, `partial(soft_cap)`, `a lambda`.
std::string modName(Object function);
/// Where it is defined; nothing of one that is put together.
std::optional<Loc> definitionOf(Object function);

} // namespace attnc::dsl
