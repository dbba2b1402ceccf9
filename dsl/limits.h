// Limits on the text of a mod, each with its own diagnostic. They keep every text from hanging the front end,
// exhausting the stack or filling the memory: a text that reaches every limit still traces in well under a second.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attnc::dsl {

inline constexpr size_t kMaxTextBytes = size_t(1) << 20;
inline constexpr size_t kMaxTokens = size_t(1) << 18;
inline constexpr unsigned kMaxNesting = 200; ///< brackets and operators inside one another, and height of an expression
inline constexpr unsigned kMaxBlocks = 50;   ///< blocks inside one another
inline constexpr unsigned kMaxCallDepth = 48;  ///< calls inside one another
inline constexpr unsigned kMaxEvalDepth = 900; ///< expressions and statements under evaluation, over all calls
inline constexpr uint64_t kMaxSteps = 200'000; ///< evaluation steps of a whole mod, after unrolling
inline constexpr unsigned kMaxRefills = 4;     ///< statements of the module that may use up all steps
inline constexpr uint64_t kDeferralSteps = 20; ///< steps charged for putting an error off
inline constexpr size_t kMaxNodes = 65'536;    ///< values of the IR before any pass
inline constexpr size_t kMaxItems = 4'096;     ///< items of a list, a tuple or a table
inline constexpr size_t kMaxStringBytes = 4'096;
inline constexpr size_t kMaxNumberChars = 512;
inline constexpr size_t kMaxDiagnostics = 20;
inline constexpr size_t kMaxConditions = 64;  ///< conditions of the launch
inline constexpr size_t kMaxTableLookup = 64; ///< elements of a table that a traced index may choose from

} // namespace attnc::dsl
