// In: any module, best after simplify and cse. Out: the same values, with more of the work known per head, row or
// column. No f32 sum is reassociated; every rewrite gives identical bits.
//
// * Chains of one associative operation on integers or bools are regrouped by level:
//     (q_idx - kv_idx) + window                 =>  (q_idx + window) - kv_idx
//     (row & element) & (row2 & column)         =>  ((row & row2) & column) & element
//   Integer sums are exact modulo 2^32 in any order.
// * A comparison of integer sums is split into row and column parts, if nothing can wrap around. A side of unknown size
//   is first clamped to one beyond the range of the other side, which does not change the comparison:
//     q_idx - kv_idx <= window                  =>  q_idx - min(max(window, -2^24), 2^24) <= kv_idx
//     |q_idx - kv_idx| <= 64                    =>  q_idx - 64 <= kv_idx and q_idx + 64 >= kv_idx
// * A comparison of i64 sums becomes one of i32 if all terms but one are small. That one is clamped in the same way:
//     i64(kv_idx) <= i64(q_idx) + i64(window)   =>  kv_idx <= q_idx + i32(min(max(window, -2^24), 2^24))
// * A cast of an integer sum becomes a sum of casts. All numbers must be at most 2^24 in magnitude, thus exact in f32;
//   only the last sum is rounded, once. Kernels run with indices below 2^24 (ir::kMaxExtent):
//     f32(kv_idx - q_idx)                       =>  f32(kv_idx) - f32(q_idx)
//
// Not: placement of values. Codegen computes a value at the outermost level that knows it.
#include "ir/levels.h"
#include "analysis/intervals.h"
#include "ir/loops.h"
#include "passes/ir_names.h"
#include "passes/pass.h"
#include "passes/rebuild.h"

#include <llvm/ADT/DenseSet.h>

#include <algorithm>
#include <array>
#include <tuple>

namespace attnc::passes {
namespace {

using analysis::Range;

constexpr int64_t kExactInF32 = int64_t(1) << 24;

/// Returns the operation whose chains a node belongs to; Add for signed sums, Const for no operation.
Op familyOf(const Node& node) {
  const auto isOneOf = [&](auto... ops) { return ((node.op == ops) || ...); };
  if (isOneOf(Op::And, Op::Or, Op::Xor)) return node.op;
  if (!isInt(node.type)) return Op::Const;
  if (isOneOf(Op::Add, Op::Sub, Op::Neg)) return Op::Add;
  return isOneOf(Op::Mul, Op::Min, Op::Max) ? node.op : Op::Const;
}

/// Marks nodes whose only user continues their chain, by Value::id.
std::vector<bool> linksOf(const ir::Module& module) {
  const std::vector<bool> needed = ir::neededByOutputs(module);
  std::vector<int> uses(module.size(), 0);
  std::vector<bool> isLink(module.size(), false);
  for (uint32_t id = 0; id < module.size(); ++id) {
    if (!needed[id]) continue;
    const Node& user = module[{id}];
    for (Value operand : user.operands) {
      const Node& node = module[operand];
      bool continues = familyOf(node) != Op::Const && familyOf(node) == familyOf(user) && node.type == user.type;
      isLink[operand.id] = continues && ++uses[operand.id] == 1;
      if (!continues) uses[operand.id] += 2;
    }
  }
  for (const ir::Output& output : module.outputs()) isLink[output.value.id] = false;
  return isLink;
}

/// A value with a sign: a term of a sum, or a partial sum.
struct Signed {
  Value value;
  bool negative = false;
};
using Parts = llvm::SmallVector<Signed, 8>;

class Regrouper {
public:
  Regrouper(ir::Module& out, const Pins& pins) : out(out), intervals(out, pins) {}

  /// Rewrites the node. `isLink`: its only user continues its chain, which will be regrouped as a whole.
  Value rewrite(const Node& node, bool isLink) {
    Value value = isLink ? keep(out, node) : regrouped(node);
    if (isLink) links.insert(value.id);
    return value;
  }

private:
  Value regrouped(const Node& node) {
    if (familyOf(node) != Op::Const) return chain(node);
    if (ir::info(node.op).rule == ir::TypeRule::Compare && isInt(out[node.operands[0]].type)) return comparison(node);
    if (node.op == Op::Cast && node.type == Type::F32) return cast(node);
    return keep(out, node);
  }

  /// Returns the value's level. Values that depend on the index of a sum count as known per element: it changes
  /// fastest.
  Level levelOf(Value value) {
    while (levels.size() <= value.id) {
      const Node& node = out[{uint32_t(levels.size())}];
      levels.push_back(ir::levelOf(node, levels));
      open.push_back(ir::openLoopsOf(node, open));
    }
    return open[value.id] ? Level::Element : levels[value.id];
  }

