// A result in a few lines, for who does not want it as a file.
#pragma once

#include "result.h"

#include <string>

namespace attnc::cli {

/// Lines "out" and "lse": shape and dtype; mean, root mean square and largest magnitude of out; range of lse, and how
/// many rows are masked whole (lse -inf). What is not finite is counted and left out. Four digits, which the rounding
/// of another device does not change much. Precondition: out and lse are computed.
std::string digestText(const RunResult& result);

} // namespace attnc::cli
