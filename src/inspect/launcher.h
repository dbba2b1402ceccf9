// Host code that launches a kernel without attnc: one launch, as numbers.
#pragma once

#include "api/plan_impl.h"
#include "attnc/stages.h"

#include <string>
#include <vector>

namespace attnc {

/// What a launcher is written from.
struct LauncherSource {
  const Mod& mod; ///< derived for the plan
  const plan::Plan& plan;
  const StageMods& mods;
  std::vector<std::string> kernels; ///< by stage: names for C++
  std::string name;                 ///< of the function: "alibi_forward"
  std::string space;                ///< the namespace of the kernels
};

/// Returns the launcher of one launch, for the end of a file with the kernels. Errors (environment): those of a launch
/// whose operands these are.
Expected<std::string> launcherText(const LauncherSource& source, const LaunchShape& shape);

} // namespace attnc
