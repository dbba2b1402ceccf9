// What backward families share beside their walks (algo/gradients.cuh): delta, a number a row of q, before them; and rows of q
// that f32 cannot normalise by their lse, behind them.
#pragma once

#include "plan/family.h"

namespace attnc::plan {

/// BackwardParams of a launch.
BackwardParams backwardParams(const LaunchOperands& operands, const WorkspaceView& workspace);
Expected<ParameterBlock> backwardBlock(const Stage& stage, const LaunchOperands& operands, const Device& device,
                                       const WorkspaceView& workspace);

/// Adds the stage that computes delta and the workspace that holds it, unless the plan has them. Returns the stage.
Stage& addDelta(Plan& plan, const Request& request);

/// The workspace that holds sums of rows.
WorkspaceUse rowSums();

/// Adds the stage of rows whose lse is large, behind all that write gradients: templates/backward_large.cu.
void addLargeRows(Plan& plan, const Request& request);

} // namespace attnc::plan
