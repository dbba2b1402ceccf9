#include "api/modless_kernel.h"

#include "api/compiler_access.h"
#include "api/mod_impl.h"
#include "plan/assemble.h"
#include "support/try.h"

namespace attnc {

Expected<jit::CompileJob> modlessJob(const plan::Stage& stage, const std::string& arch, const std::string& label) {
  ATTNC_TRY_AS(mod, kernelModOf(Mod::identity(), passes::Algebra{}));
  KernelSource source = plan::assemble(**mod, stage, {.arch = arch});
  return jit::CompileJob{.name = std::move(source.templateName),
                         .source = std::move(source.text),
                         .headers = std::move(source.headers),
                         .options = std::move(source.options),
                         .arch = std::move(source.arch),
                         .entry = stage.entry,
                         .label = label};
}

Expected<jit::LoadedKernel> loadModless(const Compiler& compiler, const plan::Stage& stage, const std::string& arch,
                                        const std::string& label) {
  ATTNC_TRY_AS(job, modlessJob(stage, arch, label));
  ATTNC_TRY_AS(cached, CompilerAccess::compile(compiler, *job));
  const std::vector<char>& cubin = cached->cubin;
  return jit::LoadedKernel::load(
      {.cubin = {cubin.data(), cubin.size()}, .entry = stage.entry, .arch = job->arch, .maxDynamicSharedBytes = 0});
}

} // namespace attnc
