// Operands of a forward launch, checked and turned into kernel parameters. Pure host code: no GPU is touched.
#pragma once

#include "attnc/kernel.h"
#include "templates/params.cuh"

namespace attnc {

/// Checks q, k, v and out against each other and against what the kernel is compiled for: ranks, dtypes, extents, last
/// strides; addresses are not looked at. Errors and `options` as below.
Status checkOperands(const ForwardArgs& args, const KernelOptions& options);

/// Strides of a [batch, heads, rows, head_dim] tensor; those of extents that are never stepped over do not matter and
/// become 0.
Strides stridesOf(const TensorView& tensor);

/// Checks shapes, dtypes, strides and the block mask against what the kernel was compiled for, and fills the
/// parameters. Errors are Blame::Environment and name the tensor. `options` are those of the plan (family, headDimV
/// filled in).
Expected<ForwardParams> makeForwardParams(const ForwardArgs& args, const KernelOptions& options);

/// The extents that the mod sees. Precondition: makeForwardParams accepted `args`.
ProblemShape problemShape(const ForwardArgs& args);

/// Lengths beyond this would not be exact as f32 indices (templates/mod/contract.cuh).
constexpr int64_t kMaxLength = int64_t(1) << 24;

} // namespace attnc
