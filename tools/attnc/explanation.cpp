#include "explanation.h"

#include "mod_text.h"
#include "options.h"

#include "kernels/assemble.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <vector>

namespace attnc::cli {
namespace {

/// "50.8 %"; "0 %" if the whole is 0.
std::string percent(double part, double whole) { return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0); }

std::string flopsText(double flops) {
  constexpr const char* kUnits[] = {"MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  size_t unit = 0;
  double number = flops * 1e-6;
  for (; number >= 1e3 && unit + 1 < std::size(kUnits); ++unit) number *= 1e-3;
  if (number >= 1e6) return fmt::format("{:.2e} {}", number, kUnits[unit]);
  return fmt::format("{:.{}f} {}", number, unit == 0 ? 3 : 2, kUnits[unit]);
}

/// A number of blocks; an estimate has three digits.
std::string countText(double count, bool isEstimated) {
  if (!isEstimated) return fmt::format("{:.0f}", count);
  double unit = count < 1000 ? 1 : std::pow(10, std::floor(std::log10(count)) - 2);
  return fmt::format("about {:.0f}", std::round(count / unit) * unit);
}

/// Why the catalogue does not choose the sm90 family on Hopper; empty if it does.
const char* whyNotSm90(const kernels::Plan& plan, const KernelOptions& asked) {
  bool isHopper = plan.options.arch.rfind("sm_90", 0) == 0;
  if (asked.family != Family::Auto || !isHopper || plan.options.family == Family::Sm90) return "";
  if (plan.options.dtype == DType::F32) return "; sm90 takes bf16 and fp16";
  return plan.options.arch == "sm_90a" ? "" : "; sm90 needs arch sm_90a";
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
std::string perElementText(const OperationCount& count) {
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

std::string kernelText(const kernels::Plan& plan, const KernelOptions& asked, const CompiledKernel& compiled) {
  std::string text =
      fmt::format("kernel      family {} for {} ({}{}), {}, head dims {} and {}\n", familyName(plan.options.family),
                  plan.options.arch, plan.templateName, whyNotSm90(plan, asked), dtypeName(plan.options.dtype),
                  plan.options.headDim, plan.options.headDimV);
  text += fmt::format("tile        {} x {} (q rows x kv columns); {} warps compute, {} threads", plan.blockM,
                      plan.blockN, plan.warps, plan.threads);
  if (plan.stages) text += fmt::format("; {} stages of K and V, {} of Q", plan.stages, plan.qStages);
  text += fmt::format("\nresources   {} registers, {} bytes spilled, {} bytes of shared memory\n", compiled.registers,
                      compiled.spillBytes, compiled.staticSharedBytes + compiled.dynamicSharedBytes);
  std::vector<std::string> all = compiled.advisories;
  if (std::string spills = spillText(compiled); !spills.empty()) all.insert(all.begin(), spills);
  std::string advisories;
  for (const std::string& advisory : all)
    advisories += fmt::format("{:12}{}\n", advisories.empty() ? "advisories" : "", advisory);
  text += advisories.empty() ? "advisories  none\n" : advisories;
  if (plan.options.family != Family::Sm90) return text + "layouts     any strides, the last one 1\n";
  return text + fmt::format("layouts     rows aligned to 16 bytes, strides above 0 (of the batch: 0, too); others {}\n",
                            asked.family == Family::Auto ? "go to family sm80" : "are an error");
}

std::string workText(const MaskCensus& census, const ProblemShape& problem, const kernels::Plan& plan, KvLoop loop) {
  const BlockMaskShape& shape = census.shape;
  // Two products, a multiplication and an addition each: q k^T over the head dim of q and k, p v over that of v.
  const double flopsPerPair = 2.0 * (plan.options.headDim + plan.options.headDimV);
  double rows = double(problem.batch) * double(problem.qHeads) * double(problem.qLen);
  double dense = flopsPerPair * rows * double(problem.kvLen);
  double live = 0;
  if (census.blocks > 0) { // the mask of shape.batch x shape.heads serves all of the problem
    const int64_t batchCopies = problem.batch / shape.batch, headCopies = problem.qHeads / shape.heads;
    live = flopsPerPair * double(batchCopies) * double(headCopies) * census.pairs;
  }
  return fmt::format("KV loop     {}\n", loopText(loop)) + blocksText(census, problem, loop) +
         fmt::format("FLOPs       {} dense, {}{} in live blocks ({})\n", flopsText(dense),
                     census.estimated > 0 ? "about " : "", flopsText(live), percent(live, dense));
}

ir::Module moduleInKernel(const ir::Module& module, Family family) {
  return codegen::moduleBehindHooks(module, kernels::modOptions(family));
}

std::string scoreText(const ir::Module& module, KvLoop loop) {
  std::vector<ir::Value> full, partial;
  if (module.scoreMod) full.push_back(*module.scoreMod);
  partial = full;
  const char* extra = "";
  if (loop == KvLoop::Bounds)
    extra = " + a select by the bounds of its row, in place of mask_mod";
  else if (module.maskMod && loop == KvLoop::BlockMask) {
    partial.push_back(*module.maskMod);
    extra = " + a select";
  }
  std::string text = fmt::format("per score   full blocks: {}\n", perElementText(countOperations(module, full)));
  if (loop == KvLoop::AllTiles) return text;
  return text +
         fmt::format("            partial blocks: {}{}\n", perElementText(countOperations(module, partial)), extra);
}

} // namespace attnc::cli
