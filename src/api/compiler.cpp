// From mods and options to kernels, through the memory cache, the disk cache and NVRTC.
#include "attnc/compiler.h"

#include "api/check_values.h"
#include "api/compiler_access.h"
#include "api/compiler_impl.h"
#include "api/kernel_label.h"
#include "api/mod_impl.h"
#include "api/options_key.h"
#include "api/own_stack.h"
#include "api/pack_maker.h"
#include "jit/cache_options.h"
#include "jit/current_device.h"
#include "jit/kernel_cache.h"
#include "jit/nvrtc.h"
#include "launch/kernel_options.h"
#include "passes/gradient_stops.h"
#include "plan/arch.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <future>

namespace attnc {
namespace {

/// Returns the kernel as it will come from memory next time.
std::shared_ptr<const CompiledKernel> fromMemory(const std::shared_ptr<const CompiledKernel>& compiled) {
  if (!compiled->fromDisk && compiled->compileMs == 0) return compiled;
  CompiledKernel later = *compiled;
  later.fromDisk = false;
  later.compileMs = 0;
  return std::make_shared<const CompiledKernel>(std::move(later));
}

cache::Options cacheOptions(jit::Env env, const CompilerOptions& options) {
  if (options.cacheMode) env.cacheMode.clear(); // not read, so not reported
  cache::Options cache = jit::cacheOptionsFrom(env, options.log);
  if (!options.cacheDirectory.empty()) cache.directory = options.cacheDirectory;
  if (options.cacheMode) switch (*options.cacheMode) {
    case CompilerOptions::CacheMode::ReadWrite: cache.mode = cache::Mode::ReadWrite; break;
    case CompilerOptions::CacheMode::ReadOnly: cache.mode = cache::Mode::ReadOnly; break;
    case CompilerOptions::CacheMode::Off: cache.mode = cache::Mode::Off; break;
    }
  if (options.noCompile) cache.mayCompile = false;
  return cache;
}

std::vector<std::string> packPaths(const jit::Env& env, const CompilerOptions& options) {
  std::vector<std::string> paths = options.packs;
  for (std::string& path : jit::splitPaths(env.packs)) paths.push_back(std::move(path));
  return paths;
}

int64_t maxWorkFrom(const CompilerOptions& options, const jit::Env& env, const cache::Log& log) {
  if (options.maxWork > 0) return options.maxWork;
  if (env.maxWork.empty()) return kDefaultMaxWork;
  int64_t value = 0;
  const char* end = env.maxWork.data() + env.maxWork.size();
  const auto [rest, failure] = std::from_chars(env.maxWork.data(), end, value);
  if (failure == std::errc() && rest == end && value > 0) return value;
  log.warn(fmt::format("ATTNC_MAX_WORK is `{}`, no number above 0; {} is used", env.maxWork, kDefaultMaxWork));
  return kDefaultMaxWork;
}

/// Returns the key of a plan's machine code and of how a launch fills its parameters.
std::string codeKey(const Plan& plan) {
  const PlanAccess::Impl& of = PlanAccess::of(plan);
  return keyOf(of.given) + " " + optionsKey(of.plan.options);
}

} // namespace

Expected<KernelOptions> withArch(KernelOptions options) {
  options = plan::completed(std::move(options)); // loads that differ in what their kind does not read share a kernel
  options.arch = plan::canonicalArch(options.arch);
  if (!options.arch.empty()) return options;
  ATTNC_TRY_AS(device, jit::currentDevice());
  options.arch = device->arch;
  return options;
}

KernelOptions blockMaskOptions(const KernelOptions& options) {
  KernelOptions builder{.kind = KernelKind::BlockMask,
                        .arch = options.arch,
                        .maskByBoxes = options.maskByBoxes,
                        .columnLists = options.columnLists,
                        .pins = options.pins};
  if (options.offsets == QueryOffsets::None) return builder; // lists are of all rows and columns
  builder.features = options.features & Features{Feature::Lengths, Feature::Ragged};
  builder.offsets = options.offsets;
  builder.pageSize = builder.features.has(Feature::Ragged) ? options.pageSize : 0;
  return builder;
}

Compiler::Impl::Impl(const CompilerOptions& options)
    : env(jit::Env::read()), log(env.log, options.log),
      packs(std::make_shared<jit::Packs>(packPaths(env, options), packMaker, log)),
      cache(cacheOptions(env, options), std::make_shared<jit::Nvrtc>(env, options.nvrtcPath), env.dumpDir,
            {packs, std::make_shared<jit::Packs>(jit::findDefaultPack(env), packMaker, log)}),
      maxWork(maxWorkFrom(options, env, log)), looksUpTuned(options.tuned.value_or(env.tuned != "0")),
      tunedDevice(options.tunedDevice), tuned(cache, log) {}

Expected<Mod> Compiler::Impl::derived(const Mod& mod, const KernelOptions& options) {
  const bool isBackward = options.kind == KernelKind::Backward;
  const passes::SequenceForm sequences = sequenceForm(options);
  const bool isAsItIs = sequences.isPlain() && !(keepsMasks(options) && mod.module().liftsMasks);
  if (options.pins.empty() && !isBackward && isAsItIs && !passes::hasGradientStops(mod.module())) return mod;
  std::string key = keyOf(mod) + (isBackward ? " backward" : "") + (keepsMasks(options) ? " masked by score" : "");
  if (!sequences.isPlain())
    key += fmt::format(" sequences {} {} {} {}", sequences.lengths, int(sequences.offsets), sequences.ragged,
                       sequences.pages);
  for (const auto& [name, value] : options.pins) key += fmt::format(" {}={}", name, value);
  if (isBackward)
    for (const std::string& name : options.gradients) key += " d_" + name;
  if (isBackward && options.features.has(Feature::Tangents)) key += " tangents";
  if (isBackward && options.features.has(Feature::Reductions)) key += " outputs";
  {
    std::lock_guard lock(mutex);
    if (auto found = derivedMods.find(key); found != derivedMods.end()) return found->second;
  }
  Expected<Mod> made = derive(mod, options);
  if (!made) return made;
  std::lock_guard lock(mutex);
  return derivedMods.emplace(key, *made).first->second;
}

Expected<Plan> Compiler::Impl::planFor(const Mod& mod, const KernelOptions& options) {
  return onOwnStack([&]() -> Expected<Plan> {
    ATTNC_TRY_AS(made, derived(mod, options));
    ATTNC_TRY_AS(plan, planned(mod, *std::move(made), options, maxWork));
    ATTNC_TRY(PlanAccess::of(*plan).stageMods()); // as sources() and compile() write them
    return plan;
  });
}

Expected<CompiledStages> Compiler::Impl::build(const Plan& plan) {
  const std::string key = codeKey(plan);
  {
    std::lock_guard lock(mutex);
    if (auto found = built.find(key); found != built.end()) return found->second;
  }
  ATTNC_TRY_AS(sources, plan.sources());
  CompiledStages compiled, later;
  // The first program compiles on this thread, each other one on its own: all at once, so that the longest waits for
  // none.
  std::vector<std::future<Expected<CompiledKernel>>> programs;
  for (KernelSource& source : *sources) {
    const auto launch = programs.empty() ? std::launch::deferred : std::launch::async;
    programs.push_back(std::async(
        launch, [this, source = std::move(source)] { return onOwnStack([&] { return cache.getOrCompile(source); }); }));
  }
  for (size_t i = 0; i < programs.size(); ++i) {
    ATTNC_TRY_AS(kernel, programs[i].get());
    compiled.push_back(std::make_shared<const CompiledKernel>(*std::move(kernel)));
    later.push_back(fromMemory(compiled.back()));
  }
  std::lock_guard lock(mutex);
  built.emplace(key, std::move(later));
  return compiled;
}

std::future<Expected<CompiledStages>> Compiler::Impl::building(const Plan& plan) {
  std::lock_guard lock(mutex);
  const auto launch = built.count(codeKey(plan)) ? std::launch::deferred : std::launch::async;
  return std::async(launch, [this, plan] { return build(plan); });
}

bool Compiler::Impl::isLoaded(const Plan& plan) {
  const auto context = jit::currentContext();
  std::lock_guard lock(mutex);
  return context && loaded.count({*context, codeKey(plan)});
}

Expected<std::shared_ptr<const Kernel::Impl>> Compiler::Impl::load(const Plan& plan,
                                                                   std::future<Expected<CompiledStages>> building) {
  ATTNC_TRY_AS(context, jit::currentContext());
  const std::pair key{*context, codeKey(plan)};
  {
    std::lock_guard lock(mutex);
    if (auto found = loaded.find(key); found != loaded.end()) return found->second;
  }
  const PlanAccess::Impl& of = PlanAccess::of(plan);
  ATTNC_TRY_AS(compiled, building.valid() ? building.get() : build(plan));
  ATTNC_TRY_AS(mods, onOwnStack([&] { return of.stageMods(); }));
  Kernel::Impl held{plan, *std::move(mods), *std::move(compiled), {}, {}};
  for (size_t i = 0; i < of.plan.stages.size(); ++i) {
    const std::vector<char>& cubin = held.compiled[i]->cubin;
    ATTNC_TRY_AS(kernel,
                 jit::LoadedKernel::load(
                     {.cubin = {cubin.data(), cubin.size()},
                      .entry = of.plan.stages[i].entry,
                      .arch = plan::machineArch(of.plan.options.arch),
                      .maxDynamicSharedBytes = of.plan.stages[i].config.sharedBytes,
                      .variable = codegen::readsTensors(held.mods[i]->source.slots) ? codegen::kZeroVariable : ""}));
    held.stages.push_back(*std::move(kernel));
  }
  ATTNC_TRY_AS(device, jit::currentDevice());
  held.device = {device->multiprocessors, device->l2Bytes};
  held.checks = asksForChecks(env);
  auto first = std::make_shared<const Kernel::Impl>(held);
  for (auto& stage : held.compiled) stage = fromMemory(stage);
  std::lock_guard lock(mutex);
  loaded.emplace(key, std::make_shared<const Kernel::Impl>(std::move(held)));
  return first;
}

Compiler::Compiler(CompilerOptions options) : impl(std::make_shared<Impl>(options)) {}

Expected<Plan> Compiler::plan(const Mod& mod, const KernelOptions& options) const {
  ATTNC_TRY_AS(complete, withArch(options));
  return impl->planFor(mod, *complete);
}

Expected<CompiledStages> Compiler::compile(const Plan& plan) const { return impl->build(plan); }

/// Checks that a plan is for a kernel of these kinds.
static Status checkKind(const Plan& plan, std::initializer_list<KernelKind> kinds) {
  const KernelKind kind = plan.options().kind;
  if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return {};
  return Error::environment(fmt::format("the plan is for a {} kernel, and a {} kernel is asked for", kindName(kind),
                                        kindName(*kinds.begin())));
}

Expected<ForwardKernel> Compiler::loadForward(const Plan& plan) const {
  ATTNC_TRY(checkKind(plan, {KernelKind::Forward, KernelKind::Decode}));
  ATTNC_TRY_AS(loaded, impl->load(plan));
  return ForwardKernel(*std::move(loaded));
}

Expected<BackwardKernel> Compiler::loadBackward(const Plan& plan) const {
  ATTNC_TRY(checkKind(plan, {KernelKind::Backward}));
  ATTNC_TRY_AS(loaded, impl->load(plan));
  return BackwardKernel(*std::move(loaded));
}

Expected<BlockMaskKernel> CompilerAccess::loadBlockMask(const Compiler& compiler, const Plan& plan,
                                                        std::future<Expected<CompiledStages>> compiled) {
  ATTNC_TRY_AS(loaded, compiler.impl->load(plan, std::move(compiled)));
  return BlockMaskKernel(*std::move(loaded));
}

Expected<CompiledKernel> CompilerAccess::compile(const Compiler& compiler, const KernelSource& source) {
  return onOwnStack([&] { return compiler.impl->compileProgram(source); });
}

} // namespace attnc
