// From mods and options to kernels, through the memory cache, the disk cache and NVRTC.
#include "api/kernel_impl.h"
#include "api/mod_impl.h"
#include "api/options_key.h"
#include "jit/cache_options.h"
#include "jit/current_device.h"
#include "jit/kernel_cache.h"
#include "jit/nvrtc.h"
#include "kernels/assemble.h"
#include "passes/kv_bounds.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

namespace attnc {
namespace {

jit::CompileJob compileJob(const kernels::Assembly& assembly) {
  const KernelSource& source = assembly.source;
  jit::CompileJob job;
  job.name = source.templateName;
  job.source = source.text;
  job.headers = source.headers;
  job.keyedAs = {{"attnc_mod.cuh", assembly.modKey}};
  job.options = source.options;
  job.arch = source.arch;
  job.entry = source.entry;
  return job;
}

CompiledKernel compiledKernel(const jit::CachedKernel& cached, const kernels::Plan& plan) {
  const jit::CompileResult& result = cached.result;
  CompiledKernel kernel;
  kernel.cubin = result.cubin;
  kernel.ptx = result.ptx;
  kernel.log = result.log;
  kernel.registers = result.registers;
  kernel.spillBytes = result.spillBytes;
  kernel.staticSharedBytes = result.staticSharedBytes;
  kernel.dynamicSharedBytes = plan.sharedBytes;
  kernel.advisories = result.advisories;
  kernel.fromDisk = cached.origin == cache::Origin::Disk;
  kernel.compileMs = cached.origin == cache::Origin::Compiled ? result.ms : 0;
  return kernel;
}

cache::Options cacheOptions(jit::Env env, const CompilerOptions& options) {
  if (options.cacheMode) env.cacheMode.clear(); // not read, so not complained of
  cache::Options cache = jit::cacheOptionsFrom(env, options.log);
  if (!options.cacheDirectory.empty()) cache.directory = options.cacheDirectory;
  if (options.cacheMode) switch (*options.cacheMode) {
    case CompilerOptions::CacheMode::ReadWrite: cache.mode = cache::Mode::ReadWrite; break;
    case CompilerOptions::CacheMode::ReadOnly: cache.mode = cache::Mode::ReadOnly; break;
    case CompilerOptions::CacheMode::Off: cache.mode = cache::Mode::Off; break;
    }
  return cache;
}

} // namespace

struct Compiler::Impl {
  jit::Env env;
  jit::KernelCache cache;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const BuiltKernel>> built; // by mod and options
  std::map<std::pair<CUctx_st*, const BuiltKernel*>, std::shared_ptr<const Kernel::Impl>>
      loaded; // by context and kernel

  explicit Impl(const CompilerOptions& options)
      : env(jit::Env::read()),
        cache(cacheOptions(env, options), std::make_shared<jit::Nvrtc>(env, options.nvrtcPath), env.dumpDir) {}

  /// A kernel, and how this call came by it.
  struct Build {
    std::shared_ptr<const BuiltKernel> kernel;
    std::shared_ptr<const CompiledKernel> compiled;
  };

