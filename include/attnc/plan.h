// A kernel as it was chosen, before it is compiled: family, tile, launches, and why.
#pragma once

#include "attnc/kernel.h"
#include "attnc/mod.h"

#include <memory>
#include <string>
#include <vector>

namespace attnc {

/// Who chose a tile.
enum class TileFrom {
  Model, ///< The catalogue's model.
  Tuned, ///< A stored choice of Compiler::tune() or tuneTraining().
  Asked, ///< The caller, by PrepareOptions::tile or KernelOptions::tile.
};

/// How a kernel learns which tiles of kv columns a tile of q rows visits.
enum class KvLoop {
  AllTiles,  ///< It visits all tiles: nothing is masked, or mask_mod is evaluated for every score.
  Bounds,    ///< The mod computes the first and last live column of the rows.
  BlockMask, ///< Block lists in device memory.
  Listed,    ///< Each launch first lists the live blocks, then walks them: decode kernels, and queries with offsets.
  Boxes,     ///< Family Grid: tiles are boxes, and the mod computes the box of keys that a query sees.
  BoxMask,   ///< Family Grid: as BlockMask, with boxes as blocks.
};

/// A kernel of a mod as it was chosen, by Compiler::plan() for options or by Compiler::settle() for operands. It is
/// immutable, copies share it, and any number of threads may use it. It needs neither a GPU nor NVRTC.
class Plan {
public:
  /// Returns the mod that it was made for.
  const Mod& mod() const;
  /// Returns the options of the kernel, complete, with the chosen family and arch. `tile` is empty if the model chose
  /// it.
  const KernelOptions& options() const;
  /// Returns why this GPU's preferred family was rejected: an option that it does not serve, or a tensor whose layout
  /// it does not take. Empty if it was chosen, or if there is no other.
  const std::string& passedOver() const;
  /// Returns how the kernel finds its tiles; a backward kernel, from q rows and from kv columns.
  KvLoop kvLoop() const;
  /// Returns the tile, spelled as in KernelOptions::tile. Empty if the kernel has none.
  const std::string& tile() const;
  /// Returns who chose the tile.
  TileFrom tileFrom() const;
  /// Returns, for TileFrom::Tuned, file and date of the stored choice.
  const std::string& tunedBy() const;
  /// Returns how many columns of q and k a low-rank term of the score takes, or why it takes none. Empty if score_mod
  /// has no sum of products of a query's and a key's numbers.
  const std::string& lowRank() const;

  /// Returns the legal values of KernelOptions::tile for these options, the model's choice first. Empty if the kernel
  /// has no tiles.
  std::vector<std::string> tiles() const;
  /// Returns whether launches gain from a block mask, or from this one. They do if the mod masks something and the
  /// kernel cannot bound its loops by itself. Families Sm80 and Sm90 can for causal, window, prefix and similar masks.
  bool gainsFromBlockMask() const;
  /// Returns the source of each launch, as NVRTC gets it. Errors (mod): more work than CompilerOptions::maxWork.
  Expected<std::vector<KernelSource>> sources() const;

private:
  friend struct PlanAccess; // src/api
  struct Impl;
  explicit Plan(std::shared_ptr<const Impl> impl) : impl(std::move(impl)) {}
  std::shared_ptr<const Impl> impl;
};

/// Returns why no kernel of the family that the options name serves them. Empty if one does. Plans nothing. Needs no
/// GPU if `options.arch` is given.
std::string whyNotServed(const Mod& mod, const KernelOptions& options);

} // namespace attnc
