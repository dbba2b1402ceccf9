// In: a module after the passes. Out: of a score with a penalty linear in the distance, score = f + row_shift: what the
// row knows of the penalty has become the output row_shift, which the softmax does not see (it changes the sum of
// exponentials alone), and what the column knows is kv_term, a part of f. ALiBi costs a score one sum then.
//
//   score = %score + %s * (f32(%kv_idx) - f32(%q_idx))
//                                           =>   score = %score + kv_term, kv_term = kv_slope * f32(%kv_idx),
//                                                kv_slope = %s, row_shift = -kv_slope * f32(%q_idx)
//
// Rounding: far from position 0 both terms are large, and their difference is not. So a kernel must count positions
// from near by, from the first row of its tile, say: f and row_shift use f32 positions in this one term alone, and any
// origin that is the same for both gives the same sum. Not: a score that has a factor of its own (scale_out), since the
// shift counts in natural units.
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
