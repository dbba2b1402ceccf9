#include "inspect/operations.h"

#include "analysis/grid_box.h"
#include "analysis/operation_count.h"
#include "inspect/expression.h"
#include "ir/levels.h"
#include "passes/variant.h"
#include "support/try.h"

#include <fmt/format.h>

#include <vector>

namespace attnc {
namespace {

OperationCounts countsOf(const analysis::OperationCount& count) {
  return {count.at(ir::Level::Launch), count.at(ir::Level::Head),    count.at(ir::Level::Row),
          count.at(ir::Level::Column), count.at(ir::Level::Element), count.perElement};
}

/// Counts the operations of d_score that score_mod does not also need. Precondition: the module has d_score.
analysis::OperationCount gradientOperations(const ir::Module& module) {
  std::vector<ir::Value> roots;
  if (auto score = module.output(ir::kScore)) roots.push_back(*score);
  const analysis::OperationCount forward = analysis::countOperations(module, roots);
  roots.push_back(*module.output(ir::kDScore));
  analysis::OperationCount more = analysis::countOperations(module, roots);
  for (size_t level = 0; level < more.byLevel.size(); ++level) more.byLevel[level] -= forward.byLevel[level];
  for (const auto& [name, times] : forward.perElement)
    if ((more.perElement[name] -= times) == 0) more.perElement.erase(name);
  return more;
}

/// Whether a box kernel only tests the box of a query and not mask_mod. False for other kernels.
bool boxIsMask(const ir::Module& module, KvLoop loop) {
  if (loop != KvLoop::Boxes) return false;
  const auto box = analysis::gridBox(module);
  return box && box->isMask();
}

} // namespace

ModOperations operationsOf(const ir::Module& module) {
  ModOperations all;
  for (auto [count, role] : {std::pair(&all.scoreMod, ir::kScore),
                             {&all.maskMod, ir::kMask},
                             {&all.probMod, ir::kProbFactor},
                             {&all.probMod, ir::kProbWeight},
                             {&all.sinkMod, ir::kSink}})
    if (auto root = module.output(role)) *count = countsOf(analysis::countOperations(module, *root));
  if (module.output(ir::kDScore)) all.dScore = countsOf(gradientOperations(module));
  return all;
}

Expected<std::vector<ModVariant>> variantsOf(const ir::Module& module) {
  std::vector<ModVariant> all;
  const std::optional<analysis::Variants> variants = analysis::findVariants(module);
  for (size_t i = 0; variants && i < variants->size(); ++i) {
    ATTNC_TRY_AS(variant, passes::variantOf(module, *variants, i));
    const std::string& which = module.tensors[size_t(module[variants->which].attr)].name;
    const bool isRest = i == variants->numbers.size();
    all.push_back(
        {isRest ? "otherwise" : fmt::format("{}[b] == {}", which, variants->numbers[i]), operationsOf(*variant)});
  }
  return all;
}

std::vector<ModOperation> placesOf(const ir::Module& module) {
  constexpr size_t kWidth = 60;
  const std::vector<ir::Level> levels = ir::levels(module);
  std::vector<ModOperation> places;
  const auto add = [&](const char* function, std::vector<uint64_t> times) {
    for (uint32_t id = 0; id < module.size(); ++id) {
      if (!times[id]) continue;
      const ir::Node& node = module[{id}];
      std::string text = writtenOut(module, {id}, kWidth, [](ir::Value) { return std::string("..."); });
      if (isWidening(module, node)) text = fmt::format("{}({})", ir::name(node.type), text);
      places.push_back(
          {function, int(node.line), ir::info(node.op).text, std::move(text), ir::name(levels[id]), times[id]});
    }
  };
  std::vector<uint64_t> ofScore(module.size(), 0);
  if (auto root = module.output(ir::kScore)) add("score_mod", ofScore = analysis::timesComputed(module, *root));
  if (auto root = module.output(ir::kMask)) add("mask_mod", analysis::timesComputed(module, *root));
  for (const ir::OutputRole& role : {ir::kProbFactor, ir::kProbWeight})
    if (auto root = module.output(role)) add("prob_mod", analysis::timesComputed(module, *root));
  if (auto root = module.output(ir::kSink)) add("sink_mod", analysis::timesComputed(module, *root));
  if (auto root = module.output(ir::kDScore)) {
    std::vector<uint64_t> more = analysis::timesComputed(module, *root);
    for (size_t id = 0; id < more.size(); ++id) more[id] = ofScore[id] ? 0 : more[id];
    add("d_score", std::move(more));
  }
  return places;
}

ScoreCost scoreCostOf(const ir::Module& module, KvLoop loop, bool hasFullBlocks) {
  const bool byBox = boxIsMask(module, loop);
  ScoreCost cost;
  std::vector<ir::Value> full, partial;
  for (const ir::OutputRole& role : {ir::kScore, ir::kProbFactor})
    if (auto root = module.output(role)) full.push_back(*root);
  partial = full;
  cost.masksAllBlocks =
      loop == KvLoop::AllTiles || (loop == KvLoop::Listed && !hasFullBlocks) || (loop == KvLoop::Boxes && !byBox);
  if (byBox)
    cost.select = MaskSelect::Box;
  else if (loop == KvLoop::Bounds)
    cost.select = MaskSelect::Bounds;
  else if (auto mask = module.output(ir::kMask)) {
    partial.push_back(*mask);
    cost.select = MaskSelect::Mask;
  }
  cost.partial = countsOf(analysis::countOperations(module, partial));
  cost.full = cost.masksAllBlocks ? cost.partial : countsOf(analysis::countOperations(module, full));
  if (module.output(ir::kDScore)) cost.gradient = countsOf(gradientOperations(module));
  return cost;
}

} // namespace attnc
