// Tangents of attention and of its gradients: backward kernels with Feature::Tangents.
#pragma once

#include "families/family.h"

namespace attnc::plan {

/// Returns why the kernels of tangents of a family, Naive, Sm80 or Sm90, do not serve a request with Feature::Tangents.
std::string unservedTangents(const Request& request, Family family);

/// Plans them.
Plan planTangents(const Request& request, Family family);

/// Checks that tensor maps can describe the tangents that Hopper's kernels read, and rows that they store.
Status checkTangentsSm90Layout(const LaunchOperands::Tangents& tangents);

/// Returns the TangentParams of a launch.
TangentParams tangentParams(const LaunchOperands& operands, const WorkspaceView& workspace);

} // namespace attnc::plan
