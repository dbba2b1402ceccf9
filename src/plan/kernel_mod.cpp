#include "plan/kernel_mod.h"

#include <atomic>

namespace attnc::plan {

static std::atomic<int> made = 0;

Expected<KernelMod> makeKernelMod(const ir::Module& module, passes::Algebra algebra) {
  ++made;
  KernelMod mod{module, {}, {}};
  if (Status status = passes::deriveForKernels(mod.module, algebra); !status) return status.error();
  mod.facts = analysis::modFacts(mod.module);
  mod.source = codegen::emitMod(mod.module, mod.facts, module.size());
  return mod;
}

int kernelModsMade() { return made; }

passes::Algebra algebraFor(const KernelOptions& options) {
  const bool isPlain = options.kind == KernelKind::BlockMask || options.family == Family::Naive;
  return isPlain ? passes::Algebra{} : algebraFor(options.dtype);
}

} // namespace attnc::plan
