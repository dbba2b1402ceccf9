#include "api/mask_regions.h"

#include <algorithm>
#include <bit>

namespace attnc {
namespace {

int levelsOver(int64_t blocks) { return int(std::bit_width(uint64_t(std::max<int64_t>(blocks, 1) - 1))); }

std::vector<ir::Value> valuesOf(const std::vector<ToldValue>& told) {
  std::vector<ir::Value> list;
  for (const ToldValue& value : told) list.push_back(value.value);
  return list;
}

} // namespace

MaskRegions::MaskRegions(const ir::Module& module, const ir::Bindings& bindings, const BlockMaskShape& shape,
                         int64_t mostReading)
    : module(module), bindings(bindings), shape(shape), told(toldValues(module)), reading(readingCost(told, shape)),
      qBlocks(shape.qBlocks()), kvBlocks(shape.kvBlocks()) {
  if (reading.head + reading.shared > mostReading) { // too much to read even once
    told.clear();
    reading = {};
  }
  for (const ToldValue& value : told)
    shared.push_back(value.knowsHead ? RangePyramid() : RangePyramid(module, bindings, value, shape, 0, 0));
}

analysis::ScoreRect MaskRegions::tileOf(const Region& region, int64_t head) const {
  analysis::ScoreRect tile = placeOf(region);
  tile.b = head / shape.heads;
  tile.h = head % shape.heads;
  return tile;
}

analysis::ScoreRect MaskRegions::placeOf(const Region& region) const {
  analysis::ScoreRect tile;
  tile.qBegin = (int64_t(region.q) << region.qLevel) * shape.qBlock;
  tile.kvBegin = (int64_t(region.kv) << region.kvLevel) * shape.kvBlock;
  tile.qEnd = std::min(tile.qBegin + (int64_t(shape.qBlock) << region.qLevel), shape.qLen);
  tile.kvEnd = std::min(tile.kvBegin + (int64_t(shape.kvBlock) << region.kvLevel), shape.kvLen);
  return tile;
}

Region MaskRegions::whole() const {
  return {0, 0, int8_t(levelsOver(shape.qBlocks())), int8_t(levelsOver(shape.kvBlocks()))};
}

int64_t MaskRegions::qBlocksOf(const Region& region) const {
  return std::min(int64_t(1) << region.qLevel, qBlocks - (int64_t(region.q) << region.qLevel));
}

int64_t MaskRegions::kvBlocksOf(const Region& region) const {
  return std::min(int64_t(1) << region.kvLevel, kvBlocks - (int64_t(region.kv) << region.kvLevel));
}

HeadRegions::HeadRegions(const MaskRegions& mask, int64_t head)
    : mask(mask), b(head / mask.shape.heads), h(head % mask.shape.heads),
      intervals(mask.module, mask.bindings, valuesOf(mask.told)), own(mask.told.size()), ranges(mask.told.size()) {
  for (size_t i = 0; i < own.size(); ++i)
    if (mask.told[i].knowsHead) own[i] = RangePyramid(mask.module, mask.bindings, mask.told[i], mask.shape, b, h);
}

/// Halves the longer side, or both if they are equal. Upper parts come first, and of these the left one.
template <class Visit> void HeadRegions::split(const Region& region, Visit visit) const {
  const int qHalves = region.qLevel >= region.kvLevel ? 2 : 1, kvHalves = region.kvLevel >= region.qLevel ? 2 : 1;
  for (int q = 0; q < qHalves; ++q)
    for (int kv = 0; kv < kvHalves; ++kv) {
      const Region part{int32_t(region.q * qHalves + q), int32_t(region.kv * kvHalves + kv),
                        int8_t(region.qLevel - (qHalves - 1)), int8_t(region.kvLevel - (kvHalves - 1))};
      const bool isInside =
          int64_t(part.q) << part.qLevel < mask.qBlocks && int64_t(part.kv) << part.kvLevel < mask.kvBlocks;
      if (isInside) visit(part);
    }
}

HeadRegions::Rest HeadRegions::judge(int64_t quota,
                                     llvm::function_ref<void(const Region&, analysis::Verdict)> decided) {
  Rest rest;
  std::deque<Region>& regions = rest.unjudged;
  const int64_t cost = std::max<int64_t>(intervals.cost(), 4);
  regions.push_back(mask.whole());
  for (; !regions.empty() && rest.operations < quota; rest.operations += cost) {
    const Region region = regions.front();
    regions.pop_front();
    const analysis::Verdict verdict = verdictOf(region);
    if (holdsWithin(region, verdict))
      decided(region, verdict);
    else if (region.isBlock())
      rest.open.push_back(region);
    else
      split(region, [&](const Region& part) { regions.push_back(part); });
  }
  return rest;
}

void HeadRegions::walk(const Region& region, llvm::function_ref<void(const Region&, analysis::Verdict)> found) {
  const analysis::Verdict verdict = verdictOf(region);
  if (holdsWithin(region, verdict) || region.isBlock()) return found(region, verdict);
  split(region, [&](const Region& part) { walk(part, found); });
}

analysis::Verdict HeadRegions::verdictOf(const Region& region) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const ToldValue& told = mask.told[i];
    const RangePyramid& pyramid = told.knowsHead ? own[i] : mask.shared[i];
    const bool isRow = told.level == ir::Level::Row;
    ranges[i] = &pyramid.of(isRow ? region.q : region.kv, isRow ? region.qLevel : region.kvLevel);
  }
  analysis::ScoreRect tile = mask.placeOf(region);
  tile.b = b;
  tile.h = h;
  return intervals.judge(tile, ranges);
}

} // namespace attnc
