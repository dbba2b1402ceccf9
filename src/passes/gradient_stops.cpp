// In: any module. Out: only those stop_gradient that matter, which block a gradient's way from what score_mod, sink_mod
// or a sum of the mod returns to the score or the weight that it is given, or to a captured float. Masks, indices and
// conditions have no gradients, so a stop_gradient that only these need is removed.
//
//   %0 = stop_gradient f32 %score
//   %1 = lt f32 0.0, %0                 =>   %0 = lt f32 0.0, %score
//   %2 = select f32 %1, %score, 0.0          %1 = select f32 %0, %score, 0.0
#include "passes/gradient_stops.h"

#include "ir/reductions.h"
#include "passes/ir_names.h"
#include "passes/pass.h"
#include "passes/pipeline.h"
#include "passes/rebuild.h"

namespace attnc::passes {
namespace {

/// Whether the node can pass a gradient on to its f32 operands. Steps and values that are not f32 cannot.
bool passesGradients(const Node& node) { return node.type == Type::F32 && ir::info(node.op).passesGradients; }

/// Returns for each f32 value whether a gradient of a score, a sink or a sum reaches it.
std::vector<bool> reachedByGradients(const ir::Module& module) {
  llvm::SmallVector<Value, 2> results;
  for (const ir::OutputRole& role : {ir::kScore, ir::kSink, ir::kProbWeight})
    if (auto value = module.output(role)) results.push_back(*value);
  for (const ir::Reduction& each : ir::reductionsOf(module))
    if (!each.isMax) results.push_back(*module.output(each.output()));
  return ir::neededBy(module, results, [&](Value value) { return !passesGradients(module[value]); });
}

/// Returns for each value whether it is a stop_gradient that is reached by a gradient and blocks its way to the score
/// or a capture.
std::vector<bool> stopsThatMatter(const ir::Module& module) {
  std::vector<bool> reached = reachedByGradients(module), matters(module.size(), false), carries(module.size(), false);
  for (uint32_t id = 0; id < module.size(); ++id) {
    const Node& node = module[{id}];
    bool isCapture = (node.op == Op::Load || node.op == Op::Scalar) && node.type == Type::F32;
    bool isStop = node.op == Op::StopGradient;
    carries[id] = isScore(module, {id}) || module.isParam({id}, ir::ParamKind::Prob) || isCapture;
    if (isStop && !reached[id]) carries[id] = carries[node.operands[0].id]; // this stop will be removed
    if (isStop && reached[id]) matters[id] = carries[node.operands[0].id];
    if (passesGradients(node))
      for (Value operand : node.operands)
        if (carries[operand.id] && module[operand].type == Type::F32) carries[id] = true;
  }
  return matters;
}

template <class Keeps> void dropStops(ir::Module& module, Keeps keeps) {
  const std::vector<bool> needed = ir::neededByOutputs(module);
  uint32_t id = 0;
  module = rebuild(module, [&](ir::Module& out, const Node& node) {
    while (!needed[id]) ++id;
    bool isDropped = node.op == Op::StopGradient && !keeps(id);
    ++id;
    return isDropped ? node.operands[0] : keep(out, node);
  });
}

} // namespace

bool hasGradientStops(const ir::Module& module) {
  for (uint32_t id = 0; id < module.size(); ++id)
    if (module[{id}].op == Op::StopGradient) return true;
  return false;
}

Status gradientStops(ir::Module& module, const PassContext&) {
  if (!hasGradientStops(module)) return {};
  std::vector<bool> matters = stopsThatMatter(module);
  dropStops(module, [&](uint32_t id) { return matters[id]; });
  return {};
}

Status removeGradientStops(ir::Module& module, const PipelineOptions& options) {
  dropStops(module, [](uint32_t) { return false; });
  return runPipeline(module, options);
}

} // namespace attnc::passes
