// Host code that launches a kernel without attnc.
#pragma once

#include "attnc/kernel.h"
#include "codegen/pack_args.h"
#include "ir/ir.h"
#include "plan/plan.h"

#include <llvm/ADT/ArrayRef.h>

#include <string>
#include <vector>

namespace attnc {

/// Checks that a launcher can be written. Errors (environment) name what is not served.
Status checkLauncher(const plan::Plan& plan);

/// What launchers are written from.
struct LauncherSource {
  const plan::Plan& plan;
  const ir::Module& module;
  std::vector<llvm::ArrayRef<codegen::ArgWord>> slots; ///< by stage
  std::vector<std::string> kernels;                    ///< by stage: names for C++
  std::string name;                                    ///< of the function: "alibi_forward"
  std::string space;                                   ///< the namespace of the kernels
};

/// Returns the declarations of a launcher: the problem, and the functions.
std::string launcherDeclarations(const LauncherSource& source);

/// Returns the whole launcher, for the end of a file with the kernels. Precondition: checkLauncher().
std::string launcherText(const LauncherSource& source);

} // namespace attnc
