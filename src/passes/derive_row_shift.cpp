// In: a module after the passes. Out: if the score has a penalty linear in the distance, score = f + row_shift. The
// penalty's row part becomes the output row_shift; it only changes the softmax's sum of exponentials, not its result.
// The column part becomes kv_term, a part of f. So ALiBi costs one addition per score.
//
//   score = %score + %s * (f32(%kv_idx) - f32(%q_idx))
//                                           =>   score = %score + kv_term, kv_term = kv_slope * f32(%kv_idx),
//                                                kv_slope = %s, row_shift = -kv_slope * f32(%q_idx)
//
// Rounding: far from position 0 both terms are large, but their difference is small. So a kernel must count positions
// from a nearby origin, such as the first row of its tile. Any origin shared by f and row_shift gives the same sum,
// since f32 positions occur only in this term. Not: a score with a factor of its own (scale_out), since the shift
// counts in natural units.
#include "analysis/distance_term.h"
#include "passes/pass.h"
#include "passes/rebuild.h"

namespace attnc::passes {

Status deriveRowShift(ir::Module& module, const PassContext&) {
  using ir::Op, ir::Value;
  if (module.output(ir::kRowShift) || module.output(ir::kScaleOut)) return {};
  std::optional<analysis::DistanceTerm> term = analysis::distanceTerm(module);
  if (!term) return {};
  auto product = [&](Value x, Value y) { return module.make(Op::Mul, ir::Type::F32, {x, y}, 0, term->line); };
  auto negated = [&](Value x) { return module.make(Op::Neg, ir::Type::F32, {x}, 0, term->line); };
  const Value factor = term->slope ? *term->slope : module.constF32(1);
  const Value slope = term->isReversed ? negated(factor) : factor;
  const Value column = product(slope, term->kv);
  const Value shift = product(term->isSubtracted ? slope : negated(slope), term->q);
  Value score = column;
  while (!term->path.empty()) {
    auto [sum, operand] = term->path.pop_back_val();
    ir::Node node = module[sum];
    node.operands[operand] = score;
    score = keep(module, node);
  }
  module.setOutput(ir::kScore, score);
  module.setOutput(ir::kRowShift, shift);
  module.setOutput(ir::kKvSlope, slope);
  module.setOutput(ir::kKvTerm, column);
  return {};
}

} // namespace attnc::passes
