// Gradients of captures in backward plans, the same for all families: stages behind those that compute d_q, d_k and
// d_v.
#pragma once

#include "plan/family.h"

namespace attnc::plan {

/// Adds stages and workspace for the captures that the options name; nothing if they name none. `plan`: of a backward
/// family, otherwise complete.
void addCaptureGradients(Plan& plan, const Request& request, Family family);

/// Checks the tensors that gradients of captures go to, and settles how they are summed. `outputs`: BackwardOutputs's;
/// with `launches` false, tensors may be missing, and those that are not dense f32 are assumed. `module`: of the plan.
/// Errors are Blame::Environment and name the tensor.
Status addCaptureOutputs(LaunchOperands& operands, const Plan& plan, const ir::Module& module, const Captures* captures,
                         const Captures* outputs, bool launches);

} // namespace attnc::plan
