// What backward families share apart from their walks (algo/gradients.cuh). A stage before them computes delta, one
// number per row of q. A stage after them handles rows of q that f32 cannot normalise by their lse.
#pragma once

#include "families/family.h"

namespace attnc::plan {

/// Returns the BackwardParams of a launch.
BackwardParams backwardParams(const LaunchOperands& operands, const WorkspaceView& workspace);
Expected<ParameterBlock> backwardBlock(const Stage& stage, const LaunchOperands& operands, const Device& device,
                                       const WorkspaceView& workspace);

/// Adds the stage that computes delta and the workspace that holds it, unless the plan has both. Returns the stage.
Stage& addDelta(Plan& plan, const Request& request);

/// Return the workspace uses that hold a number for each row of q: its sum, its delta or the tangent of that.
WorkspaceUse rowSums();
WorkspaceUse deltas(Use use = Use::Delta);

/// Adds the stage for rows whose lse is large (templates/backward_large.cu), after all stages that write gradients.
void addLargeRows(Plan& plan, const Request& request);

} // namespace attnc::plan
