#include "explanation.h"

#include "json_report.h"
#include "mod_text.h"

namespace attnc::cli {
namespace {

const char* kindName(KernelKind kind) {
  switch (kind) {
  case KernelKind::Forward: return "forward";
  case KernelKind::Backward: return "backward";
  case KernelKind::BlockMask: return "blockMask";
  case KernelKind::Decode: return "decode";
  }
  return "?";
}

const char* loopName(KvLoop loop) {
  switch (loop) {
  case KvLoop::AllTiles: return "allTiles";
  case KvLoop::Bounds: return "bounds";
  case KvLoop::BlockMask: return "blockMask";
  case KvLoop::Listed: return "listed";
  case KvLoop::Boxes: return "boxes";
  case KvLoop::BoxMask: return "boxMask";
  }
  return "?";
}

JsonReport tileJson(const Preparation& preparation) {
  const ChosenTile chosen = tileOf(preparation);
  switch (chosen.from) {
  case TileFrom::Model: return {{"tile", chosen.tile}, {"from", "model"}};
  case TileFrom::Tuned: return {{"tile", chosen.tile}, {"from", "tuned"}, {"tunedBy", chosen.tunedBy}};
  case TileFrom::Asked: return {{"tile", chosen.tile}, {"from", "asked"}};
  }
  return {};
}

JsonReport launchJson(const KernelSource& source, const CompiledKernel& compiled) {
  JsonReport json{{"entry", source.entry}, {"template", source.templateName}, {"threads", source.threads}};
  if (source.tileRows) {
    json["tile"] = {{"rows", source.tileRows}, {"columns", source.tileColumns}};
    json["warps"] = source.warps;
  }
  if (source.kvStages) json["kvStages"] = source.kvStages;
  if (source.qStages) json["qStages"] = source.qStages;
  json["registers"] = compiled.registers;
  json["spillBytes"] = compiled.spillBytes;
  json["sharedBytes"] = compiled.staticSharedBytes + compiled.dynamicSharedBytes;
  json["advisories"] = compiled.advisories;
  return json;
}

JsonReport kernelJson(const Kernel& kernel) {
  const KernelOptions& options = kernel.options;
  JsonReport json{{"kind", kindName(options.kind)},
                  {"family", familyName(options.family)},
                  {"arch", options.arch},
                  {"dtype", dtypeName(options.dtype)},
                  {"kvDtype", options.features.has(Feature::Fp8Kv) ? "e4m3" : dtypeName(options.dtype)},
                  {"headDim", options.headDim},
                  {"headDimV", options.headDimV}};
  if (!kernel.passedOver.empty()) json["passedOver"] = kernel.passedOver;
  json["launches"] = JsonReport::array();
  for (size_t i = 0; i < kernel.sources.size(); ++i)
    json["launches"].push_back(launchJson(kernel.sources[i], *kernel.compiled[i]));
  return json;
}

JsonReport blocksJson(const MaskCensus& census) {
  const BlockMaskShape& shape = census.shape;
  JsonReport json{{"qBlock", shape.qBlock},
                  {"kvBlock", shape.kvBlock},
                  {"batch", shape.batch},
                  {"heads", shape.heads},
                  {"all", census.blocks},
                  {"partial", census.live - census.full},
                  {"full", census.full},
                  {"empty", census.blocks - census.live},
                  {"isEstimate", census.estimated > 0}};
  if (census.estimated > 0) json["undecided"] = {{"blocks", census.estimated}, {"sampled", census.sampled}};
  return json;
}

JsonReport boxesJson(const GridCensus& census) {
  JsonReport json{{"queryBox", census.queryBox},    {"keyBox", census.keyBox}, {"tiles", census.tiles},
                  {"steps", census.steps},          {"pairs", census.visited}, {"livePairs", census.live},
                  {"isEstimate", census.isEstimate}};
  if (census.full) json["full"] = *census.full;
  return json;
}

/// Counts the operations per score.
uint64_t perScore(const ir::Module& module, bool withMask) {
  std::vector<ir::Value> roots;
  if (auto score = module.output(ir::kScore)) roots.push_back(*score);
  if (auto mask = module.output(ir::kMask); mask && withMask) roots.push_back(*mask);
  return analysis::countOperations(module, roots).at(ir::Level::Element);
}

} // namespace

std::string explanationJson(const Explanation& all) {
  const ProblemShape& problem = all.settled.problem;
  const KvLoop loop = all.settled.backward ? all.settled.backward->kvLoop : all.settled.kvLoop;
  const bool masksByElement = loop != KvLoop::Bounds && !boxIsMask(all.inKernel, loop);
  JsonReport json = modJson(all.mod);
  json["kernel"] = kernelJson(all.kernel);
  json["tile"] = tileJson(all.settled);
  if (!all.settled.whyKind.empty()) json["choice"] = all.settled.whyKind;
  json["workspaceBytes"] = all.settled.workspaceBytes;
  json["problem"] = {{"B", problem.batch},
                     {"H", problem.qHeads},
                     {"HKV", problem.kvHeads},
                     {"Q_LEN", problem.qLen},
                     {"KV_LEN", problem.kvLen}};
  json["values"] = valuesJson(all.captures);
  json["kvLoop"] = loopName(loop);
  json["blocks"] = blocksJson(all.census);
  if (all.grid) json["boxes"] = boxesJson(*all.grid);
  const WorkFlops flops = flopsOf(all.census, all.grid, all.settled);
  json["flops"] = {{"dense", flops.dense}, {"live", flops.live}};
  json["operations"] = operationsJson(all.derived.module());
  json["perScore"] = {{"full", perScore(all.inKernel, masksAllBlocks(all.inKernel, loop))},
                      {"partial", perScore(all.inKernel, masksByElement)}};
  return jsonText(json);
}

} // namespace attnc::cli
