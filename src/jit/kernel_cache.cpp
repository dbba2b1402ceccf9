#include "jit/kernel_cache.h"

#include "jit/dump.h"
#include "jit/kernel_bytes.h"
#include "jit/nvrtc.h"
#include "jit/orders.h"
#include "jit/ptxas_log.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/StringExtras.h>

namespace attnc::jit {

namespace {

std::string nameOf(const KernelSource& source) {
  return fmt::format("{} {} {}{}{}", source.templateName, source.entry, source.arch, source.label.empty() ? "" : " ",
                     source.label);
}

/// Returns a kernel as the call tells it that took it from disk or a pack.
CompiledKernel asFromDisk(CompiledKernel kernel) {
  kernel.compileMs = 0;
  kernel.fromDisk = true;
  return kernel;
}

/// Returns a log without the lines that tell times.
std::string withoutTimes(const std::string& log) {
  std::vector<llvm::StringRef> kept;
  for (llvm::StringRef line : llvm::split(log, '\n'))
    if (!line.contains("Compile time")) kept.push_back(line);
  return llvm::join(kept, "\n");
}

} // namespace

KernelCache::KernelCache(cache::Options options, std::shared_ptr<KernelCompiler> compiler, std::string dumpDirectory,
                         PackLayers packs)
    : log(options.log), dumpDirectory(std::move(dumpDirectory)), compiler(compiler), packs(std::move(packs)),
      mayCompile(options.mayCompile), cache(std::move(options), std::move(compiler)) {}

Expected<CompiledKernel> KernelCache::compile(const KernelSource& source, const cache::Digest& content) {
  if (!mayCompile)
    return Error::environment(fmt::format("the kernel {} (key {}) is in no pack and in no cache, and compiling is "
                                          "forbidden (ATTNC_NO_COMPILE, CompilerOptions::noCompile)",
                                          nameOf(source), content.hex()),
                              "compile it ahead of time with `attnc pack` (ATTNC_PACK), or allow compiling");
  auto compiled = compileInOrders(*compiler, source);
  if (compiled)
    log.line(fmt::format("compiled {} for {} in {:.1f} ms: {} registers, {} bytes spilled{}{}", source.templateName,
                         source.arch, compiled->compileMs, compiled->registers, compiled->spillBytes,
                         compiled->order ? fmt::format(", in order {}", compiled->order) : "",
                         serialisesProducts(*compiled) ? ", products serialised" : ""));
  else
    dumpSource(dumpDirectory, content, source, nullptr, compiled.error().message, log);
  return compiled;
}

Expected<CompiledKernel> KernelCache::decoded(const cache::CachedBytes& cached, const KernelSource& source,
                                              const cache::Digest& content) {
  std::optional<CompiledKernel> kernel = decodeResult(*cached.bytes);
  // An intact entry whose bytes are not a kernel. A failure of the cache fails no call.
  if (!kernel) return compile(source, content);
  if (cached.origin == cache::Origin::Disk) return asFromDisk(*std::move(kernel));
  if (cached.origin == cache::Origin::Memory) kernel->compileMs = 0;
  return *std::move(kernel);
}

Expected<CompiledKernel> KernelCache::find(const KernelSource& source, const cache::Digest& content) {
  if (packs.named) {
    ATTNC_TRY_AS(found, packs.named->find(content));
    if (*found) return asFromDisk(**std::move(found));
  }
  // The default pack is searched before the compiler is asked for its identity, which takes longer than the rest.
  if (packs.byDefault) {
    if (auto cached = cache.find(content)) return decoded(*cached, source, content);
    ATTNC_TRY_AS(found, packs.byDefault->find(content));
    if (*found) return asFromDisk(**std::move(found));
  }
  const std::string name = fmt::format("{} key={}", nameOf(source), content.hex());
  ATTNC_TRY_AS(cached, cache.getOrCompile(content, name, [&]() -> Expected<std::string> {
    ATTNC_TRY_AS(compiled, compile(source, content));
    return encodeResult(*compiled);
  }));
  return decoded(*cached, source, content);
}

Expected<CompiledKernel> KernelCache::getOrCompile(const KernelSource& source) {
  ATTNC_TRY(checkOptions(source));
  const cache::Digest content = contentOf(source);
  auto kernel = find(source, content);
  if (!kernel) return kernel;
  kernel->entry = source.entry;
  kernel->templateName = source.templateName;
  kernel->dynamicSharedBytes = source.dynamicSharedBytes;
  if (kernel->fromDisk || kernel->compileMs > 0) dumpSource(dumpDirectory, content, source, &*kernel, {}, log);
  return kernel;
}

Expected<cache::PackedValue> KernelCache::packed(const KernelSource& source) {
  ATTNC_TRY_AS(kernel, getOrCompile(source));
  kernel->compileMs = 0; // equal kernels make equal packs
  kernel->log = withoutTimes(kernel->log);
  return cache::PackedValue{contentOf(source), nameOf(source), encodeResult(*kernel)};
}

} // namespace attnc::jit
