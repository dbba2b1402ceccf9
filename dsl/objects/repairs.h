// The hints of diagnostics that depend on a value: what to write instead.
//
// In: the value that does not fit, and the place. Out: a hint in the words of the mod's author; empty if none helps.
// Not: suggestions for unknown names; see dsl/tracing/suggestions.cpp.
#pragma once

#include "dsl/objects/context.h"

#include <string>
#include <string_view>

namespace attnc::dsl {

/// Returns describe(), and that the GPU computes the value if it does.
std::string describeOrigin(Context& context, Object value);

/// Returns the text of a place for a hint, or `otherwise` if it is long.
std::string shortTextOf(Context& context, Loc loc, const char* otherwise);

/// Reports diag::tracedCondition at the current place, which is that of the condition.
[[noreturn]] void failCondition(Context& context, Object value);

std::string operandRepair(std::string_view op, Object operand);
std::string operandsRepair(std::string_view op, Object left, Object right);
/// Returns "1 dim", "2 dims", "3 indices".
std::string counted(size_t count, const char* one, const char* many);

std::string indexRepair(Context& context, Object base);
std::string callRepair(Context& context, Object callee);
/// Returns what to write instead of syntax that is not part of the language.
std::string syntaxRepair(std::string_view what);
/// Returns `bias: f32[H, KV_LEN]` for a captured tensor.
std::string declarationText(const ir::Module& module, unsigned tensor);
/// Returns `bias[h, kv_idx]` for a captured tensor.
std::string elementText(const ir::Module& module, unsigned tensor);

} // namespace attnc::dsl
