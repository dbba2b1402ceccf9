// Gathers what is known of a mod, and of settled choices.
#include "attnc/explain.h"

#include "analysis/gather_proofs.h"
#include "analysis/intervals.h"
#include "analysis/wrap_example.h"
#include "api/own_stack.h"
#include "api/plan_impl.h"
#include "inspect/block_map.h"
#include "inspect/mask_census.h"
#include "inspect/operations.h"
#include "inspect/pass_cost.h"
#include "inspect/tile_work.h"
#include "inspect/work.h"
#include "ir/bind.h"
#include "ir/walk.h"
#include "launch/mask_shape.h"
#include "support/try.h"

#include <fmt/format.h>

namespace attnc {
namespace {

GatherProof proofOf(const ir::Module& module, const analysis::GatherProof& proof) {
  const ir::Node& load = module[proof.load];
  const ir::TensorCapture& tensor = module.tensors[size_t(load.attr)];
  return {tensor.name, int(tensor.shape.size()), int(proof.axis), int(load.line), proof.proven, proof.why};
}

GradientSum::Per perOf(const analysis::GradientAccess& access, bool byDiagonals) {
  using Per = GradientSum::Per;
  if (byDiagonals) return Per::Diagonals;
  switch (access.reach) {
  case analysis::Reach::Head: return Per::Tile;
  case analysis::Reach::Row: return Per::Row;
  case analysis::Reach::Column: return Per::Column;
  case analysis::Reach::Diagonal: return Per::Diagonal;
  case analysis::Reach::Element: break;
  }
  return access.once ? Per::OwnElement : Per::Score;
}

std::vector<GradientSum> gradientSums(const plan::Plan& plan) {
  std::vector<GradientSum> sums;
  for (const plan::CaptureAccess& capture : plan.captures) {
    for (const analysis::GradientAccess& access : capture.places)
      sums.push_back({capture.name,
                      capture.inColumns ? GradientSum::Per::Columns : perOf(access, plan::sumsDiagonals(plan)),
                      access.roundMoves});
    if (capture.inSink) sums.push_back({capture.name, GradientSum::Per::Sinks, false});
    if (capture.places.empty() && !capture.inSink) sums.push_back({capture.name, {}, false});
  }
  return sums;
}

/// Returns the first operation of each line whose operands fit into 32 bits, and whose result may not.
std::vector<WideOperation> wideOperations(const ir::Module& module) {
  std::vector<WideOperation> found;
  const std::vector<bool> needed = ir::neededByOutputs(module);
  analysis::Intervals intervals(module);
  const auto isNarrow = [&](ir::Value value) { return intervals.range(value).within(INT32_MIN, INT32_MAX); };
  for (uint32_t id = 0; id < module.size(); ++id) {
    const ir::Node& node = module[{id}];
    if (!needed[id] || node.type != ir::Type::I64 || node.operands.size() != 2) continue;
    if (!found.empty() && found.back().line == int(node.line)) continue;
    const ir::Value a = node.operands[0], b = node.operands[1];
    // A constant of 64 bits takes 64 by itself.
    if (!(isNarrow(a) || module.isConst(a)) || !(isNarrow(b) || module.isConst(b))) continue;
    if (const auto example =
            analysis::wrapExample(node.op, intervals.range(a), intervals.range(b), INT32_MIN, INT32_MAX))
      found.push_back({fmt::format("{} is {}", example->operation, int64_t(example->result)), int(node.line)});
  }
  return found;
}

} // namespace

Expected<ModExplanation> explain(const Mod& mod) {
  return onOwnStack([&]() -> Expected<ModExplanation> {
    ATTNC_TRY_AS(forward, forwardMod(mod));
    const ir::Module& module = forward->module();
    ATTNC_TRY_AS(grids, gridsOf(mod));
    ATTNC_TRY_AS(gradient, scoreGradientOf(mod));
    ModExplanation all{mod,
                       mod.warnings(),
                       operationsOf(module),
                       placesOf(module),
                       {},
                       {},
                       *std::move(grids),
                       *gradient,
                       wideOperations(module),
                       {}};
    ATTNC_TRY_AS(variants, variantsOf(module));
    all.variants = *std::move(variants);
    for (const ir::Output& output : module.outputs())
      if (output.isCondition()) all.conditions.push_back({output.words, int(output.line)});
    for (const analysis::GatherProof& proof : analysis::proveGathers(module))
      all.gathers.push_back(proofOf(module, proof));
    return all;
  });
}

Expected<Explanation> explain(const Compiler& compiler, const Preparation& preparation, const Captures& captures) {
  return onOwnStack([&]() -> Expected<Explanation> {
    const ProblemShape& problem = preparation.problem;
    const Plan& kernel = preparation.last();
    const KernelOptions& options = kernel.options();
    const PlanAccess::Impl& whole = PlanAccess::of(kernel);
    const ir::Module& derived = whole.mod.module();
    ATTNC_TRY_AS(mod, kernel.mod().pinned(options.pins));
    ATTNC_TRY_AS(compiled, compiler.compile(kernel));
    ATTNC_TRY_AS(sources, kernel.sources());
    ATTNC_TRY_AS(inKernel, kernelModOf(whole.mod, formOf(plan::walkingStage(whole.plan))));
    ATTNC_TRY_AS(counted, countedModule(*mod, options));
    ATTNC_TRY_AS(bindings, ir::bind(*counted, captures, problem));
    ATTNC_TRY_AS(boxes, countedOnGrid(whole.mod, whole.plan, captures, problem));
    const BlockMaskShape blocks = plan::smallestMask(*counted, problem, options.maskQBlock, options.maskKvBlock);
    Explanation all{*std::move(mod),      preparation, *std::move(sources),
                    *std::move(compiled), {},          takeCensus(*counted, *bindings, blocks)};
    for (const auto& [name, value] : captures.all())
      if (!std::holds_alternative<TensorView>(value))
        std::visit([&](auto known) { all.scalars.set(name, known); }, value);
    all.boxes = *std::move(boxes);
    all.flops = flopsOf(all.census, all.boxes, preparation);
    all.bytes = leastBytes(all.census, preparation);
    all.operations = operationsOf(derived);
    all.perScore = scoreCostOf((*inKernel)->module, kernel.kvLoop(), options.blockSparse);
    if ((*inKernel)->facts.drops) // the module has dropout in parts; a number is drawn for each score
      for (OperationCounts* count : {&all.perScore.full, &all.perScore.partial}) {
        count->element += all.operations.probMod->element;
        for (const auto& [name, times] : all.operations.probMod->perElement) count->perElement[name] += times;
      }
    ATTNC_TRY_AS(variants, variantsOf(derived));
    all.variants = *std::move(variants);
    constexpr std::string_view kChoosing[] = {"forward_sm90.cu", "decode_sm80.cu", "decode_sm90.cu"};
    if (llvm::is_contained(kChoosing, plan::walkingStage(whole.plan).templateName))
      for (const codegen::Variant& variant : (*inKernel)->variants)
        all.perVariant.push_back(scoreCostOf(variant.module, kernel.kvLoop(), options.blockSparse));
    if (!all.perVariant.empty())
      all.perScore =
          *std::max_element(all.perVariant.begin(), all.perVariant.end(), [](const ScoreCost& a, const ScoreCost& b) {
            return a.partial.element < b.partial.element;
          });
    all.gradients = gradientSums(whole.plan);
    all.places = placesOf(derived);
    all.maps = mapBlocks(*counted, *bindings, blocks);
    all.limits = limitsOf(options.arch);
    auto work = tileWorkOf(*counted, *bindings, all);
    if (work) all.cost = passCostOf(all, *work);
    predictTimes(all);
    if (work && !work->ofKeys) all.work = std::move(work);
    return all;
  });
}

} // namespace attnc
