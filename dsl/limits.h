// Limits on the text of a mod, each with a diagnostic of its own. With them no text can hang the front end, exhaust the
// stack or fill the memory: one that reaches every limit still traces in well under a second.
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
inline constexpr unsigned kMaxRefills = 4;     ///< statements of the module that may use up these steps
inline constexpr uint64_t kDeferralSteps = 20; ///< what it costs to put an error off
inline constexpr size_t kMaxNodes = 65'536;    ///< values of the IR before any pass
inline constexpr size_t kMaxItems = 4'096;     ///< of a list, a tuple or a small array
inline constexpr size_t kMaxStringBytes = 4'096;
inline constexpr size_t kMaxNumberChars = 512;
inline constexpr size_t kMaxDiagnostics = 20;
inline constexpr size_t kMaxConditions = 64;  ///< that a mod sets for its launches
inline constexpr size_t kMaxTableLookup = 64; ///< elements of a small array that a traced index may choose from

} // namespace attnc::dsl