  // ---- Chains ----

  /// Returns the members of a chain, in order. `expands(value)`: the value is itself a link.
  template <class Expands> Parts partsOf(Value value, Expands expands) {
    Parts parts, open = {{value, false}};
    for (bool isFirst = true; !open.empty(); isFirst = false) {
      Signed at = open.pop_back_val();
      const Node& node = out[at.value];
      if (!isFirst && !expands(at.value)) {
        parts.push_back(at);
        continue;
      }
      for (size_t i = node.operands.size(); i-- > 0;) {
        bool flips = node.op == Op::Neg || (node.op == Op::Sub && i == 1);
        open.push_back({node.operands[i], at.negative != flips});
      }
    }
    return parts;
  }

  Signed combine(Op family, const Node& like, Signed a, Signed b) {
    auto make = [&](Op op, Value x, Value y) { return out.make(op, like.type, {x, y}, 0, like.line); };
    if (family != Op::Add || a.negative == b.negative) return {make(family, a.value, b.value), a.negative};
    return {a.negative ? make(Op::Sub, b.value, a.value) : make(Op::Sub, a.value, b.value), false};
  }

  std::optional<Signed> fold(Op family, const Node& like, llvm::ArrayRef<Signed> parts) {
    if (parts.empty()) return std::nullopt;
    Signed result = parts[0];
    for (const Signed& part : parts.drop_front()) result = combine(family, like, result, part);
    return result;
  }

  Value settle(const Node& like, Signed sum) {
    return sum.negative ? out.make(Op::Neg, like.type, {sum.value}, 0, like.line) : sum.value;
  }

  Value chain(const Node& node) {
    Value whole = keep(out, node);
    Op family = familyOf(node);
    auto isLink = [&](Value value) { return familyOf(out[value]) == family && links.count(value.id); };
    Parts parts = partsOf(whole, isLink);
    // Within a level members are ordered by age, with constants last. So the order does not depend on how the chain was
    // written.
    auto rank = [&](const Signed& part) {
      return std::make_tuple(levelOf(part.value), out.isConst(part.value), part.value.id);
    };
    auto byLevel = [&](const Signed& a, const Signed& b) { return rank(a) < rank(b); };
    if (parts.size() < 3) return whole;
    std::stable_sort(parts.begin(), parts.end(), byLevel);
    if (levelOf(parts.front().value) == levelOf(parts.back().value)) return whole;
    auto endOf = [&](Level level) {
      return std::find_if(parts.begin(), parts.end(), [&](const Signed& p) { return levelOf(p.value) > level; });
    };
    auto rowEnd = endOf(Level::Row), columnEnd = endOf(Level::Column);
    bool hasRow = endOf(Level::Head) != rowEnd;
    // Values known per head are added where it costs least: to the row if there is one, else to the column.
    if (!hasRow) rowEnd = parts.begin();
    Parts groups;
    if (auto row = fold(family, node, llvm::ArrayRef<Signed>(parts.begin(), rowEnd))) groups.push_back(*row);
    if (auto column = fold(family, node, llvm::ArrayRef<Signed>(rowEnd, columnEnd))) groups.push_back(*column);
    groups.append(columnEnd, parts.end());
    return settle(node, *fold(family, node, groups));
  }

  // ---- Comparisons ----

  /// Returns an upper bound of |sum| for every order of summation.
  __int128 reach(llvm::ArrayRef<Signed> parts) {
    __int128 result = 0;
    for (const Signed& part : parts) {
      const Range& range = intervals.range(part.value);
      result += std::max(-__int128(range.lo), __int128(range.hi));
    }
    return result;
  }

  Parts termsOf(Value value) {
    auto expands = [&](Value v) {
      return levelOf(v) == Level::Element && familyOf(out[v]) == Op::Add && intervals.isExact(v);
    };
    if (!expands(value)) return {{value, false}};
    return partsOf(value, expands);
  }

  /// Returns the value clamped to one beyond the range `other` of what it is compared with.
  Value clampedBeyond(Value value, const Range& other, const Node& like) {
    Type type = out[value].type;
    const Range own = intervals.range(value);
    Range limits = Range::full(type);
    if (other.lo == limits.lo || other.hi == limits.hi) return value;
    auto make = [&](Op op, Value x, int64_t bound) {
      return out.make(op, type, {x, out.constInt(type, bound)}, 0, like.line);
    };
    if (own.lo < other.lo - 1) value = make(Op::Max, value, other.lo - 1);
    if (own.hi > other.hi + 1) value = make(Op::Min, value, other.hi + 1);
    return value;
  }

