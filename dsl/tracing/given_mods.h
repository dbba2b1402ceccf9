// Finds the functions that a text gives to create_block_mask and flex_attention. They are its mod, as in FlexAttention.
//
// In: a text whose module has been executed. Out: the distinct mods of its calls. A script makes these calls in its
// main part, in functions that it calls, or in functions meant for others to call. These are executed as far as
// possible, with unknown arguments. Not: which of several mods is meant.
#pragma once

#include "dsl/tracing/tracer.h"

namespace attnc::dsl {

/// The functions that one call is given. A function that cannot be evaluated is Deferred.
struct GivenMod {
  std::optional<Object> score = {}, mask = {}, prob = {}, sink = {},
                        weight = {}; ///< None: not given; nullopt: unknown from the call
  Loc at = {};                       ///< place of the call
  const char* callee = "";

  /// Returns the first function.
  const std::optional<Object>& only() const { return score ? score : mask ? mask : prob ? prob : sink ? sink : weight; }
};

/// Returns the distinct mods of the calls that the text makes when it runs; without any, of the calls in functions that
/// it does not call. `last` is the expression that ends the text, not yet executed; may be null. Reports nothing.
std::vector<GivenMod> givenMods(Tracer& tracer, const Ast& ast, const Expr* last);
/// Returns the distinct functions of this name that any call of the text gives, each as a mod. Reports nothing.
std::vector<GivenMod> givenFunctions(Tracer& tracer, const Ast& ast, llvm::StringRef name);

/// Whether two functions are the same one, made once or several times.
bool isSameFunction(Object a, Object b);
/// Returns a function's name as the text writes it: `causal`, `and_masks(causal, document)`, `partial(soft_cap)`, `a
/// lambda`.
std::string modName(Object function);
/// Returns where the function is defined; nullopt for a composed one.
std::optional<Loc> definitionOf(Object function);

} // namespace attnc::dsl
