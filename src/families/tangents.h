// Tangents of attention and of its gradients: backward kernels with Feature::Tangents.
#pragma once

#include "families/family.h"

namespace attnc::plan {

/// Returns why the kernels of tangents of a family, Naive, Sm80 or Sm90, do not serve a request with Feature::Tangents.
std::string unservedTangents(const Request& request, Family family);

/// Plans them.
Plan planTangents(const Request& request, Family family);

/// Checks that tensor maps can describe what the Hopper kernels read, and what they store 16 bytes at a time.
Status checkTangentsSm90Layout(const LaunchOperands& operands);

/// Returns the TangentParams of a launch.
TangentParams tangentParams(const LaunchOperands& operands, const WorkspaceView& workspace);

} // namespace attnc::plan
