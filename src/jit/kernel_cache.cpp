#include "jit/kernel_cache.h"

#include "jit/dump.h"
#include "jit/kernel_bytes.h"
#include "jit/nvrtc.h"

#include <fmt/format.h>

namespace attnc::jit {

KernelCache::KernelCache(cache::Options options, std::shared_ptr<KernelCompiler> compiler, std::string dumpDirectory)
    : log(options.log), dumpDirectory(std::move(dumpDirectory)), compiler(compiler),
      cache(std::move(options), std::move(compiler)) {}

Expected<CompileResult> KernelCache::compile(const CompileJob& job, const cache::Digest& content) {
  auto compiled = compiler->compile(job);
  if (compiled)
    log.line(fmt::format("compiled {} for {} in {:.1f} ms: {} registers, {} bytes spilled", job.name, job.arch,
                         compiled->ms, compiled->registers, compiled->spillBytes));
  else
    dumpJob(dumpDirectory, content, job, nullptr, compiled.error().message, log);
  return compiled;
}

Expected<CachedKernel> KernelCache::getOrCompile(const CompileJob& job) {
  if (Status allowed = checkOptions(job); !allowed) return std::move(allowed).error();
  const cache::Digest content = contentOf(job);
  const std::string name = fmt::format("{} {} {}", job.name, job.entry, job.arch);
  auto cached = cache.getOrCompile(content, name, [&]() -> Expected<std::string> {
    auto compiled = compile(job, content);
    if (!compiled) return std::move(compiled).error();
    return encodeResult(*compiled);
  });
  if (!cached) return std::move(cached).error();
  CachedKernel kernel{{}, cached->origin};
  if (auto result = decodeResult(*cached->bytes)) {
    kernel.result = *std::move(result);
  } else { // a sound entry whose bytes are no kernel; a failure of the cache fails no call
    auto compiled = compile(job, content);
    if (!compiled) return std::move(compiled).error();
    kernel = {*std::move(compiled), cache::Origin::Compiled};
  }
  if (kernel.origin != cache::Origin::Memory) dumpJob(dumpDirectory, content, job, &kernel.result, {}, log);
  return kernel;
}

} // namespace attnc::jit
