// Kernels from packs: compiled ahead of time, found without NVRTC and without a cache directory.
//
// In: paths of packs (cache/pack.h), and the digest of a source. Out: the kernel. Packs are opened at the first search.
// If a named one cannot be opened, every search fails, since whoever names a pack relies on it. The default pack is
// passed over then. A damaged kernel in an intact pack is a miss, with a warning. Not: making packs (kernel_cache.h).
#pragma once

#include "attnc/kernel.h"
#include "cache/log.h"
#include "cache/pack.h"
#include "jit/env.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attnc::jit {

/// Opens a pack. Errors (Blame::Environment): it cannot be opened; another version of attnc made it.
Expected<std::shared_ptr<const cache::Pack>> openMadeBy(const std::string& maker, const std::string& path);

/// The pack that is searched although nobody names it.
struct DefaultPack {
  std::string path;     ///< empty: none
  bool isFound = false; ///< whether it was found by its place, and not named by ATTNC_DEFAULT_PACK
};

/// Returns the pack of ATTNC_DEFAULT_PACK. If that is unset, returns the one that an install or a build has put near
/// the file of this code: next to it, in ../share/attnc or in ../../share/attnc.
DefaultPack findDefaultPack(const Env& env);

/// Opens the default pack. Errors (Blame::Environment): those of openMadeBy(). Also a found pack that is not private:
/// nobody chose its folder, so anybody may have put it there. Precondition: a path.
Expected<std::shared_ptr<const cache::Pack>> openDefaultPack(const DefaultPack& pack, const std::string& maker);

/// Thread-safe. Not copyable: owners share it.
class Packs {
public:
  /// `maker`: returns the maker of acceptable packs; called only when a pack is opened, so it may be null without
  /// packs. Paths become absolute here: a later chdir() must not make the process load code from elsewhere.
  Packs(const std::vector<std::string>& paths, std::string (*maker)(), cache::Log log);

  /// Holds only the default pack, if there is one. If it cannot be opened, the log says so, and searches find nothing.
  Packs(const DefaultPack& pack, std::string (*maker)(), cache::Log log);

  /// Opens one more pack, which is searched after the others. Errors: those of openMadeBy().
  Status add(const std::string& path);

  /// Returns the kernel of this content (kernel_bytes.h); nullopt if no pack has it. Errors: those of opening packs.
  Expected<std::optional<CompiledKernel>> find(const cache::Digest& content);

private:
  using Opened = std::vector<std::shared_ptr<const cache::Pack>>;
  Expected<std::shared_ptr<const cache::Pack>> open(const std::string& path) const;
  Expected<Opened> opened();

  std::string (*maker)();
  cache::Log log;
  bool isDefault = false, isFound = false; ///< whether this is the default pack; DefaultPack::isFound
  // Guarded by lockForkSafe(), which is not held while a file is opened.
  std::vector<std::string> pending; ///< not yet opened
  Opened packs;
};

} // namespace attnc::jit
