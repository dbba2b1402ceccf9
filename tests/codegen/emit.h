// Derives, analyses and writes a module as the compiler does.
#pragma once

#include "codegen/mod_source.h"
#include "passes/derive.h"

#include <stdexcept>

namespace attnc::test {

/// Returns the module with everything that kernels of this algebra need.
inline ir::Module derived(ir::Module module, passes::Algebra algebra = {}) {
  if (Status ok = passes::deriveForKernels(module, algebra); !ok) throw std::runtime_error(ok.error().message);
  return module;
}

inline codegen::ModSource emitMod(const ir::Module& module, passes::Algebra algebra = {}) {
  const ir::Module all = derived(module, algebra);
  return codegen::emitMod(all, analysis::modFacts(all), module.size());
}

} // namespace attnc::test
