// What a compiler makes of a mod and options, in one call.
#pragma once

#include "attnc/compiler.h"
#include "helpers/take.h"
#include "support/try.h"

#include <string>
#include <vector>

namespace attnc::test {

inline Expected<std::vector<KernelSource>> sourcesOf(const Compiler& compiler, const Mod& mod,
                                                     const KernelOptions& options) {
  ATTNC_TRY_AS(plan, compiler.plan(mod, options));
  return plan->sources();
}

inline Expected<CompiledStages> compiledOf(const Compiler& compiler, const Mod& mod, const KernelOptions& options) {
  ATTNC_TRY_AS(plan, compiler.plan(mod, options));
  return compiler.compile(*plan);
}

inline Expected<std::vector<std::string>> tilesOf(const Compiler& compiler, const Mod& mod, KernelOptions options) {
  options.tile.clear();
  ATTNC_TRY_AS(plan, compiler.plan(mod, options));
  return plan->tiles();
}

inline Expected<bool> gainsFromBlockMask(const Compiler& compiler, const Mod& mod, KernelOptions options) {
  options.blockSparse = false;
  ATTNC_TRY_AS(plan, compiler.plan(mod, options));
  return plan->gainsFromBlockMask();
}

inline Expected<ForwardKernel> loadForward(const Compiler& compiler, const Mod& mod, KernelOptions options) {
  if (options.kind != KernelKind::Decode) options.kind = KernelKind::Forward;
  options.gradients.clear();
  ATTNC_TRY_AS(plan, compiler.plan(mod, options));
  return compiler.loadForward(*plan);
}

inline Expected<BackwardKernel> loadBackward(const Compiler& compiler, const Mod& mod, KernelOptions options) {
  options.kind = KernelKind::Backward;
  ATTNC_TRY_AS(plan, compiler.plan(mod, options));
  return compiler.loadBackward(*plan);
}

} // namespace attnc::test
