// In: a module after the passes. Out: the low-rank term of the score, if it has one, as the outputs q_factor and
// kv_factor, whose products over all rounds are the term. The score that the mod is given then includes it.
//
//   score = %score + sum over r of u[%q_idx, r] * w[%kv_idx, r]
//                                     =>   score = %score, q_factor = u[%q_idx, %round], kv_factor = w[%kv_idx, %round]
//
// So a kernel can compute the term as further columns of q and k. Several products take rounds one after another.
#include "analysis/low_rank.h"
#include "ir/loops.h"
#include "ir/walk.h"
#include "passes/ir_names.h"
#include "passes/pass.h"
#include "passes/rebuild.h"

#include <llvm/ADT/STLExtras.h>

namespace attnc::passes {
namespace {

using analysis::LowRankTerm;

class Rewriter {
public:
  Rewriter(ir::Module& module, const LowRankTerm& term) : module(module), term(term), line(module[term.sum].line) {}

  /// Returns the factor of a round: that of the part which the round is of.
  Value factorOfRound(LowRankTerm::Factors LowRankTerm::Part::*side, bool isSigned) {
    const Value round = module.param(ir::ParamKind::Round);
    int64_t begin = term.rank;
    std::optional<Value> all;
    for (const LowRankTerm::Part& part : llvm::reverse(term.parts)) {
      const Value behind = module.constInt(Type::I32, begin);
      begin -= part.rank();
      const Value index =
          begin ? module.make(Op::Sub, Type::I32, {round, module.constInt(Type::I32, begin)}, 0, line) : round;
      Value value = product(std::nullopt, part.*side, [&](Value factor) { return atIndex(factor, part.loop, index); });
      if (isSigned && part.isNegative) value = module.make(Op::Neg, Type::F32, {value}, 0, line);
      if (all) value = module.make(Op::Select, Type::F32, {before(round, behind), value, *all}, 0, line);
      all = value;
    }
    return *all;
  }

  /// Makes all outputs take the score with the term as the one that the mod is given.
  void takeOut() {
    Value sum = module.param(ir::ParamKind::Score);
    for (const LowRankTerm::Rest& rest : term.rest) {
      const Value value = product(rest.value, rest.factors, [](Value factor) { return factor; });
      sum = module.make(rest.isNegative ? Op::Sub : Op::Add, Type::F32, {sum, value}, 0, line);
    }
    std::vector<Value> now;
    const uint32_t size = given;
    for (uint32_t id = 0; id < size; ++id) {
      ir::Node node = module[{id}];
      bool changes = false;
      for (Value& operand : node.operands) {
        changes = changes || now[operand.id] != operand;
        operand = now[operand.id];
      }
      now.push_back(Value{id} == term.sum ? sum : changes ? keep(module, node) : Value{id});
    }
    for (ir::Output output : std::vector<ir::Output>(module.outputs())) {
      output.value = now[output.value.id];
      module.setOutput(std::move(output));
    }
  }

private:
  template <class Place>
  Value product(std::optional<Value> first, const LowRankTerm::Factors& factors, const Place& placed) {
    std::optional<Value> all = first;
    for (const auto& [value, divides] : factors)
      if (!divides) all = all ? module.make(Op::Mul, Type::F32, {*all, placed(value)}, 0, line) : placed(value);
    for (const auto& [value, divides] : factors)
      if (divides) all = module.make(Op::Div, Type::F32, {all ? *all : module.constF32(1), placed(value)}, 0, line);
    return all ? *all : module.constF32(1);
  }

  Value before(Value round, Value end) { return module.make(Op::Lt, Type::Bool, {round, end}, 0, line); }

  /// Returns the value in the round `index` of the loop.
  Value atIndex(Value value, std::optional<ir::Loop> loop, Value index) {
    if (!loop) return value;
    const std::vector<ir::LoopSet> open = ir::openLoops(module);
    const std::vector<bool> needed = ir::neededBy(module, {value});
    std::vector<Value> now(value.id + 1);
    for (uint32_t id = 0; id <= value.id; ++id) {
      now[id] = {id};
      if (!needed[id] || !(open[id] & ir::only(*loop))) continue;
      ir::Node node = module[{id}];
      for (Value& operand : node.operands) operand = now[operand.id];
      now[id] = node.op == Op::Iter ? index : keep(module, node);
    }
    return now[value.id];
  }

  ir::Module& module;
  const LowRankTerm& term;
  const uint32_t line;
  const uint32_t given = uint32_t(module.size()); // nodes of the module as it was
};

} // namespace

Status deriveLowRank(ir::Module& module, const PassContext&) {
  const analysis::LowRank found = analysis::lowRank(module);
  if (!found.term) return {};
  Rewriter rewriter(module, *found.term);
  const Value q = rewriter.factorOfRound(&LowRankTerm::Part::q, true);
  const Value kv = rewriter.factorOfRound(&LowRankTerm::Part::kv, false);
  rewriter.takeOut();
  module.setOutput(ir::kQFactor, q);
  module.setOutput(ir::kKvFactor, kv);
  return {};
}

} // namespace attnc::passes
