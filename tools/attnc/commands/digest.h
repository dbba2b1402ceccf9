// Statistics of a result, printed if it is not written to a file.
#pragma once

#include "commands/result.h"

#include <string>

namespace attnc::cli {

/// Returns lines "out" and "lse", and one for each gradient: shape and dtype; mean, root mean square and largest
/// magnitude. For lse, if there is a softmax: its range, and how many rows are fully masked (lse -inf). Infinities and
/// NaN are counted and excluded from the statistics. Numbers have four digits, so that devices with different rounding
/// print nearly the same. Precondition: out and lse are computed.
std::string digestText(const RunResult& result);
/// Returns the same for programs, by name, with all digits.
JsonReport digestJson(const RunResult& result);

} // namespace attnc::cli
