#include "cache/cache.h"

#include "cache/fork_guard.h"
#include "cache/memory.h"
#include "support/try.h"

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <optional>

namespace attnc::cache {

namespace {

// The identity in keys if there is no compiler.
constexpr char kNoCompiler[] = "none";

// Paths become absolute when the cache is created: a later chdir() must not make the process load code from elsewhere.
std::string absolutePath(const std::string& path) {
  if (path.empty()) return {};
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? std::string() : absolute.lexically_normal().string();
}

} // namespace

/// The arguments of getOrCompile().
struct Cache::Request {
  const Digest& content;
  const std::string& name;
  const Compile& compile;
};

/// A running compilation that other threads wait for. Guarded by lockForkSafe().
struct Cache::Flight {
  uint64_t generation = forkGeneration();
  bool done = false;
  std::optional<Expected<CachedBytes>> outcome;
  std::condition_variable landed;
};

struct Cache::Impl {
  Impl(Options given, std::shared_ptr<CompilerIdentity> compiler, std::shared_ptr<FileOps> ops)
      : options(std::move(given)), compiler(std::move(compiler)), memory(options.memoryEntries) {
    if (options.mode == Mode::Off) return;
    auto add = [&](const std::string& path, Directory::Access access, Directory::Layer layer) {
      std::string absolute = absolutePath(path);
      if (!absolute.empty()) layers.push_back(std::make_unique<Directory>(ops, absolute, access, layer, options.log));
    };
    bool writes = options.mode == Mode::ReadWrite;
    using Access = Directory::Access;
    using Layer = Directory::Layer;
    add(options.directory, writes ? Access::ReadWrite : Access::ReadOnly, Layer::User);
    if (!layers.empty() && writes) {
      user = layers.front().get();
      pruner = std::make_unique<Pruner>(*user, options.maxBytes);
    }
    for (const std::string& path : options.readOnlyDirectories) add(path, Access::ReadOnly, Layer::System);
  }

  Expected<CachedBytes> flyOrWait(const Request& request, const Digest& key, const std::string* identity);
  Expected<CachedBytes> fetch(const Request& request, const Digest& key, const std::string* identity);
  Expected<CachedBytes> compile(const Request& request, const Digest& key, const std::string* identity);
  Memory::Bytes findOnDisk(const Digest& key);
  Memory::Bytes findWithoutCompiler(const Request& request);
  Memory::Bytes findOfAnyCompiler(const Request& request);
  std::optional<std::string> knownIdentity();
  std::optional<std::string> compilerIdentity();

  Options options;
  std::shared_ptr<CompilerIdentity> compiler;
  std::vector<std::unique_ptr<Directory>> layers;
  Directory* user = nullptr; ///< the writable layer, if any
  std::unique_ptr<Pruner> pruner;

  // Guarded by lockForkSafe().
  Memory memory;
  std::map<Digest, std::shared_ptr<Flight>> flights;
  std::optional<std::string> identity;
  bool askedInVain = false; ///< whether the compiler was asked for its identity and has none

