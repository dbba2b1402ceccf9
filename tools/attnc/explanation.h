// The output of `attnc explain` about a kernel and a problem, line by line. explain.cpp finds the facts; this turns
// them into text.
#pragma once

#include "api/grid_census.h"
#include "api/mask_census.h"
#include "attnc/kernel.h"
#include "attnc/prepared.h"
#include "ir/ir.h"
#include "plan/kernel_mod.h"

#include <optional>
#include <string>
#include <vector>

namespace attnc::cli {

/// FLOPs of the problem's matrix products, for all blocks and for the live ones. An estimate if the census is one.
struct WorkFlops {
  double dense = 0, live = 0;
};
WorkFlops flopsOf(const MaskCensus& census, const std::optional<GridCensus>& grid, const Preparation& preparation);

/// Describes the cost of spilling this many bytes; empty for 0.
std::string spillText(int bytes);

/// A settled kernel, and its stages as text and as machine code.
struct Kernel {
  KernelOptions options;  ///< complete
  std::string passedOver; ///< as Preparation::passedOver
  std::vector<KernelSource> sources;
  CompiledStages compiled;
};

/// Returns lines "kernel" and "layouts"; between them "tile", "resources", "advisories" of each stage, under a line
/// "launch" with its number if there are several. `asked` is the family that the user named.
std::string kernelText(const Kernel& kernel, Family asked);

/// The tile of the explained kernel: of the backward pass if that was settled.
struct ChosenTile {
  const std::string& tile;
  TileFrom from;
  const std::string& tunedBy; ///< as Preparation::tunedBy
};
ChosenTile tileOf(const Preparation& preparation);

/// Returns line "tile from": the tile as --tile takes it, who chose it, and where that is kept.
std::string tileText(const Preparation& preparation);

/// Returns lines "choice" and "division": why a decode kernel is taken or not, unless the user chose; and what work it
/// divides.
std::string kindText(const Preparation& preparation, const std::vector<KernelSource>& sources);

/// Returns lines "KV loop", "blocks" and "FLOPs", and for decode kernels "K and V": the work that the mask leaves.
/// Sampled figures begin with "about". The figures are for the backward pass if that was settled. `grid` is given for a
/// box kernel, whose line "boxes" replaces "blocks". `masks`: whether the mod masks anything.
std::string workText(const MaskCensus& census, const std::optional<GridCensus>& grid, const Preparation& preparation,
                     bool masks);

/// Whether a box kernel only tests the box of a query and not mask_mod. False for other kernels.
bool boxIsMask(const ir::Module& module, KvLoop loop);

/// Whether mask_mod is evaluated in all blocks that a kernel walks, full ones included.
bool masksAllBlocks(const ir::Module& module, KvLoop loop);

/// Returns lines "per score": the operations of the module for each score of a full and of a partial block, and the
/// additional ones of the gradient. `module` is what the hooks of the kernel leave of the mod (plan::KernelMod).
std::string scoreText(const ir::Module& module, KvLoop loop);

/// All that `explain` knows, borrowed.
struct Explanation {
  const Mod& mod;
  const Mod& derived;         ///< the mod that the kernel is made from
  const ir::Module& inKernel; ///< what the hooks of the kernel leave of the mod
  const Preparation& settled;
  const Kernel& kernel;
  const Captures& captures;
  const MaskCensus& census;
  const std::optional<GridCensus>& grid; ///< of a box kernel
};

/// Returns the same as the text, as one JSON object.
std::string explanationJson(const Explanation& all);

/// Returns lines "gradients": how the gradient of each capture is summed, place by place; empty if no capture wants
/// one. `byDiagonals`: plan::sumsDiagonals().
std::string gradientsText(const std::vector<plan::CaptureAccess>& captures, bool byDiagonals);

} // namespace attnc::cli
