#include "analysis/mod_facts.h"

#include "analysis/ir_names.h"
#include "analysis/monotony.h"
#include "ir/levels.h"
#include "ir/walk.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/Sequence.h>

namespace attnc::analysis {
namespace {

/// What the score, its gradient and the mask contain.
struct Contents {
  std::array<bool, 5> loads{}; // by level
  bool takesAngles = false;    // for every score; its code is long, so narrow tiles with fewer copies compile faster
  size_t size = 0;             // number of nodes, including leaves
};

/// Returns by Value::id whether a node is part of one of these outputs.
std::vector<bool> neededBy(const ir::Module& module, std::initializer_list<ir::OutputRole> roles) {
  llvm::SmallVector<Value, 4> roots;
  for (const ir::OutputRole& role : roles)
    if (auto value = module.output(role)) roots.push_back(*value);
  return ir::neededBy(module, roots);
}

bool readsHead(const ir::Module& module, std::initializer_list<ir::OutputRole> roles) {
  const std::vector<bool> needed = neededBy(module, roles);
  for (uint32_t id = 0; id < module.size(); ++id)
    if (needed[id] && module.isParam({id}, ir::ParamKind::H)) return true;
  return false;
}

Contents contentsOf(const ir::Module& module) {
  const std::vector<bool> needed = neededBy(module, {ir::kScore, ir::kMask, ir::kDScore});
  const std::vector<Level> levels = ir::levels(module);
  Contents contents;
  for (uint32_t id = 0; id < module.size(); ++id) {
    if (!needed[id]) continue;
    const ir::Node& node = module[{id}];
    ++contents.size;
    if (node.op == Op::Load) contents.loads[size_t(levels[id])] = true;
    const bool isAngle = node.op == Op::Sin || node.op == Op::Cos || node.op == Op::Tan;
    if (isAngle && levels[id] == Level::Element) contents.takesAngles = true;
  }
  return contents;
}

/// Returns by tensor whether only sink_mod reads it: it then says nothing about scores.
std::vector<bool> tensorsOfSink(const ir::Module& module) {
  const std::vector<bool> ofSink = neededBy(module, {ir::kSink}),
                          ofScores =
                              neededBy(module, {ir::kScore, ir::kMask, ir::kDScore, ir::kProbFactor, ir::kProbWeight});
  std::vector<bool> found(module.tensors.size(), false), others = found;
  for (uint32_t id = 0; id < module.size(); ++id) {
    if (module[{id}].op != Op::Load) continue;
    if (ofSink[id]) found[size_t(module[{id}].attr)] = true;
    if (ofScores[id]) others[size_t(module[{id}].attr)] = true;
  }
  for (size_t i = 0; i < found.size(); ++i) found[i] = found[i] && !others[i];
  return found;
}

ScoreForm formOf(const ir::Module& module) {
  const std::optional<Value> score = module.output(ir::kScore);
  if (module.output(ir::kIsWeight)) return ScoreForm::General;
  if (!score || isScore(module, *score)) return ScoreForm::Identity;
  const ir::Node& node = module[*score];
  const auto isSum = [&](unsigned i) {
    return isScore(module, node.operands[i]) && node.operands[1 - i] == module.output(ir::kKvTerm);
  };
  if (node.op == Op::Add && (isSum(0) || isSum(1))) return ScoreForm::Linear;
  const bool isScaled = module.output(ir::kScaleIn) || module.output(ir::kScaleOut);
  if (isScaled && !node.operands.empty() && isScore(module, node.operands[0])) {
    if (node.op == Op::Tanh) return ScoreForm::Tanh;
    if (node.op == Op::TanhApprox) return ScoreForm::TanhApprox;
  }
  return ScoreForm::General;
}

Weight weightOf(const ModFacts& facts, const Contents& contents, const ir::Module& module) {
  if (facts.loadsAt(Level::Element) || contents.takesAngles) return Weight::Heavy;
  if (facts.loadsAt(Level::Column)) return Weight::Gather;
  constexpr size_t kLightMask = 12; // operations including leaves: causal, window, prefix
  const bool hasMask = module.output(ir::kMask).has_value();
  const std::vector<bool> ofSink = tensorsOfSink(module);
  const bool capturesTensors = llvm::any_of(llvm::seq<size_t>(0, module.tensors.size()), [&](size_t i) {
    return !ofSink[i] && !ir::isOfSequences(module.tensors[i]);
  });
  const bool maskIsLight = !hasMask || (!capturesTensors && contents.size <= kLightMask);
  if (facts.form != ScoreForm::Identity || !maskIsLight) return Weight::Medium;
  return hasMask ? Weight::Light : Weight::None;
}

std::optional<KvEdges> edgesOf(const ir::Module& module) {
  const std::optional<Value> begin = module.output(ir::kKvBegin), end = module.output(ir::kKvEnd);
  if (!begin || !end) return std::nullopt;
  Intervals intervals(module);
  Monotony monotony(module, intervals);
  return KvEdges{monotony.of(*begin) == Direction::Down, monotony.of(*end) == Direction::Down};
}

} // namespace

ModFacts modFacts(const ir::Module& module) {
  const Contents contents = contentsOf(module);
  ModFacts facts;
  facts.loads = contents.loads;
  facts.form = formOf(module);
  facts.weight = weightOf(facts, contents, module);
  const std::optional<Value> mask = module.output(ir::kMask);
  facts.masks = mask && !(module.isConst(*mask) && module.integer(*mask));
  facts.drops = module.output(ir::kDropSeed).has_value();
  facts.isWeight = module.output(ir::kIsWeight).has_value();
  facts.hasProbMod = facts.drops || module.output(ir::kProbFactor);
  facts.hasProbWeight = module.output(ir::kProbWeight).has_value();
  facts.readsTensors = llvm::is_contained(tensorsOfSink(module), false);
  facts.masksByHead = readsHead(module, {ir::kMask, ir::kKvBegin, ir::kKvEnd});
  const std::optional<Value> dScore = module.output(ir::kDScore);
  facts.passesGradient = dScore && !(module.isConst(*dScore) && module.f32(*dScore) == 0);
  facts.keepsGradient = dScore && module.isParam(*dScore, ir::ParamKind::Grad);
  facts.kvEdges = edgesOf(module);
  return facts;
}

} // namespace attnc::analysis
