#include "explanation.h"

#include "mod_text.h"
#include "options.h"

#include "kernels/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace attnc::cli {
namespace {

/// "50.8 %"; of nothing, 0 %.
std::string percent(double part, double whole) { return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0); }

std::string flopsText(double flops) {
  if (flops >= 1e12) return fmt::format("{:.2f} TFLOP", flops * 1e-12);
  if (flops >= 1e9) return fmt::format("{:.2f} GFLOP", flops * 1e-9);
  return fmt::format("{:.3f} MFLOP", flops * 1e-6);
}

/// Scores inside the live blocks of a mask, without what lies past the lengths.
double livePairs(const BlockMaskView& mask) {
  const BlockMaskShape& shape = mask.shape;
  double pairs = 0;
  for (int64_t row = 0; row < shape.batch * shape.heads * shape.qBlocks(); ++row) {
    int64_t rows = std::min<int64_t>(shape.qBlock, shape.qLen - row % shape.qBlocks() * shape.qBlock);
    auto add = [&](const int32_t* index, int32_t count) {
      for (int32_t i = 0; i < count; ++i)
        pairs += double(rows) * double(std::min<int64_t>(shape.kvBlock, shape.kvLen - index[i] * shape.kvBlock));
    };
    add(mask.partialIndex + row * mask.indexStride, mask.partialCount[row]);
    add(mask.fullIndex + row * mask.indexStride, mask.fullCount[row]);
  }
  return pairs;
}

/// Why the catalogue leaves Hopper's own family aside on Hopper; empty where it does not.
const char* whyNotSm90(const kernels::Plan& plan, const KernelOptions& asked) {
  bool isHopper = plan.options.arch.rfind("sm_90", 0) == 0;
  if (asked.family != Family::Auto || !isHopper || plan.options.family == Family::Sm90) return "";
  if (plan.options.dtype == DType::F32) return "; sm90 takes bf16 and fp16";
  return plan.options.arch == "sm_90a" ? "" : "; sm90 needs arch sm_90a";
}

std::string blocksText(const BlockMask& mask, const ProblemShape& problem, KvLoop loop) {
  const BlockMaskShape& shape = mask.shape();
  int64_t all = shape.batch * shape.heads * shape.qBlocks() * shape.kvBlocks();
  int64_t live = mask.liveBlocks(), full = mask.fullBlocks();
  auto line = [&](const char* label, int64_t count, const char* why = "") {
    return fmt::format("            {:8}{:>12}  {:>7}{}\n", label, count, percent(double(count), double(all)), why);
  };
  const char* whyPartial = loop == KvLoop::AllTiles && live > full ? "  cut by the ends of the lengths" : "";
  std::string scope = "every batch entry and head has its own";
  if (shape.batch == 1 && problem.batch > 1)
    scope = shape.heads == 1 && problem.qHeads > 1 ? "the same in all batch entries and heads"
                                                   : "the same in all batch entries";
  else if (shape.heads == 1 && problem.qHeads > 1)
    scope = "the same in all heads";
  return fmt::format("blocks      {} of {} x {}; {}\n", all, shape.qBlock, shape.kvBlock, scope) + line("live", live) +
         line("partial", live - full, whyPartial) + line("full", full) + line("empty", all - live);
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
  std::string advisories;
  for (const std::string& advisory : compiled.advisories)
    advisories += fmt::format("{:12}{}\n", advisories.empty() ? "advisories" : "", advisory);
  text += advisories.empty() ? "advisories  none\n" : advisories;
  if (plan.options.family != Family::Sm90) return text + "layouts     any strides, the last one 1\n";
  return text + fmt::format("layouts     rows aligned to 16 bytes, strides above 0 (of the batch: 0, too); others {}\n",
                            asked.family == Family::Auto ? "go to family sm80" : "are an error");
}

std::string workText(const BlockMask& mask, const ProblemShape& problem, const kernels::Plan& plan, KvLoop loop) {
  const BlockMaskShape& shape = mask.shape();
  // Two products, a multiplication and an addition each: q k^T over the head dim of q and k, p v over that of v.
  const double flopsPerPair = 2.0 * (plan.options.headDim + plan.options.headDimV);
  double rows = double(problem.batch) * double(problem.qHeads) * double(problem.qLen);
  double dense = flopsPerPair * rows * double(problem.kvLen);
  double copies = double(problem.batch / shape.batch) * double(problem.qHeads / shape.heads);
  double live = flopsPerPair * copies * livePairs(mask.view());
  return fmt::format("KV loop     {}\n", loopText(loop)) + blocksText(mask, problem, loop) +
         fmt::format("FLOPs       {} dense, {} in live blocks ({})\n", flopsText(dense), flopsText(live),
                     percent(live, dense));
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
