#include "jit/cache.h"

#include "jit/cache_memory.h"
#include "jit/dump.h"
#include "jit/fork_guard.h"
#include "jit/nvrtc.h"

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <condition_variable>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>

namespace attnc::jit {

namespace {

// Stands in for the identity of a compiler that is not there.
constexpr char kNoCompiler[] = "none";

std::string defaultDirectory(const Env& env) {
  // XDG: a relative path is to be ignored.
  if (!env.xdgCacheHome.empty() && env.xdgCacheHome[0] == '/') return env.xdgCacheHome + "/attnc";
  if (!env.home.empty() && env.home[0] == '/') return env.home + "/.cache/attnc";
  return {};
}

// "500", "64K", "200M", "2G"; nullopt for anything else.
std::optional<uint64_t> parseBytes(const std::string& text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc()) return std::nullopt;
  std::string_view suffix(rest, size_t(end - rest));
  int shift = suffix.empty() ? 0 : suffix == "K" ? 10 : suffix == "M" ? 20 : suffix == "G" ? 30 : -1;
  if (shift < 0 || value > (std::numeric_limits<uint64_t>::max() >> shift)) return std::nullopt;
  return value << shift;
}

// Fixed now: a later chdir() must not make the process load code from elsewhere.
std::string absolutePath(const std::string& path) {
  if (path.empty()) return {};
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? std::string() : absolute.lexically_normal().string();
}

} // namespace

CacheOptions CacheOptions::fromEnv(const Env& env, LogSink sink) {
  CacheOptions options;
  options.log = Log(env.log, std::move(sink));
  options.dumpDirectory = env.dumpDir;
  options.directory = env.cacheDir.empty() ? defaultDirectory(env) : env.cacheDir;
  options.readOnlyDirectories = splitPaths(env.cacheReadOnlyDirs);
  if (env.cacheMode == "ro")
    options.mode = CacheMode::ReadOnly;
  else if (env.cacheMode == "off")
    options.mode = CacheMode::Off;
  else if (!env.cacheMode.empty() && env.cacheMode != "rw")
    options.log.warn(fmt::format("ATTNC_CACHE_MODE is `{}`, none of rw, ro, off; rw is used", env.cacheMode));
  if (auto bytes = parseBytes(env.cacheMaxBytes))
    options.maxBytes = *bytes;
  else if (!env.cacheMaxBytes.empty())
    options.log.warn(fmt::format("ATTNC_CACHE_MAX_BYTES is `{}`, not a size such as 500M or 2G; 1G is used", env.cacheMaxBytes));
  return options;
}

/// One job in the making. Guarded by lockForkSafe().
struct Cache::Flight {
  uint64_t generation = forkGeneration();
  bool done = false;
  std::optional<Expected<CachedKernel>> outcome;
  std::condition_variable landed;
};

struct Cache::Impl {
  Impl(CacheOptions given, std::shared_ptr<KernelCompiler> compiler, std::shared_ptr<FileOps> ops)
      : options(std::move(given)), compiler(std::move(compiler)), memory(options.memoryEntries) {
    if (options.mode == CacheMode::Off) return;
    auto add = [&](const std::string& path, CacheDirectory::Access access, CacheDirectory::Layer layer) {
      std::string absolute = absolutePath(path);
      if (!absolute.empty())
        layers.push_back(std::make_unique<CacheDirectory>(ops, absolute, access, layer, options.log));
    };
    bool writes = options.mode == CacheMode::ReadWrite;
    using Access = CacheDirectory::Access;
    using Layer = CacheDirectory::Layer;
    add(options.directory, writes ? Access::ReadWrite : Access::ReadOnly, Layer::User);
    if (!layers.empty() && writes) {
      user = layers.front().get();
      pruner = std::make_unique<CachePruner>(*user, options.maxBytes);
    }
    for (const std::string& path : options.readOnlyDirectories)
      add(path, Access::ReadOnly, Layer::System);
  }

  Expected<CachedKernel> flyOrWait(const CompileJob& job, const Digest& key, const std::string* identity);
  Expected<CachedKernel> fetch(const CompileJob& job, const Digest& key, const std::string* identity);
  Expected<CachedKernel> compile(const CompileJob& job, const Digest& key, const std::string* identity);
  std::shared_ptr<const CompileResult> findOnDisk(const Digest& key);
  std::shared_ptr<const CompileResult> findWithoutCompiler(const CompileJob& job);
  std::shared_ptr<const CompileResult> findOfAnyCompiler(const CompileJob& job);
  std::optional<std::string> compilerIdentity();

  CacheOptions options;
  std::shared_ptr<KernelCompiler> compiler;
  std::vector<std::unique_ptr<CacheDirectory>> layers;
  CacheDirectory* user = nullptr; ///< the writable layer, if any
  std::unique_ptr<CachePruner> pruner;

  // Guarded by lockForkSafe().
  CacheMemory memory;
  std::map<Digest, std::shared_ptr<Flight>> flights;
  std::optional<std::string> identity;
  bool askedInVain = false; ///< there was no compiler to name itself

  std::atomic<int64_t> memoryHits{0}, diskHits{0}, compiles{0};
};

std::optional<std::string> Cache::Impl::compilerIdentity() {
  {
    auto lock = lockForkSafe();
    if (identity) return identity;
  }
  // Without a disk all kernels are of this process's compiler.
  std::optional<std::string> found = layers.empty() ? std::optional<std::string>("any") : std::nullopt;
  std::optional<std::string> stamp = found ? std::nullopt : compiler->stamp();
  for (size_t i = 0; i < layers.size() && stamp && !found; ++i)
    found = layers[i]->compilerIdentity(*stamp);
  if (!found) {
    auto asked = compiler->identity();
    if (!asked) {
      auto lock = lockForkSafe();
      askedInVain = true;
      return std::nullopt;
    }
    found = *asked;
    stamp = compiler->stamp(); // now that it is open, the stamp is that of the library in use
    if (user && stamp) user->rememberCompiler(*stamp, *found);
  }
  auto lock = lockForkSafe();
  identity = found;
  return found;
}