  std::atomic<int64_t> memoryHits{0}, diskHits{0}, compiles{0};
};

// Does not open the compiler.
std::optional<std::string> Cache::Impl::knownIdentity() {
  {
    auto lock = lockForkSafe();
    if (identity) return identity;
  }
  // Without a disk cache, every kernel in memory was made by this process's compiler.
  std::optional<std::string> found = layers.empty() ? std::optional<std::string>("any") : std::nullopt;
  std::optional<std::string> stamp = found ? std::nullopt : compiler->stamp();
  for (size_t i = 0; i < layers.size() && stamp && !found; ++i) found = layers[i]->compilerIdentity(*stamp);
  auto lock = lockForkSafe();
  if (found) identity = found;
  return found;
}

std::optional<std::string> Cache::Impl::compilerIdentity() {
  if (auto known = knownIdentity()) return known;
  auto asked = options.mayCompile ? compiler->identity() : Error::environment("compiling is forbidden");
  if (!asked) {
    auto lock = lockForkSafe();
    askedInVain = true;
    return std::nullopt;
  }
  const auto stamp = compiler->stamp(); // now that it is open, the stamp is that of the library in use
  if (user && stamp) user->rememberCompiler(*stamp, *asked);
  auto lock = lockForkSafe();
  identity = *asked;
  return identity;
}

Memory::Bytes Cache::Impl::findOnDisk(const Digest& key) {
  for (auto& layer : layers)
    if (auto result = layer->find(key)) {
      ++diskHits;
      return std::make_shared<const std::string>(*std::move(result));
    }
  return nullptr;
}

// Searching for a compiler that is not installed is slow, so memory is searched first.
Memory::Bytes Cache::Impl::findWithoutCompiler(const Request& request) {
  {
    auto lock = lockForkSafe();
    if (identity || !askedInVain) return nullptr;
  }
  Digest key = keyOf(request.content, kNoCompiler);
  auto lock = lockForkSafe();
  auto bytes = memory.find(key);
  if (bytes) ++memoryHits;
  return bytes;
}

Memory::Bytes Cache::Impl::findOfAnyCompiler(const Request& request) {
  for (auto& layer : layers)
    for (const std::string& known : layer->compilerIdentities())
      if (auto result = findOnDisk(keyOf(request.content, known))) return result;
  return nullptr;
}

Expected<CachedBytes> Cache::Impl::compile(const Request& request, const Digest& key, const std::string* identity) {
  ++compiles;
  ATTNC_TRY_AS(compiled, request.compile());
  if (options.mode == Mode::ReadWrite && !user)
    options.log.warn("kernels are not kept: none of ATTNC_CACHE_DIR, XDG_CACHE_HOME and HOME names a directory");
  if (user && identity)
    if (uint64_t bytes = user->publish({key, request.name, *identity, *compiled})) pruner->afterPublish(bytes);
  return CachedBytes{std::make_shared<const std::string>(*std::move(compiled)), Origin::Compiled};
}

Expected<CachedBytes> Cache::Impl::fetch(const Request& request, const Digest& key, const std::string* identity) {
  auto fromDisk = identity ? findOnDisk(key) : findOfAnyCompiler(request);
  if (!fromDisk && identity && !options.mayCompile) fromDisk = findOfAnyCompiler(request);
  KeyLock lock;
  if (!fromDisk && user && identity && options.mayCompile) {
    lock = user->lock(key, options.lockTimeoutMs);
    fromDisk = findOnDisk(key); // another process may have compiled it meanwhile
  }
  if (!fromDisk) return compile(request, key, identity);
  return CachedBytes{fromDisk, Origin::Disk};
}

Expected<CachedBytes> Cache::Impl::flyOrWait(const Request& request, const Digest& key, const std::string* identity) {
  std::shared_ptr<Flight> flight;
  {
    auto lock = lockForkSafe();
    if (auto bytes = memory.find(key)) {
      ++memoryHits;
      return CachedBytes{bytes, Origin::Memory};
    }
    auto& running = flights[key];
    if (running && running->generation == forkGeneration()) {
      flight = running;
      flight->landed.wait(lock, [&] { return flight->done; });
      if (!*flight->outcome) return flight->outcome->error();
      ++memoryHits;
      return CachedBytes{(*flight->outcome)->bytes, Origin::Memory};
    }
    running = flight = std::make_shared<Flight>();
  }
  Expected<CachedBytes> outcome = fetch(request, key, identity);
  auto lock = lockForkSafe();
  if (outcome) memory.put(key, outcome->bytes);
  flight->outcome = outcome;
  flight->done = true;
  flights.erase(key);
  flight->landed.notify_all();
  return outcome;
}

Cache::Cache(Options options, std::shared_ptr<CompilerIdentity> compiler, std::shared_ptr<FileOps> ops)
    : impl(std::make_unique<Impl>(std::move(options), std::move(compiler), std::move(ops))) {}
Cache::~Cache() = default;

Expected<CachedBytes> Cache::getOrCompile(const Digest& content, const std::string& name, const Compile& compile) {
  const Request request{content, name, compile};
  if (auto bytes = impl->findWithoutCompiler(request)) return CachedBytes{bytes, Origin::Memory};
  std::optional<std::string> identity = impl->compilerIdentity();
  Digest key = keyOf(content, identity.value_or(kNoCompiler));
  return impl->flyOrWait(request, key, identity ? &*identity : nullptr);
}

std::optional<CachedBytes> Cache::find(const Digest& content) {
  const std::optional<std::string> identity = impl->knownIdentity();
  if (!identity) return std::nullopt;
  const Digest key = keyOf(content, *identity);
  {
    auto lock = lockForkSafe();
    if (auto bytes = impl->memory.find(key)) {
      ++impl->memoryHits;
      return CachedBytes{bytes, Origin::Memory};
    }
  }
  auto fromDisk = impl->findOnDisk(key);
  if (!fromDisk) return std::nullopt;
  auto lock = lockForkSafe();
  impl->memory.put(key, fromDisk);
  return CachedBytes{fromDisk, Origin::Disk};
}

std::optional<TunedFile> Cache::findTuned(const Digest& key) const {
  for (const auto& layer : impl->layers)
    if (auto found = layer->findTuned(key)) return found;
  return std::nullopt;
}

std::string Cache::publishTuned(const Digest& key, const std::string& text) const {
  return impl->user ? impl->user->publishTuned(key, text) : std::string();
}

Counters Cache::counters() const {
  Counters sum;
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

} // namespace attnc::cache
