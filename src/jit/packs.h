// Kernels from packs: compiled ahead of time, found without NVRTC and without a cache directory.
//
// In: paths of packs (cache/pack.h), and the digest of a job. Out: the kernel. Packs are opened at the first search. If
// one cannot be opened, every search fails, since whoever names a pack relies on it. A damaged kernel in an intact pack
// is a miss, with a warning. Not: making packs (kernel_cache.h).
#pragma once

#include "cache/log.h"
#include "cache/pack.h"
#include "jit/compile_job.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attnc::jit {

/// Thread-safe. Not copyable: owners share it.
class Packs {
public:
  /// `maker`: returns the maker of acceptable packs; called only when a pack is opened, so it may be null without
  /// packs. Paths become absolute here: a later chdir() must not make the process load code from elsewhere.
  Packs(const std::vector<std::string>& paths, std::string (*maker)(), cache::Log log);

  /// Opens one more pack, which is searched after the others. Errors (Blame::Environment): it cannot be opened; another
  /// version of attnc made it.
  Status add(const std::string& path);

  /// Returns the kernel of this content (kernel_bytes.h); nullopt if no pack has it. Errors: those of opening packs.
  Expected<std::optional<CompileResult>> find(const cache::Digest& content);

private:
  using Opened = std::vector<std::shared_ptr<const cache::Pack>>;
  Expected<std::shared_ptr<const cache::Pack>> open(const std::string& path) const;
  Expected<Opened> opened();

  std::string (*maker)();
  cache::Log log;
  // Guarded by lockForkSafe(), which is not held while a file is opened.
  std::vector<std::string> pending; ///< not yet opened
  Opened packs;
};

} // namespace attnc::jit
