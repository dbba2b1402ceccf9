// Numbers into the element formats of tensors: the counterpart of ir/element.h, which reads them.
#pragma once

#include "attnc/tensor.h"

#include <cstdint>

namespace attnc::reference {

/// Rounds once, to nearest with ties to even; too large a number gives an infinity, NaN stays NaN.
uint16_t toBf16(double value);
uint16_t toF16(double value);

/// Writes `value` as the element `offset` elements after `data`, which is host memory. Floats round as above;
/// `dtype` F32, F16 or BF16. Integers and bools take the integer nearest to zero (precondition: it fits).
void writeElement(void* data, DType dtype, int64_t offset, double value);

} // namespace attnc::reference