  /// Returns the terms of an i64, also of sums within widening casts.
  Parts wideTermsOf(Value value) {
    auto expands = [&](Value v) {
      const Node& node = out[v];
      if (node.op == Op::Cast) return node.type == Type::I64 && out[node.operands[0]].type == Type::I32;
      return familyOf(node) == Op::Add && intervals.isExact(v);
    };
    if (!expands(value)) return {{value, false}};
    return partsOf(value, expands);
  }

  /// Returns a comparison of i64 as one of i32, whose sums do not wrap around; nullopt if that takes work per score.
  std::optional<Node> inHalfTheWidth(const Node& node, Level level) {
    return inHalfTheWidth(node, level, {wideTermsOf(node.operands[0]), wideTermsOf(node.operands[1])});
  }
  /// The same, of sides in these terms.
  std::optional<Node> inHalfTheWidth(const Node& node, Level level, std::array<Parts, 2> sides) {
    if (out.hasNearScalars) return std::nullopt; // passes of grids know a comparison with a grid's end as it is written
    const auto reachOf = [&](const Signed& part) { return reach({part}); };
    Signed* far = &sides[0][0]; // the term of the largest numbers
    for (Parts& side : sides)
      for (Signed& part : side)
        if (reachOf(part) > reachOf(*far)) far = &part;
    // What the far term is compared with.
    __int128 lo = 0, hi = 0;
    bool isFarNegative = false;
    for (size_t side : {0, 1})
      for (const Signed& part : sides[side]) {
        if (&part == far) isFarNegative = part.negative != (side == 1);
        if (&part == far) continue;
        const Range& range = intervals.range(part.value);
        const bool isNegative = part.negative == (side == 1); // across the comparison
        lo += isNegative ? -__int128(range.hi) : __int128(range.lo);
        hi += isNegative ? -__int128(range.lo) : __int128(range.hi);
      }
    if (isFarNegative) std::tie(lo, hi) = std::make_pair(-hi, -lo);
    const __int128 others = reach(sides[0]) + reach(sides[1]) - reachOf(*far);
    if (2 * others + 1 > INT32_MAX) return std::nullopt;
    if (reachOf(*far) + others > INT32_MAX) {
      if (levelOf(far->value) >= level) return std::nullopt;
      far->value = clampedBeyond(far->value, Range::integers(Type::I64, int64_t(lo), int64_t(hi)), node);
    }
    Node small{node.op, node.type, 0, {}, node.line};
    for (Parts& side : sides) {
      for (Signed& part : side)
        if (out[part.value].type == Type::I64)
          part.value = out.isConst(part.value) ? out.constInt(Type::I32, out.integer(part.value))
                                               : out.make(Op::Cast, Type::I32, {part.value}, 0, node.line);
      const Node sum{Op::Add, Type::I32, 0, {}, node.line};
      small.operands.push_back(settle(sum, *fold(Op::Add, sum, side)));
    }
    return small;
  }

  bool isSplit(Value comparison) {
    return llvm::none_of(out[comparison].operands, [&](Value side) { return levelOf(side) == Level::Element; });
  }

  Value comparison(const Node& node) {
    Value whole = keep(out, node), x = node.operands[0], y = node.operands[1];
    if (out[x].type == Type::I64 && levelOf(whole) >= Level::Column)
      if (const std::optional<Node> small = inHalfTheWidth(node, levelOf(whole))) return comparison(*small);
    if (levelOf(whole) != Level::Element || isSplit(whole)) return whole;
    if (out[x].op == Op::Abs || out[y].op == Op::Abs) return distance(node, whole);
    Parts left = termsOf(x), right = termsOf(y);
    const int64_t limit = Range::full(out[x].type).hi;
    if (reach(left) + reach(right) > limit) {
      if (left.size() == 1) left[0].value = clampedBeyond(x, intervals.range(y), node);
      if (right.size() == 1) right[0].value = clampedBeyond(y, intervals.range(x), node);
      if (reach(left) + reach(right) > limit) return whole;
    }
    Parts row, column;
    for (auto [parts, isRight] : {std::pair(&left, false), std::pair(&right, true)})
      for (const Signed& part : *parts) {
        Level level = levelOf(part.value);
        if (level == Level::Element) return whole;
        if (level == Level::Column)
          column.push_back({part.value, part.negative == isRight}); // crosses over to the right
        else
          row.push_back({part.value, part.negative != isRight}); // crosses over to the left
      }
    return compareParts(node, row, column);
  }

