// A kernel as a whole: kernel launches in order, and the memory between them.
//
// A plan is complete when it is made. It is written (assemble.h), compiled and launched without changes.
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

/// Properties of the device that a launch depends on.
struct Device {
  int multiprocessors = 0;
  int64_t l2Bytes = 0;
};

/// How many CTAs a stage has.
enum class Grid {
  QTiles,     ///< one per tile of q rows of each (batch, head)
  StepWords,  ///< one per 32 steps along KV of each tile of packed rows
  Parts,      ///< as many as run at once and find work, which they divide along KV
  Persistent, ///< as QTiles, capped at the device's multiprocessors: a CTA takes tile after tile
  Boxes,      ///< one per CTA's box of queries of each (batch, head)
  PersistentBoxes,   ///< as Boxes, capped at the device's multiprocessors
  KvBoxes,           ///< one per box of keys of each (kv batch, kv head)
  PersistentKvBoxes, ///< as KvBoxes, capped at the device's multiprocessors
  KvTiles,    ///< one per tile of kv columns of each (kv batch, kv head)
  KvTilesTwice, ///< two per tile of kv columns
  QRows,      ///< one per `warps` rows of q
  KvRows,     ///< one per `warps` rows of k
  CaptureTiles,    ///< as QTiles; of only one batch entry if LaunchOperands::loopsBatches
  Diagonals,       ///< one per `threads` diagonals of each (batch, head)
  CaptureElements, ///< one per `threads` elements of a capture whose sums are not kept in its gradient
  NewRows,    ///< one per `blockM` new rows of each (batch, kv head)
  MaskRows,   ///< one per row of blocks of the lists
  MaskColumns, ///< one per `warps` columns of blocks of the lists
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
/// Fills a stage's parameter block. Precondition: the launch has at least one CTA. `workspace`: the plan's. Errors
/// (environment): a layout that the stage does not take, or anything that the driver refuses.
using MakeParameters = Expected<ParameterBlock> (*)(const Stage& stage, const LaunchOperands& operands,
                                                    const Device& device, const WorkspaceView& workspace);

/// One launch of one template.
struct Stage {
  std::string templateName;  ///< in templates/
  std::string entry;         ///< name of the __global__ function
  codegen::Config config;    ///< includes the shared memory that a CTA asks for
  passes::Algebra algebra;   ///< whose hooks the template calls (templates/mod/contract.cuh)
  bool callsGradients = false; ///< whether it calls the hooks for gradients of captures
  bool onGrid = false;       ///< whether it calls the hooks for boxes
  bool forCaptures = false;  ///< backward: whether it also runs if only captures want gradients
  int capture = 0;           ///< for Grid::CaptureElements: its index in Plan::captures
  int threads = 0;           ///< per CTA
  int ctasAtOnce = 1;        ///< for Grid::Parts: on one multiprocessor
  Grid grid = Grid::QTiles;
  MakeParameters parameters = nullptr;
};

/// Returns the form of the mod that a stage's template is written from.
inline ModForm formOf(const Stage& stage) { return {stage.algebra, stage.callsGradients, stage.onGrid}; }

/// Returns the parameters of a stage, with those of a cache if its config says that it uses one.
template <class Params>
ParameterBlock withCache(const Params& params, const Stage& stage, const LaunchOperands& operands) {
  if (!stage.config.pageSize && !stage.config.appends) return params;
  return Cached<Params>{params, cacheParams(operands)};
}

/// Returns the CTAs of a launch.
int64_t ctasOf(const Stage& stage, const LaunchOperands& operands, const Device& device);

/// Most tiles over all heads and batch entries: kernels count in 32 bits, some a few beyond the last tile.
constexpr int64_t kMostTiles = (int64_t(1) << 31) - (1 << 20);

struct Plan {
  KernelOptions options; ///< as requested, with family, headDimV and other defaults filled in
  std::vector<Stage> stages;
  std::vector<WorkspaceUse> workspace; ///< device memory that the stages share
  std::vector<CaptureAccess> captures; ///< the captures whose gradients it computes
  std::shared_ptr<const passes::GridKernel> grid; ///< for box kernels
  std::string tile;     ///< spelled as in KernelOptions::tile. Empty if the kernel has none
  /// Why the family made for this GPU does not serve the options. Empty if it does, or if no family was.
  std::string unserved;
  std::string misfit;   ///< why that family serves the options but not the operands' layout: names the tensor
};

/// Checks that no stage has more than kMostTiles tiles. Errors are Blame::Environment.
Status checkTileCounts(const Plan& plan, const LaunchOperands& operands);

/// Whether a stage sums gradients along diagonals. The gradients of all captures are then computed from these sums.
bool sumsDiagonals(const Plan& plan);

/// Returns the stage that computes scores. In a backward plan, that is the one that makes dK and dV.
const Stage& walkingStage(const Plan& plan);

} // namespace attnc::plan
