// What to do about tensors of a file that do not fit a launch.
//
// In: q, k and v of the file. Out: a hint for the user; empty if none helps. Not: whether they fit.
#pragma once

#include "problem/host_operands.h"

#include <string>

namespace attnc::cli {

/// Returns how to transpose tensors that look like [batch, length, heads, head_dim]; empty if they do not. It is a
/// guess: k and v have more heads than rows. `isSure`: only if they have more heads than any model.
std::string layoutRepair(const HostTensors& operands, bool isSure);

/// Returns a hint for operands that a check has refused.
std::string operandRepair(const HostTensors& operands);

} // namespace attnc::cli
