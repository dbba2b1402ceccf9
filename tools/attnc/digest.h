// Statistics of a result, printed where it is not written to a file.
#pragma once

#include "result.h"

#include <string>

namespace attnc::cli {

/// Lines "out" and "lse", and one for each gradient: shape and dtype; mean, root mean square and largest magnitude; of
/// lse its range, and how many rows are masked whole (lse -inf). Infinities and NaN are counted and take no part in the
/// statistics. Four digits, so that devices with other rounding print nearly the same. Precondition: out and lse are
/// computed.
std::string digestText(const RunResult& result);

} // namespace attnc::cli