  /// From memory, or assembled and compiled.
  Expected<Build> build(const Mod& mod, const KernelOptions& options);
};

namespace {

struct Chosen {
  Mod mod; ///< with pins applied, and of its values alone
  kernels::Plan plan;
};

Expected<Chosen> choose(const Mod& mod, const KernelOptions& options) {
  Expected<Mod> pinned = options.pins.empty() ? Expected<Mod>(mod) : withPins(mod, options.pins);
  if (!pinned) return pinned.error();
  Expected<Mod> forward = forwardMod(*pinned);
  if (!forward) return forward.error();
  Expected<kernels::Plan> plan = kernels::choosePlan(forward->module(), options);
  if (!plan) return plan.error();
  return Chosen{*std::move(forward), *std::move(plan)};
}

struct Planned {
  Mod mod;
  kernels::Plan plan;
  kernels::Assembly assembly;
};

Expected<Planned> planKernel(const Mod& mod, const KernelOptions& options) {
  Expected<Chosen> chosen = choose(mod, options);
  if (!chosen) return chosen.error();
  kernels::Assembly assembly = kernels::assemble(chosen->mod.module(), chosen->plan);
  chosen->plan.sharedBytes = assembly.sharedBytes;
  return Planned{std::move(chosen->mod), std::move(chosen->plan), std::move(assembly)};
}

/// Fills in the arch of the current context's device where none is named.
Expected<KernelOptions> withArch(KernelOptions options) {
  if (!options.arch.empty()) return options;
  Expected<jit::DeviceInfo> device = jit::currentDevice();
  if (!device) return device.error();
  options.arch = device->arch;
  return options;
}

} // namespace

Expected<Compiler::Impl::Build> Compiler::Impl::build(const Mod& mod, const KernelOptions& options) {
  // Mods of equal IR may name their captures differently, and launches bind by name.
  std::string key = mod.hash() + " " + optionsKey(options);
  for (const CaptureInfo& capture : mod.captures()) key += " " + capture.name;
  {
    std::lock_guard lock(mutex);
    if (auto found = built.find(key); found != built.end())
      return Build{found->second, found->second->compiled};
  }
  Expected<Planned> planned = planKernel(mod, options);
  if (!planned) return planned.error();
  Expected<jit::CachedKernel> cached = cache.getOrCompile(compileJob(planned->assembly));
  if (!cached) return cached.error();
  auto compiled = std::make_shared<const CompiledKernel>(compiledKernel(*cached, planned->plan));
  auto again = compiled;
  if (cached->origin != cache::Origin::Memory) {
    CompiledKernel later = *compiled;
    later.fromDisk = false;
    later.compileMs = 0;
    again = std::make_shared<const CompiledKernel>(std::move(later));
  }
  auto kernel = std::make_shared<const BuiltKernel>(
      BuiltKernel{planned->mod, planned->plan, std::move(planned->assembly.slots), std::move(again)});
  std::lock_guard lock(mutex);
  return Build{built.emplace(key, std::move(kernel)).first->second, std::move(compiled)};
}

Compiler::Compiler(CompilerOptions options) : impl(std::make_shared<Impl>(options)) {}

Expected<KernelSource> Compiler::source(const Mod& mod, const KernelOptions& options) const {
  Expected<KernelOptions> complete = withArch(options);
  if (!complete) return complete.error();
  Expected<Planned> planned = planKernel(mod, *complete);
  if (!planned) return planned.error();
  return std::move(planned->assembly.source);
}

Expected<std::shared_ptr<const CompiledKernel>> Compiler::compile(const Mod& mod, const KernelOptions& options) const {
  Expected<KernelOptions> complete = withArch(options);
  if (!complete) return complete.error();
  auto built = impl->build(mod, *complete);
  if (!built) return built.error();
  return built->compiled;
}

Expected<bool> Compiler::wantsBlockMask(const Mod& mod, KernelOptions options) const {
  options.blockSparse = false;
  Expected<KernelOptions> complete = withArch(options);
  if (!complete) return complete.error();
  Expected<Chosen> chosen = choose(mod, *complete);
  if (!chosen) return chosen.error();
  const ir::Module& module = chosen->mod.module();
  const bool masks = module.maskMod && !(module.isConst(*module.maskMod) && module.integer(*module.maskMod));
  return masks && (chosen->plan.options.family == Family::Naive || !passes::hasBounds(module));
}

Expected<LayoutChoice> Compiler::forLayout(const Mod& mod, KernelOptions options, const ForwardArgs& layout) const {
  if (options.kind != KernelKind::Forward) return Error::environment("forLayout() of a kernel that is no forward one");
  Expected<KernelOptions> complete = withArch(options);
  if (!complete) return complete.error();
  Expected<Chosen> chosen = choose(mod, *complete);
  if (!chosen) return chosen.error();
  if (Status status = checkOperands(layout, chosen->plan.options); !status) return status.error();
  Status fits = chosen->plan.options.family == Family::Sm90 ? checkLayoutSm90(layout) : Status();
  if (fits) return LayoutChoice{std::move(options), {}};
  if (options.family == Family::Sm90) return fits.error();
  options.family = Family::Sm80;
  return LayoutChoice{std::move(options), fits.error().message};
}

Expected<Kernel> Compiler::load(const Mod& mod, const KernelOptions& options) const {
  Expected<KernelOptions> complete = withArch(options);
  if (!complete) return complete.error();
  auto built = impl->build(mod, *complete);
  if (!built) return built.error();
  Expected<CUctx_st*> context = jit::currentContext();
  if (!context) return context.error();
  const std::pair key{*context, built->kernel.get()};
  {
    std::lock_guard lock(impl->mutex);
    if (auto found = impl->loaded.find(key); found != impl->loaded.end()) return Kernel(found->second);
  }
  const BuiltKernel& kernel = *built->kernel;
  const std::vector<char>& cubin = kernel.compiled->cubin;
  auto loaded = jit::LoadedKernel::load({.cubin = {cubin.data(), cubin.size()},
                                         .entry = kernel.plan.entry,
                                         .arch = kernel.plan.options.arch,
                                         .maxDynamicSharedBytes = kernel.plan.sharedBytes,
                                         .variable = codegen::readsTensors(kernel.slots) ? codegen::kZeroVariable : ""});
  if (!loaded) return loaded.error();
  Expected<jit::DeviceInfo> device = jit::currentDevice();
  if (!device) return device.error();
  Kernel::Impl held{
      built->kernel, built->compiled, *std::move(loaded), {device->multiprocessors, device->l2Bytes}};
  auto first = std::make_shared<const Kernel::Impl>(held);
  held.compiled = kernel.compiled;
  std::lock_guard lock(impl->mutex);
  impl->loaded.emplace(key, std::make_shared<const Kernel::Impl>(std::move(held)));
  return Kernel(std::move(first));
}

} // namespace attnc
