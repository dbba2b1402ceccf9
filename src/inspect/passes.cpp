// The IR between passes, as they run for a kernel.
#include "attnc/stages.h"

#include "api/mod_impl.h"
#include "api/own_stack.h"
#include "passes/autodiff.h"
#include "passes/derive.h"
#include "passes/gradient_stops.h"
#include "passes/pipeline.h"
#include "support/try.h"

#include <fmt/format.h>

namespace attnc {
namespace {

/// Runs what derive() and makeKernelMod() run, on the module as it was traced.
Status runForKernel(const Mod& mod, const KernelOptions& options, const passes::PipelineOptions& pipeline) {
  ir::Module module = tracedModule(mod);
  module.keepsMasks = keepsMasks(options) && mod.masksLifted();
  ATTNC_TRY(passes::runPipeline(module, pipeline));
  if (options.kind == KernelKind::Backward) {
    const std::vector<std::string> captures(options.gradients.begin(), options.gradients.end());
    ATTNC_TRY_AS(gradients, passes::differentiate(module, captures, pipeline));
    module = std::move(gradients->module);
  } else if (passes::hasGradientStops(module)) {
    ATTNC_TRY(passes::removeGradientStops(module, pipeline));
  }
  passes::Algebra algebra = plan::algebraFor(options);
  if (pipeline.printAfter == "derive-low-rank") algebra.lowRank = passes::Algebra::LowRank::Left;
  return passes::deriveForKernels(module, algebra, pipeline);
}

/// Runs the passes that look for grids and for the boxes of keys on them.
Status runForBoxes(const Mod& mod, passes::PipelineOptions pipeline) {
  ir::Module module = tracedModule(mod);
  pipeline.keepsGrids = true;
  ATTNC_TRY(passes::runPipeline(module, pipeline));
  return passes::runPasses(module, {*passes::findPass("derive-grid-box")}, pipeline);
}

} // namespace

std::vector<std::string> passNames() {
  std::vector<std::string> names;
  for (const passes::Pass& pass : passes::allPasses()) names.emplace_back(pass.name);
  return names;
}

Expected<std::string> irTextAfter(const Plan& plan, const std::string& pass) {
  const Mod& mod = plan.mod();
  const KernelOptions& options = plan.options();
  if (pass != "all" && !passes::findPass(pass)) return Error::environment(fmt::format("there is no pass '{}'", pass));
  return onOwnStack([&]() -> Expected<std::string> {
    std::string text;
    passes::PipelineOptions pipeline{.printAfter = pass, .sink = [&](std::string_view lines) { text += lines; }};
    pipeline.pins = options.pins;
    pipeline.sequences = sequenceForm(options);
    const bool ofBoxes = pass == "find-grids" || pass == "derive-grid-box";
    ATTNC_TRY(ofBoxes ? runForBoxes(mod, pipeline) : runForKernel(mod, options, pipeline));
    if (text.empty()) return Error::environment(fmt::format("the pass {} does not run for this kernel", pass));
    return text;
  });
}

} // namespace attnc
