#include "families/append.h"

#include "support/ceil_div.h"

namespace attnc::plan {
namespace {

int64_t perTileOfNewRows(const Stage& stage, const LaunchOperands& operands, const Device&) {
  return operands.problem.kvHeads * qTilesOf(operands, stage.config.blockM);
}

Expected<ParameterBlock> appendParameters(const Stage& stage, const LaunchOperands& operands, const Device&,
                                          const WorkspaceView&) {
  return withCache(forwardParams(operands), stage, operands);
}

} // namespace

bool appendsByItself(const KernelOptions& options) {
  return options.kind == KernelKind::Decode && options.features.has(Feature::Appends) &&
         !options.features.has(Feature::Ragged) && !options.features.has(Feature::Fp8Kv);
}

void addAppending(Plan& plan, const Request& request) {
  if (!request.options.features.has(Feature::Appends) || appendsByItself(request.options)) return;
  const Tile tile{32, 0, 4};
  codegen::Config config = configOf(request.options, tile);
  config.appends = true;
  config.fp8 = request.options.features.has(Feature::Fp8Q);
  config.constants = codegen::constantText("kFp8Kv", request.options.features.has(Feature::Fp8Kv) && !*config.fp8);
  plan.stages.insert(plan.stages.begin(), {.templateName = "append.cu",
                                           .entry = "attnc_append",
                                           .config = std::move(config),
                                           .algebra = plan.stages.front().algebra, // the only one that the plan uses
                                           .threads = 32 * tile.warps,
                                           .ctas = perTileOfNewRows,
                                           .parameters = appendParameters});
}

} // namespace attnc::plan
