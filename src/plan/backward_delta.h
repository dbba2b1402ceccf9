// What all backward families but `naive` begin with: delta, a number a row of q (templates/backward_delta.cu).
#pragma once

#include "plan/family.h"

namespace attnc::plan {

/// BackwardParams of a launch, with delta in the workspace.
Expected<ParameterBlock> backwardBlock(const Stage& stage, const LaunchOperands& operands, const Device& device,
                                       const WorkspaceView& workspace);

/// Adds the stage that computes delta and the workspace that holds it, unless the plan has them. Returns the stage.
Stage& addDelta(Plan& plan, const Request& request);

} // namespace attnc::plan
