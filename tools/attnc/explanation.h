// What `attnc explain` says about a kernel and a problem, line by line. Here facts become text; explain.cpp finds them.
#pragma once

#include "api/mask_census.h"
#include "attnc/block_mask.h"
#include "attnc/kernel.h"
#include "plan/catalog.h"

#include <string>

namespace attnc::cli {

/// How a kernel learns which KV tiles a tile of Q rows visits.
enum class KvLoop {
  AllTiles,  ///< nothing is masked
  Bounds,    ///< the mod computes the first and last live column of its rows
  BlockMask, ///< lists of blocks, given at launch
};

/// What spills cost; empty where there are none.
std::string spillText(const CompiledKernel& compiled);

/// Lines "kernel", "tile", "resources", "advisories", "layouts". `asked` is what the plan was chosen for.
std::string kernelText(const plan::Plan& plan, const KernelOptions& asked, const CompiledKernel& compiled);

/// Lines "KV loop", "blocks" and "FLOPs": the work that the mask leaves of the problem. Figures that samples give have
/// "about" in front of them.
std::string workText(const MaskCensus& census, const ProblemShape& problem, const plan::Plan& plan, KvLoop loop);

/// Lines "per score": the operations of the module that each score of a full and of a partial block takes. `module`:
/// what the hooks of the kernel leave of the mod (plan::KernelMod).
std::string scoreText(const ir::Module& module, KvLoop loop);

} // namespace attnc::cli
