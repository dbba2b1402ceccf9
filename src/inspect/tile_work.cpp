#include "inspect/tile_work.h"

#include "inspect/block_map.h"
#include "launch/mask_shape.h"
#include "launch/tensor_maps.h"
#include "plan/arch.h"
#include "support/ceil_div.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

namespace attnc {
namespace {

constexpr int64_t kMostDifferent = int64_t(1) << 16; // tiles whose steps are told

/// Fills the steps of tiles that walk blocks of tokens. Returns whether it could.
bool fillSteps(const ir::Module& module, const ir::Bindings& bindings, const Explanation& all, TileWork& work) {
  const ProblemShape& problem = all.preparation.problem;
  const KernelSource& source = all.sources.front();
  const bool byLists = all.kernel().kvLoop() == KvLoop::BlockMask;
  const int rows = source.tileRows, columns = source.tileColumns;
  work.tiles = ceilDiv(problem.qLen, rows);
  const int64_t allColumns = ceilDiv(problem.kvLen, columns);
  if (all.kernel().kvLoop() == KvLoop::AllTiles) {
    if (work.tiles > kMostDifferent) return false;
    work.steps.assign(size_t(work.tiles), allColumns);
    return true;
  }
  const BlockMaskShape shape = byLists ? plan::smallestMask(module, problem, all.kernel().options().maskQBlock,
                                                            all.kernel().options().maskKvBlock)
                                       : plan::smallestMask(module, problem, rows, columns);
  work.maskBatch = shape.batch;
  work.maskHeads = shape.heads;
  const int64_t heads = shape.batch * shape.heads;
  if (heads * std::max(work.tiles, shape.qBlocks()) > kMostDifferent) return false;
  const BlockRows blocks = rowsOfBlocks(module, bindings, shape);
  work.isEstimate = blocks.isEstimate;
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t tile = 0; tile < work.tiles; ++tile) {
      const BlockRow& row = blocks.rows[size_t(head * shape.qBlocks() + tile * rows / shape.qBlock)];
      const int64_t hull = row.live ? row.last - row.first + 1 : 0;
      work.steps.push_back(byLists ? std::min(row.live * ceilDiv(shape.kvBlock, columns), allColumns) : hull);
    }
  return true;
}

/// Fills the steps of tiles that are boxes of a grid. Returns whether it could.
bool fillBoxes(const Explanation& all, TileWork& work) {
  const std::optional<GridCensus>& boxes = all.boxes;
  if (!boxes || boxes->ofFirstHead.empty() || boxes->mayLieBeside || boxes->differsByHead) return false;
  for (const GridTile& tile : boxes->ofFirstHead) work.steps.push_back(tile.steps);
  work.tiles = int64_t(work.steps.size());
  return true;
}

/// Deals the tiles to CTA slots.
void deal(const GpuLimits& limits, const ProblemShape& problem, TileWork& work) {
  const int64_t slots = int64_t(limits.multiprocessors) * work.ctasPerMultiprocessor;
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> busy; // steps of each slot, the least first
  for (int64_t i = 0; i < slots; ++i) busy.push(0);
  double sum = 0;
  for (int64_t first = 0; first < work.heads; first += work.section)
    for (int64_t tile = work.tiles; tile-- > 0;)
      for (int64_t head = first; head < std::min(first + work.section, work.heads); ++head) {
        const int64_t b = head / problem.qHeads % work.maskBatch, h = head % problem.qHeads % work.maskHeads;
        const int64_t steps = work.steps[size_t((b * work.maskHeads + h) * work.tiles + tile)];
        const int64_t end = busy.top() + steps;
        busy.pop();
        busy.push(end);
        work.longest = std::max(work.longest, end);
        sum += double(steps);
      }
  work.mean = sum / double(slots);
}

} // namespace

GpuLimits limitsOf(const std::string& text) {
  const auto arch = plan::parseArch(text);
  GpuLimits limits;
  if (!arch) return limits;
  limits.sharedBytesPerCta = arch->sharedBytesPerCta();
  limits.sharedBytesPerMultiprocessor = limits.sharedBytesPerCta + 1024; // each CTA takes 1 KiB for the system
  constexpr struct {
    int capability;
    const char* gpu;
    int multiprocessors;
    int64_t l2MiB;
  } kGpus[] = {{80, "A100", 108, 40}, {86, "RTX 3090", 82, 6}, {89, "RTX 4090", 128, 72},
               {90, "H200", 132, 60}, {100, "B200", 148, 126}, {120, "RTX 5090", 170, 96}};
  for (const auto& [capability, gpu, multiprocessors, l2MiB] : kGpus)
    if (capability == arch->capability)
      limits.gpu = gpu, limits.multiprocessors = multiprocessors, limits.l2Bytes = l2MiB << 20;
  if (limits.sharedBytesPerCta < 100 * 1024) limits.threadsPerMultiprocessor = 1536;
  return limits;
}

std::optional<TileWork> tileWorkOf(const ir::Module& module, const ir::Bindings& bindings, const Explanation& all) {
  const KernelOptions& options = all.kernel().options();
  const ProblemShape& problem = all.preparation.problem;
  const GpuLimits& limits = all.limits;
  const KernelSource& source = all.sources.front();
  const CompiledKernel& compiled = *all.compiled.front();
  const bool isKnown = options.kind == KernelKind::Forward && options.family != Family::Naive &&
                       !options.features.has(Feature::Ragged) && limits.multiprocessors && source.tileRows &&
                       source.tileColumns;
  if (!isKnown || problem.batch * problem.qHeads == 0 || problem.qLen == 0) return std::nullopt;
  TileWork work{.heads = problem.batch * problem.qHeads};
  switch (all.kernel().kvLoop()) {
  case KvLoop::AllTiles:
  case KvLoop::Bounds:
  case KvLoop::BlockMask:
    if (!fillSteps(module, bindings, all, work)) return std::nullopt;
    break;
  case KvLoop::Boxes:
    if (!fillBoxes(all, work)) return std::nullopt;
    break;
  case KvLoop::Listed:
  case KvLoop::BoxMask: return std::nullopt;
  }
  constexpr int64_t kMostTiles = int64_t(1) << 22; // that are dealt
  if (work.heads > kMostTiles / work.tiles) return std::nullopt;
  const int64_t ofShared = limits.sharedBytesPerMultiprocessor /
                           std::max<int64_t>(1, compiled.staticSharedBytes + compiled.dynamicSharedBytes + 1024);
  const int64_t ofRegisters = limits.registersPerMultiprocessor / std::max(1, compiled.registers * source.threads);
  const int64_t ofThreads = limits.threadsPerMultiprocessor / std::max(1, source.threads);
  work.ctasPerMultiprocessor = int(std::max<int64_t>(1, std::min({ofShared, ofRegisters, ofThreads})));
  if (source.templateName == "forward_sm90.cu" || source.templateName == "forward_grid_sm90.cu") {
    const int64_t bytes = problem.kvLen * (options.headDim + options.headDimV) * dtypeBytes(options.dtype);
    work.section =
        plan::sectionOf(problem.batch * problem.kvHeads, bytes, limits.l2Bytes) * (problem.qHeads / problem.kvHeads);
    work.ctasPerMultiprocessor = 1; // persistent: as many CTAs as multiprocessors
  }
  deal(limits, problem, work);
  return work;
}

} // namespace attnc
