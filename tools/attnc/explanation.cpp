#include "explanation.h"

#include "mod_text.h"
#include "options.h"

#include "plan/family.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <vector>

namespace attnc::cli {
namespace {

/// "50.8 %"; of nothing, 0 %.
std::string percent(double part, double whole) { return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0); }

std::string flopsText(double flops) {
  constexpr const char* kUnits[] = {"MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  size_t unit = 0;
  double number = flops * 1e-6;
  for (; number >= 1e3 && unit + 1 < std::size(kUnits); ++unit) number *= 1e-3;
  if (number >= 1e6) return fmt::format("{:.2e} {}", number, kUnits[unit]);
  return fmt::format("{:.{}f} {}", number, unit == 0 ? 3 : 2, kUnits[unit]);
}

/// A number of blocks; of estimated ones, three digits.
std::string countText(double count, bool isEstimated) {
  if (!isEstimated) return fmt::format("{:.0f}", count);
  double unit = count < 1000 ? 1 : std::pow(10, std::floor(std::log10(count)) - 2);
  return fmt::format("about {:.0f}", std::round(count / unit) * unit);
}

std::string blocksText(const MaskCensus& census, const ProblemShape& problem, KvLoop loop) {
  const BlockMaskShape& shape = census.shape;
  const bool isEstimated = census.estimated > 0;
  auto line = [&](const char* label, double count, const char* why = "") {
    return fmt::format("            {:8}{:>12}  {:>7}{}\n", label, countText(count, isEstimated),
                       percent(count, census.blocks), why);
  };
  const char* whyPartial = loop == KvLoop::AllTiles && census.live > census.full ? "  cut by the ends of the lengths" : "";
  std::string scope = "every batch entry and head has its own";
  if (shape.batch == 1 && problem.batch > 1)
    scope = shape.heads == 1 && problem.qHeads > 1 ? "the same in all batch entries and heads"
                                                   : "the same in all batch entries";
  else if (shape.heads == 1 && problem.qHeads > 1)
    scope = "the same in all heads";
  std::string text =
      fmt::format("blocks      {:.0f} of {} x {}; {}\n", census.blocks, shape.qBlock, shape.kvBlock, scope) +
      line("live", census.live) + line("partial", census.live - census.full, whyPartial) + line("full", census.full) +
      line("empty", census.blocks - census.live);
  if (!isEstimated) return text;
  return text + fmt::format("            {:.0f} of {:.0f} undecided blocks ({}) were sampled\n", census.sampled,
                            census.estimated, percent(census.sampled, census.estimated));
}

const char* loopText(KvLoop loop) {
  switch (loop) {
  case KvLoop::AllTiles: return "all tiles: the mod masks nothing";
  case KvLoop::Bounds: return "bounds computed by the mod: no block mask is built or read";
  case KvLoop::BlockMask: return "block mask: lists of the partial and the full blocks, given at launch";
  }
  return "?";
}

/// "3 (add, 2 mul)"
std::string perElementText(const analysis::OperationCount& count) {
  std::string names;
  for (const auto& [name, times] : count.perElement)
    names += fmt::format("{}{}{}", names.empty() ? "" : ", ", times > 1 ? std::to_string(times) + " " : "", name);
  const uint64_t all = count.at(ir::Level::Element);
  return all ? fmt::format("{} ({})", all, names) : "0";
}

} // namespace

std::string spillText(const CompiledKernel& compiled) {
  if (compiled.spillBytes == 0) return "";
  return fmt::format(
      "{} bytes of registers are spilled to memory, which costs speed: the mod takes more registers than "
      "the tile leaves",
      compiled.spillBytes);
}

std::string kernelText(const plan::Plan& plan, const KernelOptions& asked, const CompiledKernel& compiled) {
  const plan::Stage& stage = plan.stages.front();
  const codegen::Config& config = stage.config;
  std::string text = fmt::format("kernel      family {} for {} ({}{}), {}, head dims {} and {}\n",
                                 familyName(plan.options.family), plan.options.arch, stage.templateName,
                                 plan.unserved.empty() ? "" : "; " + plan.unserved, dtypeName(plan.options.dtype),
                                 plan.options.headDim, plan.options.headDimV);
  text += fmt::format("tile        {} x {} (q rows x kv columns); {} warps compute, {} threads", config.blockM,
                      config.blockN, config.warps, stage.threads);
  if (config.kvStages) text += fmt::format("; {} stages of K and V, {} of Q", config.kvStages, config.qStages);
  text += fmt::format("\nresources   {} registers, {} bytes spilled, {} bytes of shared memory\n", compiled.registers,
                      compiled.spillBytes, compiled.staticSharedBytes + compiled.dynamicSharedBytes);
  std::vector<std::string> all = compiled.advisories;
  if (std::string spills = spillText(compiled); !spills.empty()) all.insert(all.begin(), spills);
  std::string advisories;
  for (const std::string& advisory : all)
    advisories += fmt::format("{:12}{}\n", advisories.empty() ? "advisories" : "", advisory);
  text += advisories.empty() ? "advisories  none\n" : advisories;
  const plan::FamilyRow& row = plan::familyOf(plan);
  text += fmt::format("layouts     {}", row.layouts);
  if (row.checkLayout == plan::takesAnyLayout) return text + "\n";
  if (asked.family != Family::Auto) return text + "; others are an error\n";
  for (const plan::FamilyRow* other : plan::families())
    if (other->kind == row.kind && other->checkLayout == plan::takesAnyLayout)
      return text + fmt::format("; others go to family {}\n", other->name);
  return text + "\n";
}

std::string workText(const MaskCensus& census, const ProblemShape& problem, const plan::Plan& plan, KvLoop loop) {
  const BlockMaskShape& shape = census.shape;
  // Two products, a multiplication and an addition each: q k^T over the head dim of q and k, p v over that of v.
  const double flopsPerPair = 2.0 * (plan.options.headDim + plan.options.headDimV);
  double rows = double(problem.batch) * double(problem.qHeads) * double(problem.qLen);
  double dense = flopsPerPair * rows * double(problem.kvLen);
  double copies = census.blocks > 0 ? double(problem.batch / shape.batch) * double(problem.qHeads / shape.heads) : 0;
  double live = flopsPerPair * copies * census.pairs;
  return fmt::format("KV loop     {}\n", loopText(loop)) + blocksText(census, problem, loop) +
         fmt::format("FLOPs       {} dense, {}{} in live blocks ({})\n", flopsText(dense),
                     census.estimated > 0 ? "about " : "", flopsText(live), percent(live, dense));
}

std::string scoreText(const ir::Module& module, KvLoop loop) {
  std::vector<ir::Value> full, partial;
  if (auto score = module.output(ir::kScore)) full.push_back(*score);
  partial = full;
  const char* extra = "";
  if (loop == KvLoop::Bounds)
    extra = " + a select by the bounds of its row, in place of mask_mod";
  else if (auto mask = module.output(ir::kMask); mask && loop == KvLoop::BlockMask) {
    partial.push_back(*mask);
    extra = " + a select";
  }
  std::string text =
      fmt::format("per score   full blocks: {}\n", perElementText(analysis::countOperations(module, full)));
  if (loop == KvLoop::AllTiles) return text;
  return text + fmt::format("            partial blocks: {}{}\n",
                            perElementText(analysis::countOperations(module, partial)), extra);
}

} // namespace attnc::cli
