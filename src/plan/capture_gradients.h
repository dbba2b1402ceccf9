// Gradients of captures in backward plans, the same for all families: stages after those that compute dq, dk and dv.
#pragma once

#include "plan/family.h"

namespace attnc::plan {

/// Adds stages and workspace for the captures that the options name, if any. `plan`: of a backward family, otherwise
/// complete.
void addCaptureGradients(Plan& plan, const Request& request, Family family);

/// Checks the tensors that receive gradients of captures, and decides how these are summed. `outputs`:
/// BackwardOutputs::captures. If `launches` is false, tensors may be missing; missing ones are assumed not to be dense
/// f32. `module`: the plan's. Errors are Blame::Environment and name the tensor.
Status addCaptureOutputs(LaunchOperands& operands, const Plan& plan, const ir::Module& module, const Captures* captures,
                         const Captures* outputs, bool launches);

} // namespace attnc::plan
