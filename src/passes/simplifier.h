// The machinery of the pass simplify: a node builder that applies the rules as it builds.
//
// A rule is one line: a condition, the result, and the equation in a comment. Rules of f32 are exact in IEEE arithmetic
// for every operand, including NaN, infinities and signed zeros (NaN payloads aside). Integer rules hold with
// wrap-around unless they consult the interval analysis. Termination: a rule makes the expression smaller; or keeps its
// size and moves a constant to the right or outwards, turns lt into le, turns sub of a constant into add, or turns f32
// div into mul; or has fewer operations of i64 other than casts. No rule reverses another.
#pragma once

#include "analysis/intervals.h"
#include "passes/pass.h"

#include <optional>

namespace attnc::passes {

using analysis::cannotWrap;
using analysis::Range;

class Simplifier {
public:
  Simplifier(ir::Module& out, const Pins& pins) : out(out), intervals(out, pins) {}

  /// Returns the simplest known node that equals `node`. Its operands must be simplified already.
  ir::Value build(const ir::Node& node);

private:
  using Op = ir::Op;
  using Node = ir::Node;
  using Type = ir::Type;
  using Value = ir::Value;
  using Rewritten = std::optional<Value>;

  Rewritten apply(const Node& n);
  // simplify_arithmetic.cpp
  Rewritten addIntegers(const Node& n, Value x, Value y);
  Rewritten subIntegers(const Node& n, Value x, Value y);
  Rewritten mulIntegers(const Node& n, Value x, Value y);
  Rewritten addReals(const Node& n, Value x, Value y);
  Rewritten subReals(const Node& n, Value x, Value y);
  Rewritten mulReals(const Node& n, Value x, Value y);
  Rewritten divReals(const Node& n, Value x, Value y);
  Rewritten divide(const Node& n, Value x, Value y);
  Rewritten negate(const Node& n, Value x);
  Rewritten absolute(const Node& n, Value x);
  Rewritten roundReal(const Node& n, Value x);
  Rewritten minimum(const Node& n, Value x, Value y);
  Rewritten sum(const Node& n, Value x);
  // simplify_width.cpp
  Rewritten narrow(const Node& n);
  Rewritten narrowShift(const Node& n);
  // simplify_logic.cpp
  Rewritten conjunction(const Node& n, Value x, Value y);
  Rewritten exclusive(const Node& n, Value x, Value y);
  Rewritten complement(const Node& n, Value x);
  Rewritten compare(const Node& n, Value x, Value y);
  Rewritten equal(const Node& n, Value x, Value y);
  Rewritten lessOrEqual(const Node& n, Value x, Value y);
  Rewritten select(const Node& n);
  Rewritten selectExtreme(const Node& n, Value x, Value y);
  Rewritten cast(const Node& n, Value x);
  Rewritten castOfCast(const Node& n, Value x);

  // ---- Vocabulary of the rules ----

  bool is(Value v, Op op) const { return out[v].op == op; }
  Value arg(Value v, unsigned i) const { return out[v].operands[i]; }
  Type typeOf(Value v) const { return out[v].type; }
  bool isConst(Value v) const { return out.isConst(v); }
  bool isNumber(Value v, int64_t number) const {
    return isConst(v) && typeOf(v) != Type::F32 && out.integer(v) == number;
  }
  /// Whether the value is the f32 constant with exactly these bits: 0.0 is not -0.0.
  bool isReal(Value v, float number) const;
  bool isExact(Value v) { return intervals.isExact(v); }
  bool isNever(Value v, int64_t number) { return !intervals.range(v).contains(number); }
  /// Returns the i32 value of an i64 value whose numbers fit into 32 bits.
  Rewritten narrowed(Value v);
  bool isNarrow(Value v) { return intervals.range(v).within(INT32_MIN, INT32_MAX); }

  /// Builds a node of n's type, or of `type`, at n's line.
  Value make(Op op, const Node& n, llvm::ArrayRef<Value> operands) { return make(op, n.type, n, operands); }
  Value make(Op op, Type type, const Node& n, llvm::ArrayRef<Value> operands) {
    return build({op, type, 0, {operands.begin(), operands.end()}, n.line});
  }
  Value number(Type type, int64_t value) { return out.constInt(type, value); }
  Value allOnes(Type type) { return out.constInt(type, type == Type::Bool ? 1 : -1); }

  ir::Module& out;
  analysis::Intervals intervals;
};

} // namespace attnc::passes
