// Measured choices of tiles: what one is of, the directory that keeps them, and what this process already knows.
//
// In: a plan and the problem that it is for. Out: the tile that was measured to be the fastest there, if one is kept that this
// version of attnc can go by. Not: measuring (tune.cpp).
#pragma once

#include "attnc/kernel.h"
#include "attnc/mod.h"
#include "cache/log.h"
#include "cache/tuned.h"
#include "jit/kernel_cache.h"
#include "plan/launch_operands.h"

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace attnc {

/// The class of problems that a choice serves: "gqa 4, q 2^13, kv 2^13", of grids with their extents. Of decode kernels
/// also how many KV heads all sequences have, among which CTAs are divided.
std::string shapeClassOf(const plan::LaunchOperands& operands, KernelKind kind);

/// What a choice is of. `options`: complete; what changes no tile's speed is left out of it.
cache::TunedKey tunedKey(const std::string& device, const Mod& mod, const KernelOptions& options, const std::string& shapeClass);

/// As Preparation::tunedBy. `path`: empty where it is in memory alone.
std::string tunedByOf(const cache::TunedChoice& choice, const std::string& path);

/// A choice as it was found.
struct FoundChoice {
  std::string tile, tunedBy;
};

/// Thread-safe.
class TunedChoices {
public:
  /// The tiles that there are; asked where a file is read.
  using Candidates = std::function<Expected<std::vector<std::string>>()>;

  TunedChoices(const jit::KernelCache& cache, cache::Log log) : cache(cache), log(std::move(log)) {}

  /// From memory, or from disk: then a file that cannot be used is told in the log, once.
  std::optional<FoundChoice> find(const cache::TunedKey& key, const Candidates& candidates);

  /// Keeps one, in memory whatever becomes of its file. The path of that; empty: it was not stored.
  std::string keep(const cache::TunedChoice& choice);

private:
  std::optional<FoundChoice> read(const cache::TunedKey& key, const Candidates& candidates) const;

  const jit::KernelCache& cache;
  cache::Log log;
  std::mutex mutex;
  std::map<cache::Digest, std::optional<FoundChoice>> known;
};

} // namespace attnc
