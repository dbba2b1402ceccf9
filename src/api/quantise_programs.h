// The programs that round tensors to E4M3 and their parameters, for launches, packs and tests.
#pragma once

#include "attnc/kernel.h"
#include "attnc/quantise.h"
#include "launch/launch_operands.h"

#include <string>

namespace attnc {

inline constexpr int kQuantiseWarps = 8;

/// Returns the program whose cubin has attnc_quantise and attnc_quantise_scales. `embeds`: whether they apply a rotary
/// embedding. `dtype`: that of the tensors that are rounded.
Expected<KernelSource> quantiseProgram(DType dtype, int headDim, bool embeds, const std::string& arch);

/// Returns the parameters of a launch. Errors: alignment of cosSin. Arguments otherwise fit each other.
Expected<QuantiseParams> quantiseParams(const TensorView& x, const TensorView& out, const TensorView& scales,
                                        const QuantiseOptions& options);

} // namespace attnc