std::shared_ptr<const CompileResult> Cache::Impl::findOnDisk(const Digest& key) {
  for (auto& layer : layers)
    if (auto result = layer->find(key)) {
      ++diskHits;
      return std::make_shared<const CompileResult>(std::move(*result));
    }
  return nullptr;
}

// Looking for a compiler where there is none takes a while, so memory is asked first.
std::shared_ptr<const CompileResult> Cache::Impl::findWithoutCompiler(const CompileJob& job) {
  {
    auto lock = lockForkSafe();
    if (identity || !askedInVain) return nullptr;
  }
  Digest key = cacheKey(job, kNoCompiler);
  auto lock = lockForkSafe();
  auto kernel = memory.find(key);
  if (kernel) ++memoryHits;
  return kernel;
}

std::shared_ptr<const CompileResult> Cache::Impl::findOfAnyCompiler(const CompileJob& job) {
  for (auto& layer : layers)
    for (const std::string& known : layer->compilerIdentities())
      if (auto result = findOnDisk(cacheKey(job, known))) return result;
  return nullptr;
}

Expected<CachedKernel> Cache::Impl::compile(const CompileJob& job, const Digest& key, const std::string* identity) {
  ++compiles;
  auto compiled = compiler->compile(job);
  if (!compiled) {
    dumpJob(options.dumpDirectory, key, job, nullptr, compiled.error().message, options.log);
    return std::move(compiled).error();
  }
  options.log.line(fmt::format("compiled {} for {} in {:.1f} ms: {} registers, {} bytes spilled", job.name, job.arch,
                               compiled->ms, compiled->registers, compiled->spillBytes));
  auto result = std::make_shared<const CompileResult>(std::move(*compiled));
  if (options.mode == CacheMode::ReadWrite && !user)
    options.log.warn("kernels are not kept: none of ATTNC_CACHE_DIR, XDG_CACHE_HOME and HOME names a directory");
  if (user && identity)
    if (uint64_t bytes = user->publish({key, job.name, job.entry, job.arch, *identity, *result}))
      pruner->afterPublish(bytes);
  return CachedKernel{result, Origin::Compiled};
}

Expected<CachedKernel> Cache::Impl::fetch(const CompileJob& job, const Digest& key, const std::string* identity) {
  auto fromDisk = identity ? findOnDisk(key) : findOfAnyCompiler(job);
  KeyLock lock;
  if (!fromDisk && user && identity) {
    lock = user->lock(key, options.lockTimeoutMs);
    fromDisk = findOnDisk(key); // another process may have compiled it meanwhile
  }
  if (!fromDisk) {
    auto compiled = compile(job, key, identity);
    if (compiled) dumpJob(options.dumpDirectory, key, job, compiled->result.get(), {}, options.log);
    return compiled;
  }
  dumpJob(options.dumpDirectory, key, job, fromDisk.get(), {}, options.log);
  return CachedKernel{fromDisk, Origin::Disk};
}

Expected<CachedKernel> Cache::Impl::flyOrWait(const CompileJob& job, const Digest& key, const std::string* identity) {
  std::shared_ptr<Flight> flight;
  {
    auto lock = lockForkSafe();
    if (auto kernel = memory.find(key)) {
      ++memoryHits;
      return CachedKernel{kernel, Origin::Memory};
    }
    auto& slot = flights[key];
    if (slot && slot->generation == forkGeneration()) {
      flight = slot;
      flight->landed.wait(lock, [&] { return flight->done; });
      if (!*flight->outcome) return flight->outcome->error();
      ++memoryHits;
      return CachedKernel{(*flight->outcome)->result, Origin::Memory};
    }
    slot = flight = std::make_shared<Flight>();
  }
  Expected<CachedKernel> outcome = fetch(job, key, identity);
  auto lock = lockForkSafe();
  if (outcome) memory.put(key, outcome->result);
  flight->outcome = outcome;
  flight->done = true;
  flights.erase(key);
  flight->landed.notify_all();
  return outcome;
}

Cache::Cache(CacheOptions options, std::shared_ptr<KernelCompiler> compiler, std::shared_ptr<FileOps> ops)
    : impl(std::make_unique<Impl>(std::move(options), std::move(compiler), std::move(ops))) {}
Cache::~Cache() = default;

Expected<CachedKernel> Cache::getOrCompile(const CompileJob& job) {
  if (Status allowed = checkOptions(job); !allowed) return std::move(allowed).error();
  if (auto kernel = impl->findWithoutCompiler(job)) return CachedKernel{kernel, Origin::Memory};
  std::optional<std::string> identity = impl->compilerIdentity();
  Digest key = cacheKey(job, identity.value_or(kNoCompiler));
  return impl->flyOrWait(job, key, identity ? &*identity : nullptr);
}

CacheCounters Cache::counters() const {
  CacheCounters sum;
  sum.memoryHits = impl->memoryHits;
  sum.diskHits = impl->diskHits;
  sum.compiles = impl->compiles;
  for (const auto& layer : impl->layers) {
    const auto& counts = layer->counters();
    sum.published += counts.published;
    sum.publishFailures += counts.publishFailures;
    sum.rejectedEntries += counts.rejected;
    sum.lockFailures += counts.lockFailures;
  }
  return sum;
}

} // namespace attnc::jit
