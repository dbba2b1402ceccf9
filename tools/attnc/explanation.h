// What `attnc explain` says about a kernel and a problem, line by line. Here facts become text; explain.cpp finds them.
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

/// The FLOPs of the products of the problem, of all blocks and of those that live. An estimate where the census is one.
struct WorkFlops {
  double dense = 0, live = 0;
};
WorkFlops flopsOf(const MaskCensus& census, const std::optional<GridCensus>& grid, const Preparation& preparation);

/// What spills of so many bytes cost; empty where there are none.
std::string spillText(int bytes);

/// What is known of a kernel: what was settled, and its stages as text and as machine code.
struct Kernel {
  KernelOptions options;  ///< complete
  std::string passedOver; ///< as Preparation::passedOver
  std::vector<KernelSource> sources;
  CompiledStages compiled;
};

/// Lines "kernel" and "layouts"; between them "tile", "resources", "advisories" of each stage, under a line "launch"
/// with its number where there are several. `asked`: the family that was.
std::string kernelText(const Kernel& kernel, Family asked);

/// The tile of the kernel that is explained, of the backward pass where that was settled.
struct ChosenTile {
  const std::string& tile;
  TileFrom from;
  const std::string& tunedBy; ///< as Preparation::tunedBy
};
ChosenTile tileOf(const Preparation& preparation);

/// Line "tile from": the tile of the kernel as --tile takes it, who chose it, and where that is kept.
std::string tileText(const Preparation& preparation);

/// Lines "choice" and "division": why a decode kernel is taken or not, where that was not asked for; what work it divides.
std::string kindText(const Preparation& preparation, const std::vector<KernelSource>& sources);

/// Lines "KV loop", "blocks" and "FLOPs", and of decode kernels "K and V": the work that the mask leaves of the problem.
/// Figures that samples give have "about" in front of them. Of the backward pass, where that was settled. `grid`: of a
/// kernel by boxes, whose line "boxes" stands in place of "blocks". `masks`: the mod masks something.
std::string workText(const MaskCensus& census, const std::optional<GridCensus>& grid, const Preparation& preparation, bool masks);

/// Whether a kernel by boxes asks for the box of a query alone, and not for mask_mod; false of others.
bool boxIsMask(const ir::Module& module, KvLoop loop);

/// Whether mask_mod is evaluated in all blocks that a kernel walks, full ones included.
bool masksAllBlocks(const ir::Module& module, KvLoop loop);

/// Lines "per score": the operations of the module that each score of a full and of a partial block takes, and what the
/// gradient takes beside these. `module`: what the hooks of the kernel leave of the mod (plan::KernelMod).
std::string scoreText(const ir::Module& module, KvLoop loop);

/// All that `explain` knows, borrowed.
struct Explanation {
  const Mod& mod;
  const Mod& derived;         ///< as the kernel is made of it
  const ir::Module& inKernel; ///< what the hooks of the kernel leave of the mod
  const Preparation& settled;
  const Kernel& kernel;
  const Captures& captures;
  const MaskCensus& census;
  const std::optional<GridCensus>& grid; ///< of a kernel by boxes
};

/// The same as the text, for programs: one JSON object.
std::string explanationJson(const Explanation& all);

/// Lines "gradients": how the gradient of each capture is added up, place by place; empty where none wants one.
/// `byDiagonals`: plan::sumsDiagonals().
std::string gradientsText(const std::vector<plan::CaptureAccess>& captures, bool byDiagonals);

} // namespace attnc::cli
