// In: any module, best after fold-constants. Out: if score_mod is -inf under a condition that does not depend on the
// score, that condition becomes part of mask_mod and score_mod keeps its other value: a score of -inf is a masked
// element.
//
//   score = select %c, %x, -inf             =>   mask = %mask & %c, score = %x
//   score = %x + select(%c, 0, -inf)        =>   mask = %mask & %c, score = %x
//   score = select (%c & %x > 0), %x, -inf  =>   mask = %mask & %c, score = select (%x > 0), %x, -inf
//
// The infinity is followed through selects, sums, minima, and products with constants, all of which keep it infinite.
// (One exception in f32: a sum of opposite infinities, or with NaN. The language defines that element as masked.) The
// score of every live element keeps its value, except for the sign of a zero. Not: functions that turn -inf into a
// number (tanh, exp), maxima, large finite numbers.
//
// With Module::keepsMasks the condition stays in the score, with the same meaning:
//
//   score = %x + select(%c, 0, -inf)        =>   score = select %c, %x, -inf
#include "passes/constants.h"
#include "passes/ir_names.h"
#include "passes/pass.h"
#include "passes/rebuild.h"

#include <llvm/ADT/STLExtras.h>

#include <array>
#include <cmath>
#include <limits>

namespace attnc::passes {
namespace {

/// Which infinity a value may be.
enum Sign : uint8_t { kMinus, kPlus };
Sign flip(Sign sign) { return sign == kMinus ? kPlus : kMinus; }

class Lifter {
public:
  Lifter(ir::Module& module, Value root)
      : module(module), root(root), size(uint32_t(module.size())), params(ir::paramsOf(module)),
        yes(module.constBool(true)), no(module.constBool(false)) {
    for (std::vector<bool>& signs : wanted) signs.assign(size, false);
    for (std::vector<Lifted>& signs : lifted) signs.resize(size);
    for (std::vector<Parts>& ways : parts) ways.resize(size);
  }

  /// Moves conditions to mask_mod. Returns false if there were none.
  bool run() {
    want();
    for (uint32_t id = 0; id <= root.id; ++id) {
      const Node node = module[{id}];
      line = node.line;
      if (node.type == Type::Bool && dependsOnScore({id}))
        for (bool holds : {false, true}) parts[holds][id] = split({id}, node, holds);
      for (Sign sign : {kMinus, kPlus})
        if (wanted[sign][id]) lifted[sign][id] = lift({id}, node, sign);
    }
    const auto [lives, score] = lifted[kMinus][root.id];
    if (lives == yes) return false;
    if (module.keepsMasks) {
      const Value masked = module.constF32(-std::numeric_limits<float>::infinity());
      module.setOutput(ir::kScore, lives == no ? masked : make(Op::Select, Type::F32, {lives, score, masked}));
      return false;
    }
    const std::optional<Value> mask = module.output(ir::kMask);
    module.setOutput(ir::kMask, mask ? both(*mask, lives) : lives);
    module.setOutput(ir::kScore, lives == no ? module.param(ParamKind::Score) : score);
    return true;
  }

private:
  /// A value that is `rest` if `lives` holds, else infinite.
  struct Lifted {
    Value lives, rest;
  };
  /// A condition as free & rest. `free` does not depend on the score.
  struct Parts {
    Value free, rest;
  };

  bool dependsOnScore(Value value) const { return params[value.id].contains(ParamKind::Score); }

  // ---- Conditions ----

  Value make(Op op, Type type, llvm::ArrayRef<Value> operands) {
    Node node{op, type, 0, {operands.begin(), operands.end()}, line};
    std::optional<Value> folded = foldNode(module, node);
    return folded ? *folded : keep(module, node);
  }
  Value negated(Value x) { return make(Op::Not, Type::Bool, {x}); }
  Value both(Value x, Value y) {
    if (x == yes || x == y || y == no) return y;
    return y == yes || x == no ? x : make(Op::And, Type::Bool, {x, y});
  }
  Value either(Value x, Value y) {
    if (x == no || x == y || y == yes) return y;
    return y == no || x == yes ? x : make(Op::Or, Type::Bool, {x, y});
  }
  Value chosen(Value condition, Value x, Value y) {
    if (x == y) return x;
    if (y == no) return both(condition, x);
    if (x == yes) return either(condition, y);
    if (x == no) return both(negated(condition), y);
    if (y == yes) return either(negated(condition), x);
    return make(Op::Select, Type::Bool, {condition, x, y});
  }

  /// Returns the condition if `holds`, else its negation.
  Parts partsOf(Value condition, bool holds) {
    if (dependsOnScore(condition)) return parts[holds][condition.id];
    return {holds ? condition : negated(condition), yes};
  }

  Parts split(Value value, const Node& node, bool holds) {
    if (node.op == Op::Not) return partsOf(node.operands[0], !holds);
    if (node.op == (holds ? Op::And : Op::Or)) {
      Parts a = partsOf(node.operands[0], holds), b = partsOf(node.operands[1], holds);
      return {both(a.free, b.free), both(a.rest, b.rest)};
    }
    return {yes, holds ? value : negated(value)};
  }

  // ---- The way down: where an infinity would reach the root ----

