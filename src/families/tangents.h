// Tangents of attention and of its gradients: backward kernels with Feature::Tangents.
#pragma once

#include "families/family.h"

namespace attnc::plan {

/// Returns why the kernels of tangents of a family, Naive or Sm80, do not serve a request with Feature::Tangents.
std::string unservedTangents(const Request& request, Family family);

/// Plans them.
Plan planTangents(const Request& request, Family family);

/// Returns the TangentParams of a launch.
TangentParams tangentParams(const LaunchOperands& operands, const WorkspaceView& workspace);

} // namespace attnc::plan
