// Measured choices of tiles: their keys, the directory that keeps them, and those that this process already knows.
//
// In: a plan and the problem that it is for. Out: the tile that was measured to be the fastest for it, if one is kept
// that this version of attnc can use. Not here: measuring (tune.cpp).
#pragma once

#include "attnc/kernel.h"
#include "attnc/mod.h"
#include "cache/log.h"
#include "cache/tuned.h"
#include "jit/kernel_cache.h"
#include "launch/launch_operands.h"

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace attnc {

/// Returns the class of problems that a choice serves: "gqa 4, q 2^13, kv 2^13"; for grids, with their extents. For
/// decode kernels, also the number of KV heads of all sequences, among which CTAs are divided.
std::string shapeClassOf(const plan::LaunchOperands& operands, KernelKind kind);

/// Returns the key of a choice. `options`: complete; those that change no tile's speed are left out.
cache::TunedKey tunedKey(const std::string& device, const Mod& mod, const KernelOptions& options,
                         const std::string& shapeClass);

/// Returns the text of Preparation::tunedBy. `path`: empty if the choice is only in memory.
std::string tunedByOf(const cache::TunedChoice& choice, const std::string& path);

/// A choice as it was found.
struct FoundChoice {
  std::string tile, tunedBy;
};

/// Thread-safe.
class TunedChoices {
public:
  /// Returns the tiles that exist; called when a file is read.
  using Candidates = std::function<Expected<std::vector<std::string>>()>;

  TunedChoices(const jit::KernelCache& cache, cache::Log log) : cache(cache), log(std::move(log)) {}

  /// Finds a choice in memory or on disk. If a file cannot be used, the log says so, once.
  std::optional<FoundChoice> find(const cache::TunedKey& key, const Candidates& candidates);

  /// Keeps a choice: in memory always, and in a file if possible. Returns the file's path; empty if it was not stored.
  std::string keep(const cache::TunedChoice& choice);

private:
  std::optional<FoundChoice> read(const cache::TunedKey& key, const Candidates& candidates) const;

  const jit::KernelCache& cache;
  cache::Log log;
  std::mutex mutex;
  std::map<cache::Digest, std::optional<FoundChoice>> known;
};

} // namespace attnc
