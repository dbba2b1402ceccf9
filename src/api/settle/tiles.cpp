#include "api/settle/tiles.h"

#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/outputs.h"
#include "support/try.h"

#include <algorithm>
#include <utility>

namespace attnc {

/// Returns what a launch tells of its walks. A row sees all columns if the host does not know: what captured tensors
/// hold is in device memory.
static plan::WalkFacts walkFacts(const plan::KernelMod& mod, const Captures* captures, const ProblemShape& problem) {
  static const Captures kNone;
  const ir::Module& module = mod.module;
  plan::WalkFacts facts{
      .rows = problem.qLen, .columns = problem.kvLen, .group = problem.kvHeads ? problem.qHeads / problem.kvHeads : 1};
  const std::optional<ir::Value> begin = module.output(ir::kKvBegin), end = module.output(ir::kKvEnd);
  if (!begin || !end || mod.facts.readsTensors) return facts;
  const auto bindings = ir::bind(module, captures ? *captures : kNone, problem);
  if (!bindings) return facts; // the values are not known yet
  const auto edge = [&](ir::Value value) {
    return ir::Evaluator(module, *bindings, value).evaluate(0, 0, 0, problem.qLen / 2, 0).integer;
  };
  const int64_t first = std::max<int64_t>(edge(*begin), 0);
  facts.columns = std::max<int64_t>(std::min(edge(*end), problem.kvLen) - first, 0);
  facts.isWindow = first > 0 && module[*begin].op != ir::Op::Const;
  return facts;
}

std::string modelTile(const plan::Request& request, const Captures* captures, const ProblemShape& problem) {
  return plan::tileOfLaunch(request, [&] { return walkFacts(*request.mod, captures, problem); });
}

Expected<Plan> planTiled(const Context& context, const Mod& derived, plan::Request request, const std::string& asked,
                         const std::string& ofModel, const std::string& shapeClass, std::string passedOver,
                         bool listsAnew) {
  std::optional<FoundChoice> found = asked.empty() ? context.lookup(request, shapeClass) : std::nullopt;
  if (!found)
    request.options.tile = asked.empty() ? ofModel : asked;
  else if (found->tile != plan::candidatesOf(request).front())
    request.options.tile = found->tile;
  ATTNC_TRY_AS(plan, plan::planOf(request));
  const KvLoop kvLoop = kvLoopOf(request, listsAnew);
  return PlanAccess::make({.given = context.mod,
                           .mod = derived,
                           .request = std::move(request),
                           .plan = *std::move(plan),
                           .maxWork = context.maxWork,
                           .kvLoop = kvLoop,
                           .tileFrom = found           ? TileFrom::Tuned
                                       : asked.empty() ? TileFrom::Model
                                                       : TileFrom::Asked,
                           .passedOver = std::move(passedOver),
                           .tunedBy = found ? std::move(found->tunedBy) : std::string()});
}

} // namespace attnc