  /// Rewrites |d| <= y as d <= y and -y <= d, and y <= |d| as y <= d or d <= -y. lt is handled the same way. Wrapping
  /// of -y at the least y is harmless: |d| is never that small. Done only if both comparisons split.
  Value distance(const Node& node, Value whole) {
    bool isFirst = out[node.operands[0]].op == Op::Abs;
    Value y = node.operands[isFirst ? 1 : 0];
    Value d = out[node.operands[isFirst ? 0 : 1]].operands[0];
    Type type = out[d].type;
    bool isOrdered = node.op == Op::Le || node.op == Op::Lt;
    bool mayWrap = intervals.range(d).lo == Range::full(type).lo; // |d| of the least d is negative
    if (!isOrdered || mayWrap || levelOf(y) == Level::Element) return whole;
    Value minusY = out.isConst(y) ? out.constInt(type, int64_t(0 - uint64_t(out.integer(y))))
                                  : out.make(Op::Neg, type, {y}, 0, node.line);
    Node near = node, far = node;
    near.operands = isFirst ? llvm::SmallVector<Value, 3>{d, y} : llvm::SmallVector<Value, 3>{y, d};
    far.operands = isFirst ? llvm::SmallVector<Value, 3>{minusY, d} : llvm::SmallVector<Value, 3>{d, minusY};
    Value a = comparison(near), b = comparison(far);
    if (!isSplit(a) || !isSplit(b)) return whole;
    return out.make(isFirst ? Op::And : Op::Or, Type::Bool, {a, b}, 0, node.line);
  }

  /// Returns row <op> column, in 32 bits if the column's numbers fit. Flips both signs if that saves a negation per
  /// column.
  Value compareParts(const Node& node, Parts row, const Parts& column) {
    Node sum{Op::Add, out[node.operands[0]].type, 0, {}, node.line};
    Signed right = *fold(Op::Add, sum, column);
    if (right.negative)
      for (Signed& part : row) part.negative = !part.negative;
    Value left = settle(sum, *fold(Op::Add, sum, row));
    Value x = right.negative ? right.value : left, y = right.negative ? left : right.value;
    const Node whole{node.op, node.type, 0, {x, y}, node.line};
    if (sum.type == Type::I64)
      if (const auto small = inHalfTheWidth(whole, Level::Element, {Parts{{x, false}}, Parts{{y, false}}}))
        return keep(out, *small);
    return keep(out, whole);
  }

  // ---- Casts ----

  /// Whether the value is a sum that is rounded only once if its operands are exact in f32: a cast integer, or a sum of
  /// f32.
  bool roundsOnce(Value value) {
    const Op op = out[value].op;
    return levelOf(value) == Level::Element && (op == Op::Add || op == Op::Sub) && intervals.isExact(value);
  }

  /// Returns f32(value) without a cast per element; nullopt if that is impossible or inexact.
  std::optional<Value> castOutside(Value value, const Node& like, int depth) {
    constexpr int kMaxDepth = 16;
    if (!isInt(out[value].type)) return std::nullopt;
    if (!intervals.range(value).within(-kExactInF32, kExactInF32) && !(depth == 0 && roundsOnce(value)))
      return std::nullopt;
    if (levelOf(value) != Level::Element) return out.make(Op::Cast, Type::F32, {value}, 0, like.line);
    const Node node = out[value];
    bool isKnown =
        node.op == Op::Add || node.op == Op::Sub || node.op == Op::Abs || node.op == Op::Min || node.op == Op::Max;
    if (!isKnown || depth > kMaxDepth) return std::nullopt;
    llvm::SmallVector<Value, 2> operands;
    for (Value operand : node.operands) {
      std::optional<Value> converted = castOutside(operand, like, depth + 1);
      if (!converted) return std::nullopt;
      operands.push_back(*converted);
    }
    // No -0 arises: casts give +0, and a - a is +0. So f32 and integers agree on every result.
    return out.make(node.op, Type::F32, operands, 0, like.line);
  }

  Value cast(const Node& node) {
    Value value = node.operands[0];
    std::optional<Value> converted;
    if (levelOf(value) == Level::Element) converted = castOutside(value, node, 0);
    return converted ? *converted : keep(out, node);
  }

  ir::Module& out;
  analysis::Intervals intervals;
  std::vector<Level> levels;
  std::vector<ir::LoopSet> open;
  llvm::DenseSet<uint32_t> links; // by Value::id in `out`
};

} // namespace

Status levels(ir::Module& module, const PassContext& context) {
  std::vector<bool> isLink = linksOf(module);
  const std::vector<bool> needed = ir::neededByOutputs(module);
  std::optional<Regrouper> regrouper;
  uint32_t id = 0;
  module = rebuild(module, [&](ir::Module& out, const Node& node) {
    if (!regrouper) regrouper.emplace(out, context.pins);
    while (!needed[id]) ++id;
    return regrouper->rewrite(node, isLink[id++]);
  });
  module = rebuild(module, keep);
  return {};
}

} // namespace attnc::passes
