// The second walk of a forward or decode plan, for mods whose weights need lse (passes/two_walks.h). Stages of the
// first find lse, and leave what they write to out to those of the second.
#pragma once

#include "families/family.h"

namespace attnc::plan {

/// Returns the request of the second walk. Precondition: the mod has one.
Request ofSecondWalk(Request request);

/// Adds the stages of the second walk behind those of the first, and their workspace. Does nothing if the mod has none.
void addSecondWalk(Plan& plan, const Request& request);

/// Adds lse to bindings of the mod's module, for the stages of a second walk. Does nothing if the plan has none.
void bindLse(const Plan& plan, ir::Bindings& bindings, const LaunchOperands& operands, const WorkspaceView& workspace);

} // namespace attnc::plan
