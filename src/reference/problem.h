// What q, k and v must agree on.
#pragma once

#include "attnc/error.h"
#include "attnc/problem.h"
#include "attnc/tensor.h"

namespace attnc::reference {

/// Returns the extents of the problem that q, k and v pose, with the same checks as attention().
Expected<ProblemShape> problemOf(const TensorView& q, const TensorView& k, const TensorView& v);

} // namespace attnc::reference
