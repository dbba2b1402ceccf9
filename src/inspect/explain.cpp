// Gathers what is known of a mod, and of settled choices.
#include "attnc/explain.h"

#include "analysis/gather_proofs.h"
#include "analysis/intervals.h"
#include "analysis/wrap_example.h"
#include "api/compiler_access.h"
#include "api/mod_impl.h"
#include "api/own_stack.h"
#include "api/planned_kernel.h"
#include "inspect/block_map.h"
#include "inspect/mask_census.h"
#include "inspect/operations.h"
#include "inspect/tile_work.h"
#include "inspect/work.h"
#include "ir/bind.h"
#include "ir/walk.h"
#include "plan/mask_shape.h"
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
    if (capture.places.empty()) sums.push_back({capture.name, {}, false});
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

/// Returns the choices for the kernel that is explained: of the backward pass if that was settled.
ExplainedKernel chosenKernel(const Preparation& preparation) {
  const auto of = [](const auto& pass) {
    return ExplainedKernel{pass.options, pass.passedOver, {}, {}, pass.kvLoop, pass.tile, pass.tileFrom, pass.tunedBy};
  };
  return preparation.backward ? of(*preparation.backward) : of(preparation);
}

} // namespace

Expected<ModExplanation> explain(const Mod& mod) {
  return onOwnStack([&]() -> Expected<ModExplanation> {
    ATTNC_TRY_AS(forward, forwardMod(mod));
    const ir::Module& module = forward->module();
    ATTNC_TRY_AS(grids, gridsOf(mod));
    ATTNC_TRY_AS(gradient, scoreGradientOf(mod));
    ModExplanation all{
        mod,       mod.warnings(),        operationsOf(module), placesOf(module), {}, {}, *std::move(grids),
        *gradient, wideOperations(module)};
    for (const ir::Output& output : module.outputs())
      if (output.isCondition()) all.conditions.push_back({output.words, int(output.line)});
    for (const analysis::GatherProof& proof : analysis::proveGathers(module))
      all.gathers.push_back(proofOf(module, proof));
    return all;
  });
}

Expected<Explanation> explain(const Compiler& compiler, const Mod& given, const Preparation& preparation,
                              const Captures& captures) {
  return onOwnStack([&]() -> Expected<Explanation> {
    const ProblemShape& problem = preparation.problem;
    ExplainedKernel chosen = chosenKernel(preparation);
    const KernelOptions& kernel = chosen.options;
    ATTNC_TRY_AS(mod, given.pinned(kernel.pins));
    ATTNC_TRY_AS(whole, planned(*mod, kernel));
    const plan::Plan& plan = whole->plan;
    ATTNC_TRY_AS(compiled, CompilerAccess::compile(compiler, *mod, kernel, plan));
    ATTNC_TRY_AS(inKernel, kernelModOf(whole->mod, formOf(plan::walkingStage(plan))));
    ATTNC_TRY_AS(counted, countedModule(*mod, kernel));
    ATTNC_TRY_AS(bindings, ir::bind(*counted, captures, problem));
    ATTNC_TRY_AS(boxes, countedOnGrid(whole->mod, plan, captures, problem));
    chosen.sources = whole->sources();
    chosen.compiled = *std::move(compiled);
    chosen.lowRank = plan.lowRank;
    const BlockMaskShape blocks = plan::smallestMask(*counted, problem, kernel.maskQBlock, kernel.maskKvBlock);
    Explanation all{*std::move(mod), preparation, std::move(chosen), {}, takeCensus(*counted, *bindings, blocks)};
    for (const auto& [name, value] : captures.all())
      if (!std::holds_alternative<TensorView>(value))
        std::visit([&](auto known) { all.scalars.set(name, known); }, value);
    all.boxes = *std::move(boxes);
    all.flops = flopsOf(all.census, all.boxes, preparation);
    all.operations = operationsOf(whole->mod.module());
    all.perScore = scoreCostOf((*inKernel)->module, all.kernel.kvLoop, all.kernel.options.blockSparse);
    all.gradients = gradientSums(plan);
    all.places = placesOf(whole->mod.module());
    all.maps = mapBlocks(*counted, *bindings, blocks);
    all.limits = limitsOf(all.kernel.options.arch);
    all.work = tileWorkOf(*counted, *bindings, all);
    return all;
  });
}

} // namespace attnc