  void want() {
    wanted[kMinus][root.id] = true;
    for (uint32_t id = root.id + 1; id-- > 0;)
      for (Sign sign : {kMinus, kPlus})
        if (wanted[sign][id])
          for (auto [operand, at] : sources({id}, sign)) wanted[at][operand.id] = true;
  }

  /// Returns the operands that make the value infinite with `sign` if they are infinite, each with the sign it must
  /// have.
  llvm::SmallVector<std::pair<Value, Sign>, 2> sources(Value value, Sign sign) const {
    const Node& node = module[value];
    const auto operand = [&](unsigned i) { return node.operands[i]; };
    const bool isExtreme = node.op == (sign == kMinus ? Op::Min : Op::Max);
    if (node.op == Op::Select) return {{operand(1), sign}, {operand(2), sign}};
    if (node.op == Op::Add || isExtreme) return {{operand(0), sign}, {operand(1), sign}};
    if (node.op == Op::Sub) return {{operand(0), sign}, {operand(1), flip(sign)}};
    if (node.op == Op::Neg) return {{operand(0), flip(sign)}};
    if (node.op == Op::Mul || node.op == Op::Div)
      if (std::optional<Sign> kept = scaled(operand(1), sign)) return {{operand(0), *kept}};
    if (node.op == Op::Mul)
      if (std::optional<Sign> kept = scaled(operand(0), sign)) return {{operand(1), *kept}};
    return {};
  }

  std::optional<Sign> scaled(Value factor, Sign sign) const {
    if (!module.isConst(factor)) return std::nullopt;
    const float number = module.f32(factor);
    if (!std::isfinite(number) || number == 0) return std::nullopt;
    return number > 0 ? sign : flip(sign);
  }

  // ---- The way up ----

  Lifted lift(Value value, const Node& node, Sign sign) {
    if (node.op == Op::Const) {
      const float number = module.f32(value);
      return {std::isinf(number) && std::signbit(number) == (sign == kMinus) ? no : yes, value};
    }
    if (node.op == Op::Select) return liftSelect(value, node, sign);
    Lifted result{yes, value};
    Node rest = node;
    for (auto [operand, at] : sources(value, sign)) {
      const Lifted& part = lifted[at][operand.id];
      result.lives = both(result.lives, part.lives);
      for (Value& one : rest.operands)
        if (one == operand) one = part.rest;
    }
    if (result.lives != yes) result.rest = result.lives == no ? value : simplest(rest);
    return result;
  }

  Lifted liftSelect(Value value, const Node& node, Sign sign) {
    const Value condition = node.operands[0];
    const Lifted a = lifted[sign][node.operands[1].id], b = lifted[sign][node.operands[2].id];
    const auto select = [&](Value test, Value x, Value y) {
      return x == y ? x : make(Op::Select, Type::F32, {test, x, y});
    };
    if (a.lives == yes && b.lives == yes) return {yes, value};
    if (a.lives == b.lives) return {a.lives, select(condition, a.rest, b.rest)};
    if (!dependsOnScore(condition)) {
      const Value lives = chosen(condition, a.lives, b.lives);
      return {lives, a.lives == no ? b.rest : b.lives == no ? a.rest : select(condition, a.rest, b.rest)};
    }
    if (a.lives != no && b.lives != no) return {yes, value};
    // One branch is infinite: lift the part of the condition that does not depend on the score.
    const bool isFirst = b.lives == no;
    const Lifted& branch = isFirst ? a : b;
    const Parts part = partsOf(condition, isFirst);
    const Value lives = both(part.free, branch.lives);
    if (lives == yes) return {yes, value};
    const Value infinite = node.operands[isFirst ? 2 : 1];
    return {lives, part.rest == yes ? branch.rest : select(part.rest, branch.rest, infinite)};
  }

  /// Returns the operation. Drops sums with zero, which can only change the sign of a zero.
  Value simplest(const Node& node) {
    const auto isZero = [&](Value x) { return module.isConst(x) && module.f32(x) == 0; };
    if (node.op == Op::Add && isZero(node.operands[0])) return node.operands[1];
    if ((node.op == Op::Add || node.op == Op::Sub) && isZero(node.operands[1])) return node.operands[0];
    return make(node.op, node.type, node.operands);
  }

  ir::Module& module;
  const Value root;    // the score
  const uint32_t size; // number of nodes of the module as given; the tables below cover only these
  const std::vector<ir::ParamSet> params;
  const Value yes, no;
  std::array<std::vector<bool>, 2> wanted;
  std::array<std::vector<Lifted>, 2> lifted; // by sign
  std::array<std::vector<Parts>, 2> parts;   // of conditions that depend on the score: [0] negated, [1] as they are
  uint32_t line = 0;
};

bool hasInfinity(const ir::Module& module) {
  for (uint32_t id = 0; id < module.size(); ++id) {
    const Node& node = module[{id}];
    if (node.op == Op::Const && node.type == Type::F32 && std::isinf(module.f32({id}))) return true;
  }
  return false;
}

} // namespace

Status liftMasks(ir::Module& module, const PassContext&) {
  const std::optional<Value> score = module.output(ir::kScore);
  if (!score || module.output(ir::kIsWeight) || !hasInfinity(module)) return {};
  if (Lifter(module, *score).run()) module.liftsMasks = true;
  module = rebuild(module, keep);
  return {};
}

} // namespace attnc::passes
