// In: a module after the passes. Out: a prob_factor that drops weights at random and multiplies the others by one
// number of the head, in parts.
//
//   prob_factor = select(random(@seed, %b, %h, %q_idx, %kv_idx) < @p, 0, 1 / (1 - @p))
//                   =>   drop_seed = @seed, kept_factor = 1 / (1 - @p), or 1 if no weight is kept
//                        drop_below = n / 2^16, drop_rest = n mod 2^16, n = ceil(2^24 @p): numbers are multiples of
//                        2^-24
//
// So a kernel computes a counter once for all of its numbers that a thread holds, compares integers, and multiplies the
// result of a row by the factor. There is no drop_rest if it is known to be 0. If weights of numbers below the bound
// are kept, drop_above takes the place of drop_below, and numbers that of their complements to 1 - 2^-24. Not: factors
// that may not be positive, since backward kernels add their logarithm to exponents; other arguments of random().
#include "passes/pass.h"

#include "ir/walk.h"
#include "passes/ir_names.h"

#include <cmath>

namespace attnc::passes {
namespace {

constexpr int kFirst = 1 << 8, kRestBits = 16, kRest = 1 << kRestBits; // of a random number's 2^24

/// A comparison of a random number with a bound, in a direction that is true if it is below.
struct Comparison {
  Value random, bound;
  bool isBelow;    ///< whether it is true for numbers below the bound
  bool takesBound; ///< whether the bound itself counts as below
};

class Drops {
public:
  explicit Drops(ir::Module& module) : module(module), params(ir::paramsOf(module)) {}

  /// Sets the outputs if the factor has the form.
  void derive(Value factor) {
    const ir::Node select = module[factor];
    if (select.op != Op::Select) return;
    const std::optional<Comparison> found = comparisonOf(select.operands[0]);
    if (!found) return;
    const bool dropsIfTrue = isZero(select.operands[1]), keepsBelow = dropsIfTrue != found->isBelow;
    if (dropsIfTrue == isZero(select.operands[2])) return;
    const Value kept = select.operands[dropsIfTrue ? 2 : 1];
    if (!isPositive(kept, found->bound, keepsBelow)) return;
    line = select.line;
    // How many numbers, or complements of numbers, are dropped: all that are below, or 2^24 less those.
    const bool isWhole = !found->takesBound && isMultiple(found->bound);
    const int all = isWhole ? kFirst : kFirst * kRest;
    Value count = countBelow(*found, all);
    if (keepsBelow) count = made(Op::Sub, Type::I32, {i32(all), count});
    const Value keepsNone = made(Op::Eq, Type::Bool, {count, i32(all)});
    module.setOutput(ir::kDropSeed, module[found->random].operands[0]);
    module.setOutput(keepsBelow ? ir::kDropAbove : ir::kDropBelow,
                     isWhole ? count : made(Op::Shr, Type::I32, {count, i32(kRestBits)}));
    if (!isWhole) module.setOutput(ir::kDropRest, made(Op::And, Type::I32, {count, i32(kRest - 1)}));
    module.setOutput(ir::kKeptFactor, made(Op::Select, Type::F32, {keepsNone, module.constF32(1), quotient(kept)}));
    module.dropOutput(ir::kProbFactor);
  }

private:
  bool isOfHead(Value value) const { return ir::ParamSet{ParamKind::B, ParamKind::H}.containsAll(params[value.id]); }
  bool isNumber(Value value, float number) const {
    return module.isConst(value) && module[value].type == Type::F32 && module.f32(value) == number;
  }
  bool isZero(Value value) const { return isNumber(value, 0); }

  /// Whether a value is random() at the score's own position, with a seed that the head knows.
  bool isOwnRandom(Value value) const {
    const ir::Node& node = module[value];
    constexpr ParamKind kPosition[] = {ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx};
    if (node.op != Op::Random || !isOfHead(node.operands[0])) return false;
    for (size_t i = 0; i < std::size(kPosition); ++i)
      if (!module.isParam(node.operands[i + 1], kPosition[i])) return false;
    return true;
  }

