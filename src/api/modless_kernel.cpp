#include "api/modless_kernel.h"

#include "api/compiler_access.h"
#include "api/mod_impl.h"
#include "plan/assemble.h"
#include "support/try.h"

namespace attnc {

Expected<KernelSource> modlessSource(const plan::Stage& stage, const std::string& arch, const std::string& label) {
  ATTNC_TRY_AS(mod, kernelModOf(Mod::identity(), passes::Algebra{}));
  KernelSource source = plan::assemble(**mod, stage, {.arch = arch});
  source.modKey.clear();
  source.label = label;
  return source;
}

Expected<jit::LoadedKernel> loadModless(const Compiler& compiler, const plan::Stage& stage, const std::string& arch,
                                        const std::string& label) {
  ATTNC_TRY_AS(source, modlessSource(stage, arch, label));
  ATTNC_TRY_AS(cached, CompilerAccess::compile(compiler, *source));
  const std::vector<char>& cubin = cached->cubin;
  return jit::LoadedKernel::load(
      {.cubin = {cubin.data(), cubin.size()}, .entry = stage.entry, .arch = source->arch, .maxDynamicSharedBytes = 0});
}

} // namespace attnc
