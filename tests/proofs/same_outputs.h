// The claim that a rewrite keeps a module's outputs, for Z3.
#pragma once

#include "helpers/take.h"
#include "ir/outputs.h"
#include "proofs/claim.h"
#include "proofs/script.h"
#include "proofs/solver.h"

#include <catch2/catch.hpp>

namespace attnc::test {

/// An operation that stands for the equality of f32 in SMT-LIB, in which -0 is not 0 and NaN is NaN: 1 or 0.
inline constexpr ir::Op kIsOne = ir::Op::Pow;

/// Returns the claim that both modules have equal outputs: numbers bit by bit, NaN to NaN. `lifts`: that they say the
/// same of attention, as lift-masks does: where a score lives, both are equal up to the sign of a zero; a score that
/// does not live any more was -inf or NaN. `pins`: extents and scalars have these values.
inline ir::Module sameOutputs(const ir::Module& before, const ir::Module& after, bool lifts = false,
                              const ir::Pins& pins = {}) {
  using ir::Op, ir::Type, ir::Value;
  ir::Module module;
  auto ofBefore = take(ir::Import::into(module, before)), ofAfter = take(ir::Import::into(module, after));
  const auto logic = [&](Op op, llvm::ArrayRef<Value> operands) { return module.make(op, Type::Bool, operands); };
  const auto isSame = [&](Value a, Value b) {
    if (module[a].type != Type::F32) return logic(Op::Eq, {a, b});
    if (!lifts) return logic(Op::Eq, {module.make(kIsOne, Type::F32, {a, b}), module.constF32(1)});
    const Value areNan = logic(Op::And, {logic(Op::IsNan, {a}), logic(Op::IsNan, {b})});
    return logic(Op::Or, {logic(Op::Eq, {a, b}), areNan});
  };
  const auto outputOf = [&](ir::Import& from, const ir::Module& its, llvm::StringRef name) {
    if (const auto found = its.output(name)) return from.copy(*found);
    return name == llvm::StringRef(ir::kMask) ? module.constBool(true) : module.param(ir::ParamKind::Score);
  };
  Value claim = module.constBool(true);
  std::set<std::string> names;
  for (const ir::Module* one : {&before, &after})
    for (const ir::Output& output : one->outputs()) names.insert(output.name);
  for (const std::string& name : names) {
    if (lifts && (name == ir::kMask.name || name == ir::kScore.name)) continue;
    claim = logic(Op::And, {claim, isSame(outputOf(ofBefore, before, name), outputOf(ofAfter, after, name))});
  }
  if (lifts) {
    const Value lived = outputOf(ofBefore, before, ir::kMask), lives = outputOf(ofAfter, after, ir::kMask),
                was = outputOf(ofBefore, before, ir::kScore), is = outputOf(ofAfter, after, ir::kScore);
    const Value none = module.constF32(-std::numeric_limits<float>::infinity());
    const Value isNone = logic(Op::Or, {logic(Op::IsNan, {was}), logic(Op::Eq, {was, none})});
    const Value dead = logic(Op::Or, {logic(Op::Not, {lived}), isNone});
    const Value same = logic(Op::And, {lived, isSame(was, is)});
    claim = logic(Op::And, {claim, logic(Op::Or, {logic(Op::And, {lives, same}), //
                                                  logic(Op::And, {logic(Op::Not, {lives}), dead})})});
  }
  for (const auto& [name, value] : pins) {
    const auto pinned = [&](Value x) {
      const Type type = module[x].type;
      const Value number = type == Type::F32 ? module.constF32(float(value)) : module.constant(type, value);
      claim = logic(Op::Or, {claim, logic(Op::Ne, {x, number})});
    };
    for (unsigned i = 0; i < module.dims.size(); ++i)
      if (module.dims[i] == name) pinned(module.dim(i));
    for (unsigned i = 0; i < module.scalars.size(); ++i)
      if (module.scalars[i].name == name) pinned(module.scalar(i));
  }
  module.setOutput(ir::kMask, claim);
  return module;
}

/// What a solver says of a claim.
enum class Verdict {
  Proved,
  Wrong,
  Open, ///< Z3 has an example that rests on what it knows only by name: sums, functions
  Slow, ///< no answer in time
};

inline Verdict verdictOf(proofs::Solver& solver, const ir::Module& claim, double seconds) {
  proofs::Script script = proofs::scriptOf(claim, {});
  constexpr std::string_view kDeclared = "(declare-fun f_pow_3 (F F ) F)";
  if (const size_t at = script.text.find(kDeclared); at != std::string::npos)
    script.text.replace(at, kDeclared.size(),
                        "(define-fun f_pow_3 ((a F) (b F)) F ((_ to_fp 8 24) (ite (= a b) #x3f800000 #x00000000)))");
  solver.push();
  take(solver.add(script.text));
  const auto answer = take(solver.check(seconds));
  solver.pop();
  if (answer == proofs::Solver::Answer::Unsat) return Verdict::Proved;
  if (answer == proofs::Solver::Answer::Unknown) return Verdict::Slow;
  for (const std::string& one : script.open)
    if (one.rfind("pow", 0) != 0) return Verdict::Open;
  return Verdict::Wrong;
}

} // namespace attnc::test
