// Rounding to e4m3 on the CPU, by the formula of templates/quantise.cu and in its order of operations.
#pragma once

#include "attnc/quantise.h"

namespace attnc::reference {

/// Fills `out`, and `scales` unless they are given. Arguments fit each other, as Quantiser::launch() asks, in host
/// memory.
void quantise(const TensorView& x, const TensorView& out, const TensorView& scales, const QuantiseOptions& options);

} // namespace attnc::reference
