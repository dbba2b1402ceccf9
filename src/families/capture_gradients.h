// Gradients of captures in backward plans, the same for all families: stages after those that compute dq, dk and dv.
#pragma once

#include "families/family.h"

namespace attnc::plan {

/// Adds the stages that all backward families share, and their workspace: rows with a large lse, and sums of the
/// gradients of captures. Does nothing for other kinds. `plan`: a family's for this request.
void addSharedStages(Plan& plan, const Request& request, Family family);

/// Returns the parameters by which a kernel adds to the gradients of the plan's captures.
void fillCaptureSums(CaptureSum* sums, const LaunchOperands& operands, const WorkspaceView& workspace);

/// Adds the stages that convert the sums for Plan::captures, behind all others.
void addCaptureOutputStages(Plan& plan);

/// Checks the tensors that receive gradients of captures, and decides how these are summed. `outputs`:
/// BackwardOutputs::captures. If `launches` is false, tensors may be missing; missing ones are assumed not to be dense
/// f32. `module`: the plan's. Errors are Blame::Environment and name the tensor.
Status addCaptureOutputs(LaunchOperands& operands, const Plan& plan, const ir::Module& module, const Captures* captures,
                         const Captures* outputs, bool launches);

} // namespace attnc::plan