  std::optional<Comparison> comparisonOf(Value value) const {
    const ir::Node& node = module[value];
    if (node.op != Op::Lt && node.op != Op::Le) return std::nullopt;
    const auto [left, right] = std::pair(node.operands[0], node.operands[1]);
    if (isOwnRandom(left) && isOfHead(right)) return Comparison{left, right, true, node.op == Op::Le};
    if (isOwnRandom(right) && isOfHead(left)) return Comparison{right, left, false, node.op == Op::Lt};
    return std::nullopt;
  }

  /// Whether the factor of kept weights is positive wherever any is kept: a number, or one over the rate of weights
  /// that are kept.
  bool isPositive(Value factor, Value bound, bool keepsBelow) const {
    const auto isPositiveNumber = [&](Value value) {
      return module.isConst(value) && module[value].type == Type::F32 && module.f32(value) > 0;
    };
    const ir::Node& node = module[factor];
    if (isPositiveNumber(factor)) return true;
    if (node.op != Op::Div || !isPositiveNumber(node.operands[0])) return false;
    if (keepsBelow) return node.operands[1] == bound;
    const ir::Node& rate = module[node.operands[1]];
    return rate.op == Op::Sub && isNumber(rate.operands[0], 1) && rate.operands[1] == bound;
  }

  /// Whether a bound is known to be a multiple of 2^-8.
  bool isMultiple(Value bound) const {
    if (module.isConst(bound)) return std::floor(module.f32(bound) * kFirst) == module.f32(bound) * kFirst;
    const ir::Node& node = module[bound];
    const auto isCast = [&](Value value) {
      return module[value].op == Op::Cast && ir::isInt(module[module[value].operands[0]].type);
    };
    if (node.op == Op::Div) return isCast(node.operands[0]) && isNumber(node.operands[1], kFirst);
    if (node.op != Op::Mul) return false;
    const auto [x, y] = std::pair(node.operands[0], node.operands[1]);
    return (isCast(x) && isNumber(y, 1.f / kFirst)) || (isCast(y) && isNumber(x, 1.f / kFirst));
  }

  Value made(Op op, Type type, std::initializer_list<Value> operands) {
    return module.make(op, type, operands, 0, line);
  }
  /// Returns a quotient without a division, to a few ulp: c rsqrt(x)^2 for c / x. A division in a kernel has a call for
  /// rare operands, for which ptxas serialises wgmma (C7514).
  Value quotient(Value kept) {
    const ir::Node node = module[kept];
    if (node.op != Op::Div) return kept;
    const Value root = made(Op::Rsqrt, Type::F32, {node.operands[1]});
    return made(Op::Mul, Type::F32, {made(Op::Mul, Type::F32, {root, root}), node.operands[0]});
  }
  Value i32(int number) { return module.constInt(Type::I32, number); }

  /// Returns how many multiples of 1 / all in [0, 1) are below the bound.
  Value countBelow(const Comparison& of, int all) {
    const Value most = module.constF32(float(all));
    Value count = made(Op::Mul, Type::F32, {of.bound, most});
    if (of.takesBound)
      count = made(Op::Add, Type::F32, {made(Op::Floor, Type::F32, {count}), module.constF32(1)});
    else
      count = made(Op::Ceil, Type::F32, {count});
    return made(Op::Cast, Type::I32,
                {made(Op::Min, Type::F32, {made(Op::Max, Type::F32, {count, module.constF32(0)}), most})});
  }

  ir::Module& module;
  const std::vector<ir::ParamSet> params; // of the values before any is made
  uint32_t line = 0;                      // of the choice
};

} // namespace

Status deriveDrops(ir::Module& module, const PassContext&) {
  if (const std::optional<Value> factor = module.output(ir::kProbFactor)) Drops(module).derive(*factor);
  return {};
}

} // namespace attnc::passes
