// What a kernel is made of, whole: kernel launches in order, and the memory between them.
//
// A plan is complete when it is made. It is written (assemble.h), compiled and launched as it stands.
#pragma once

#include "attnc/kernel.h"
#include "codegen/config_source.h"
#include "passes/derive.h"
#include "plan/kernel_mod.h"
#include "plan/launch_operands.h"
#include "plan/workspace.h"
#include "templates/params_backward_sm80.cuh"
#include "templates/params_decode.cuh"
#include "templates/params_grid_sm80.cuh"
#include "templates/params_grid_sm90.cuh"
#include "templates/params_sm90.cuh"

#include <string>
#include <variant>
#include <vector>

namespace attnc::plan {

/// What a launch needs to know of the device.
struct Device {
  int multiprocessors = 0;
  int64_t l2Bytes = 0;
};

/// How many CTAs a stage has.
enum class Grid {
  QTiles,     ///< one for each tile of q rows of each (batch, head)
  StepWords,  ///< one for each 32 steps along KV of each tile of packed rows
  Parts,      ///< those that run at once and find work, which they divide along KV
  Persistent, ///< as many as of QTiles, but no more than the device has multiprocessors: a CTA takes tile after tile
  Boxes,      ///< one for each CTA's box of queries of each (batch, head)
  PersistentBoxes,   ///< as many, but no more than the device has multiprocessors
  KvBoxes,           ///< one for each box of keys of each (kv batch, kv head)
  PersistentKvBoxes, ///< as many, no more likewise
  KvTiles,    ///< one for each tile of kv columns of each (kv batch, kv head)
  KvTilesTwice, ///< two for each
  QRows,      ///< one for each `warps` rows of q
  KvRows,     ///< one for each `warps` rows of k
  CaptureTiles,    ///< as QTiles; of one batch entry alone where LaunchOperands::loopsBatches
  Diagonals,       ///< one for each `threads` diagonals of each (batch, head)
  CaptureElements, ///< one for each `threads` elements of a capture whose sums lie apart from its gradient
  NewRows,    ///< one for each `blockM` new rows of each (batch, kv head)
  MaskRows,   ///< one for each row of blocks of the lists
  MaskColumns, ///< one for each `warps` columns of blocks of the lists
};

/// The first parameter of a template; the second is ModArgs.
using ParameterBlock =
    std::variant<ForwardParams, ForwardGridParamsSm80, ForwardGridParamsSm90, ForwardGridBesideParamsSm90, DecodeParams,
                 DecodeListsParams, ForwardParamsSm90, Cached<ForwardParams>, Cached<DecodeParams>,
                 Cached<ForwardParamsSm90>, DecodeParamsSm90, Cached<DecodeParamsSm90>, BackwardParams,
                 BackwardParamsSm80, BackwardParamsSm90, BackwardGridParamsSm80, BackwardGridParamsSm90,
                 BackwardGridBesideParamsSm90, BlockMaskParams, BoxMaskParams, CaptureParams, DiagonalParams,
                 CaptureOutputParams>;

struct Stage;
/// Fills a stage's parameter block; there is at least one CTA. `workspace`: of the plan. Errors (environment): a layout
/// that the stage does not take, and what the driver refuses.
using MakeParameters = Expected<ParameterBlock> (*)(const Stage& stage, const LaunchOperands& operands,
                                                    const Device& device, const WorkspaceView& workspace);

/// One launch of one template.
struct Stage {
  std::string templateName;  ///< in templates/
  std::string entry;         ///< name of the __global__ function
  codegen::Config config;    ///< with the shared memory that a CTA asks for
  passes::Algebra algebra;   ///< whose hooks the template calls (templates/mod/contract.cuh)
  bool callsGradients = false; ///< and those of gradients of captures
  bool onGrid = false;       ///< and those of boxes
  bool forCaptures = false;  ///< of a backward plan: also runs where captures alone want gradients
  int capture = 0;           ///< of Grid::CaptureElements: which, in the order of Plan::captures
  int threads = 0;           ///< of a CTA
  int ctasAtOnce = 1;        ///< of Grid::Parts: on one multiprocessor
  Grid grid = Grid::QTiles;
  MakeParameters parameters = nullptr;
};

/// What a stage's template is written from.
inline ModForm formOf(const Stage& stage) { return {stage.algebra, stage.callsGradients, stage.onGrid}; }

/// The parameters of a stage whose kernel may be of a cache, as its config says.
template <class Params>
ParameterBlock withCache(const Params& params, const Stage& stage, const LaunchOperands& operands) {
  if (!stage.config.pageSize && !stage.config.appends) return params;
  return Cached<Params>{params, cacheParams(operands)};
}

/// CTAs of a launch.
int64_t ctasOf(const Stage& stage, const LaunchOperands& operands, const Device& device);

/// Most tiles of all heads and batch entries: kernels count in 32 bits, some a few beyond the last one.
constexpr int64_t kMostTiles = (int64_t(1) << 31) - (1 << 20);

struct Plan {
  KernelOptions options; ///< as asked, with family, headDimV and the like filled in
  std::vector<Stage> stages;
  std::vector<WorkspaceUse> workspace; ///< device memory that the stages share
  std::vector<CaptureAccess> captures; ///< whose gradients it computes
  std::shared_ptr<const passes::GridKernel> grid; ///< of kernels by boxes
  std::string tile;     ///< as KernelOptions::tile has it; empty: of a kernel without
  std::string unserved; ///< why the family made for this GPU does not serve the options; empty: it does, or none is
  std::string misfit;   ///< why it serves them, but not the layout of the operands: names the tensor
};

/// Checks that no stage has more than kMostTiles tiles. Errors are Blame::Environment.
Status checkTileCounts(const Plan& plan, const LaunchOperands& operands);

/// Whether a stage adds gradients up along diagonals, which those of all captures then come of.
bool sumsDiagonals(const Plan& plan);

/// The stage that computes scores: of a backward plan, the one that makes dK and dV.
const Stage& walkingStage(const Plan& plan);

} // namespace attnc::plan
