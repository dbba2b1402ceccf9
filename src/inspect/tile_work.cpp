#include "inspect/tile_work.h"

#include "api/plan_impl.h"
#include "inspect/block_map.h"
#include "launch/mask_shape.h"
#include "launch/tensor_maps.h"
#include "plan/arch.h"
#include "support/ceil_div.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

namespace attnc {
namespace {

constexpr int64_t kMostDifferent = int64_t(1) << 16; // tiles whose steps are told

/// Whether the last tile of q ends at the last row: kAnchorsAtEnd of templates/algo/forward_parts_sm90.cuh.
bool endsAtLastRow(const Explanation& all, const KernelSource& source) {
  return source.templateName == "forward_sm90.cu" && all.kernel().kvLoop() == KvLoop::Bounds &&
         source.tileRows % source.tileColumns && !all.kernel().options().features.has(Feature::Fp8Q) &&
         !PlanAccess::of(all.kernel()).request.mod->facts.drops;
}

/// Returns what rows of both see.
BlockRow together(const BlockRow& a, const BlockRow& b) {
  return {.first = std::min(a.first, b.first),
          .last = std::max(a.last, b.last),
          .firstFull = std::max(a.firstFull, b.firstFull),
          .lastFull = std::min(a.lastFull, b.lastFull)};
}

/// Fills the steps of tiles that walk blocks of tokens: of q along kv, in backward passes of kv along q. Returns
/// whether it could.
bool fillSteps(const ir::Module& module, const ir::Bindings& bindings, const Explanation& all,
               const KernelSource& source, TileWork& work) {
  const ProblemShape& problem = all.preparation.problem;
  const KernelOptions& options = all.kernel().options();
  const bool byLists = all.kernel().kvLoop() == KvLoop::BlockMask, ofKeys = options.kind == KernelKind::Backward;
  const int own = ofKeys ? source.tileColumns : source.tileRows, step = ofKeys ? source.tileRows : source.tileColumns;
  const int64_t length = ofKeys ? problem.kvLen : problem.qLen, walked = ofKeys ? problem.qLen : problem.kvLen;
  work.tiles = ceilDiv(length, own);
  const int64_t allSteps = ceilDiv(walked, step);
  if (all.kernel().kvLoop() == KvLoop::AllTiles) {
    if (work.tiles > kMostDifferent) return false;
    work.steps.assign(size_t(work.tiles), allSteps);
    work.masked.assign(size_t(work.tiles), all.mod.hasMaskMod() ? allSteps : 0);
    return true;
  }
  const bool anchored = endsAtLastRow(all, source);
  int part = anchored && length % own ? int(std::gcd<int64_t>(own, length % own)) : own; // rows of tiles are parts
  const auto shapeOf = [&](int rows) {
    return ofKeys ? plan::smallestMask(module, problem, step, rows) : plan::smallestMask(module, problem, rows, step);
  };
  BlockMaskShape shape =
      byLists ? plan::smallestMask(module, problem, options.maskQBlock, options.maskKvBlock) : shapeOf(part);
  const int64_t heads = shape.batch * shape.heads;
  if (!byLists && heads * ceilDiv(length, part) > kMostDifferent) shape = shapeOf(part = own);
  work.maskBatch = shape.batch;
  work.maskHeads = shape.heads;
  const int ownBlock = ofKeys ? shape.kvBlock : shape.qBlock, walkedBlock = ofKeys ? shape.qBlock : shape.kvBlock;
  const int64_t rows = ceilDiv(length, ownBlock);
  if (heads * std::max(work.tiles, rows) > kMostDifferent) return false;
  if (part < own) work.firstRow = length - work.tiles * own;
  const BlockRows blocks = rowsOfBlocks(module, bindings, shape, ofKeys);
  work.isEstimate = blocks.isEstimate;
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t tile = 0; tile < work.tiles; ++tile) {
      const int64_t begin = work.firstRow + tile * own;
      const BlockRow* const ofHead = &blocks.rows[size_t(head * rows)];
      BlockRow row = ofHead[std::max<int64_t>(begin, 0) / ownBlock];
      if (byLists) {
        const int64_t ofBlock = ceilDiv(walkedBlock, step);
        work.steps.push_back(std::min(row.live * ofBlock, allSteps));
        work.masked.push_back(std::min((row.live - row.full) * ofBlock, allSteps));
        continue;
      }
      for (int64_t next = std::max<int64_t>(begin, 0) / part + 1; next * part < std::min(begin + own, length); ++next)
        row = together(row, ofHead[next]);
      const int64_t steps = std::max<int64_t>(row.last - row.first + 1, 0);
      work.steps.push_back(row.last < 0 ? 0 : steps);
      work.masked.push_back(work.steps.back() - std::max<int64_t>(row.lastFull - row.firstFull + 1, 0));
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

/// Deals the tiles to CTA slots, first come, first served; those of a cluster to slots of all its CTAs, round robin,
/// each second round backwards (templates/algo/tile_order.cuh).
void deal(const GpuLimits& limits, const ProblemShape& problem, TileWork& work) {
  const int64_t slots =
      std::max<int64_t>(1, int64_t(limits.multiprocessors) * work.ctasPerMultiprocessor / work.clusterCtas);
  std::vector<int64_t> busy(size_t(slots), 0); // steps of each slot; without clusters a heap, the least first
  const int64_t tilesAtOnce = work.clusterCtas / work.clusterHeads, units = ceilDiv(work.tiles, tilesAtOnce);
  const int64_t perBatch = work.heads / problem.batch, group = problem.qHeads / perBatch;
  double sum = 0;
  int64_t index = 0;
  for (int64_t first = 0; first < work.heads; first += work.section)
    for (int64_t unit = units; unit-- > 0;)
      for (int64_t head = first; head < std::min(first + work.section, work.heads);
           head += work.clusterHeads, ++index) {
        const int64_t b = head / perBatch % work.maskBatch, h = head % perBatch * group % work.maskHeads;
        const int64_t tile = work.ofKeys ? units - 1 - unit : unit * tilesAtOnce;
        const int64_t steps = work.steps[size_t((b * work.maskHeads + h) * work.tiles + tile)];
        sum += double(steps);
        if (work.clusterCtas > 1) {
          const int64_t place = index % slots;
          busy[size_t(index / slots % 2 ? slots - 1 - place : place)] += steps;
          continue;
        }
        std::pop_heap(busy.begin(), busy.end(), std::greater<>());
        busy.back() += steps;
        std::push_heap(busy.begin(), busy.end(), std::greater<>());
      }
  work.longest = *std::max_element(busy.begin(), busy.end());
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

const KernelSource& walkingSource(const Explanation& all) {
  const auto walks = [](const KernelSource& source) { return source.tileRows && source.tileColumns; };
  const auto found = std::find_if(all.sources.begin(), all.sources.end(), walks);
  return found == all.sources.end() ? all.sources.front() : *found;
}

std::optional<TileWork> tileWorkOf(const ir::Module& module, const ir::Bindings& bindings, const Explanation& all) {
  const KernelOptions& options = all.kernel().options();
  const ProblemShape& problem = all.preparation.problem;
  const GpuLimits& limits = all.limits;
  const KernelSource& source = walkingSource(all);
  const CompiledKernel& compiled = *all.compiled[size_t(&source - all.sources.data())];
  const bool isBackward = options.kind == KernelKind::Backward, isHopper = options.family == Family::Sm90;
  const bool isKnown = (options.kind == KernelKind::Forward || (isBackward && isHopper)) &&
                       options.family != Family::Naive && !options.features.has(Feature::Ragged) &&
                       limits.multiprocessors && source.tileRows && source.tileColumns;
  if (!isKnown || problem.batch * problem.qHeads == 0 || problem.qLen == 0) return std::nullopt;
  const int64_t group = problem.qHeads / problem.kvHeads;
  const bool ofKvHeads = isBackward && source.templateName != "backward_wide_sm90.cu";
  TileWork work{.heads = problem.batch * (ofKvHeads ? problem.kvHeads : problem.qHeads), .ofKeys = isBackward};
  switch (all.kernel().kvLoop()) {
  case KvLoop::AllTiles:
  case KvLoop::Bounds:
  case KvLoop::BlockMask:
    if (!fillSteps(module, bindings, all, source, work)) return std::nullopt;
    break;
  case KvLoop::Boxes:
    if (!fillBoxes(all, work)) return std::nullopt;
    break;
  case KvLoop::Listed:
  case KvLoop::BoxMask: return std::nullopt;
  }
  constexpr int64_t kMostTiles = int64_t(1) << 22; // that are dealt
  if (work.tiles == 0 || work.heads > kMostTiles / work.tiles) return std::nullopt;
  if (ofKvHeads && group > 1)
    for (std::vector<int64_t>* counts : {&work.steps, &work.masked})
      for (int64_t& count : *counts) count *= group; // a CTA walks the rows of all heads
  const int64_t ofShared = limits.sharedBytesPerMultiprocessor /
                           std::max<int64_t>(1, compiled.staticSharedBytes + compiled.dynamicSharedBytes + 1024);
  const int64_t ofRegisters = limits.registersPerMultiprocessor / std::max(1, compiled.registers * source.threads);
  const int64_t ofThreads = limits.threadsPerMultiprocessor / std::max(1, source.threads);
  work.ctasPerMultiprocessor = int(std::max<int64_t>(1, std::min({ofShared, ofRegisters, ofThreads})));
  if (source.templateName == "forward_sm90.cu" || source.templateName == "forward_grid_sm90.cu") {
    const int64_t bytes = problem.kvLen * (options.headDim + options.headDimV) * dtypeBytes(options.dtype);
    work.section = plan::sectionOf(problem.batch * problem.kvHeads, bytes, limits.l2Bytes) * group;
    work.ctasPerMultiprocessor = 1; // persistent: as many CTAs as multiprocessors
    if (const auto& cluster = plan::walkingStage(PlanAccess::of(all.kernel()).plan).config.cluster)
      work.clusterCtas = cluster->ctas, work.clusterHeads = cluster->heads;
  }
  if (isBackward) work.section = work.heads;
  deal(limits, problem, work);
  return work;
}

} // namespace attnc
