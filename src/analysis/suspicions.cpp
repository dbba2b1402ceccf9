#include "analysis/suspicions.h"

#include "analysis/intervals.h"
#include "analysis/ir_names.h"
#include "ir/walk.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

namespace attnc::analysis {
namespace {

using Kind = Suspicion::Kind;

/// Larger finite numbers stand for an infinity: -1e4 in fp16 models, finfo.min elsewhere.
constexpr float kLarge = 1e4f;

std::optional<bool> constantOf(Intervals& intervals, Value value) {
  const Range& range = intervals.range(value);
  return range.isSingle() ? std::optional(range.lo != 0) : std::nullopt;
}

/// Bounds of integers and of their pairwise differences, as conditions are added one by one.
class Contradictions {
public:
  explicit Contradictions(const ir::Module& module) : module(module), intervals(module) {}

  /// Whether no values satisfy this condition together with those added before.
  bool add(Value condition, bool holds) {
    if (--budget < 0) return false;
    const Node node = module[condition];
    if (constantOf(intervals, condition) == !holds) return true;
    if (node.op == Op::Not) return add(node.operands[0], !holds);
    if (node.op == (holds ? Op::And : Op::Or)) {
      const bool first = add(node.operands[0], holds), second = add(node.operands[1], holds);
      return first || second;
    }
    if (ir::info(node.op).rule != ir::TypeRule::Compare) return false;
    const Value a = node.operands[0], b = node.operands[1];
    if (module[a].type == Type::F32) return false;
    const Range left = rangeOf(a), right = rangeOf(b);
    if (node.op == Op::Eq || node.op == Op::Ne) {
      if ((node.op == Op::Eq) != holds) return differ(a, b);
      return narrow(a, right.lo, right.hi) || narrow(b, left.lo, left.hi) || order(a, b, 0) || order(b, a, 0);
    }
    const bool isStrict = (node.op == Op::Lt) == holds;
    const Value smaller = holds ? a : b, larger = holds ? b : a;
    const Range low = holds ? left : right, high = holds ? right : left;
    return narrow(smaller, INT64_MIN, high.hi - isStrict) || narrow(larger, low.lo + isStrict, INT64_MAX) ||
           order(smaller, larger, isStrict);
  }

private:
  Range rangeOf(Value value) {
    auto known = bounds.find(value.id);
    return known == bounds.end() ? intervals.range(value) : known->second;
  }

  bool narrow(Value value, int64_t lo, int64_t hi) {
    Range range = rangeOf(value);
    range.lo = std::max(range.lo, lo);
    range.hi = std::min(range.hi, hi);
    bounds[value.id] = range;
    return range.lo > range.hi;
  }

  /// base + by, without wrap-around.
  struct Shifted {
    Value base;
    int64_t by = 0;
  };
  Shifted shifted(Value value) {
    const Node& node = module[value];
    const bool isShift = node.type == Type::I32 && (node.op == Op::Add || node.op == Op::Sub) &&
                         module.isConst(node.operands[1]) && intervals.isExact(value);
    if (!isShift) return {value};
    const int64_t by = module.integer(node.operands[1]);
    return {node.operands[0], node.op == Op::Add ? by : -by};
  }

  /// Returns the known upper bound of a - b.
  int64_t& bound(Value a, Value b) { return differences.try_emplace({a.id, b.id}, kUnbounded).first->second; }

  /// Adds smaller + gap <= larger.
  bool order(Value smaller, Value larger, int64_t gap) {
    const Shifted low = shifted(smaller), high = shifted(larger);
    int64_t& most = bound(low.base, high.base);
    most = std::min(most, high.by - low.by - gap);
    return most + bound(high.base, low.base) < 0;
  }

  /// Adds a != b: a known a <= b becomes a < b.
  bool differ(Value a, Value b) {
    const Shifted left = shifted(a), right = shifted(b);
    const bool isBelow = bound(left.base, right.base) == right.by - left.by;
    const bool isAbove = bound(right.base, left.base) == left.by - right.by;
    return (isBelow && order(a, b, 1)) || (isAbove && order(b, a, 1));
  }

  static constexpr int64_t kUnbounded = int64_t(1) << 62; // of differences; its sums with any relevant number fit
  const ir::Module& module;
  Intervals intervals;
  std::map<uint32_t, Range> bounds;
  std::map<std::pair<uint32_t, uint32_t>, int64_t> differences;
  int budget = 10'000; // conditions to examine: shared conditions are visited once per path
};

/// Whether the condition is `holds` for no score.
bool isNever(const ir::Module& module, Value condition, bool holds) {
  Contradictions all(module);
  return all.add(condition, holds) || all.add(condition, holds); // again, with later conditions' bounds
}

void judgeMask(const ir::Module& traced, const ir::Module& simplified, std::vector<Suspicion>& found) {
  const std::optional<Value> written = traced.output(ir::kMask), mask = simplified.output(ir::kMask);
  std::optional<bool> always;
  if (mask) {
    for (const bool never : {true, false})
      if (!always && isNever(simplified, *mask, never)) always = !never;
  } else if (written) {
    always = true;
  }
  const std::optional<Value> at = written ? written : traced.output(ir::kScore);
  if (!always || !at) return;
  const bool isLiteral = written && traced.isConst(*written); // the author wrote it so
  if (!*always)
    found.push_back({Kind::MaskAlwaysFalse, traced[*at].line});
  else if (written && !isLiteral)
    found.push_back({Kind::MaskAlwaysTrue, traced[*at].line});
}

void judgeConditions(const ir::Module& module, std::vector<Suspicion>& found) {
  Contradictions all(module);
  for (const ir::Output& output : module.outputs()) {
    if (!output.isCondition()) continue;
    const bool isAlone = Contradictions(module).add(output.value, true);
    if (isAlone || all.add(output.value, true)) {
      const char* what = isAlone ? "this condition" : "this condition and those before it";
      found.push_back({Kind::ConditionNeverMet, output.line, what});
      return;
    }
  }
}

/// Follows the score to the places where -inf would mask it, as the pass lift-masks does.
class FiniteMasks {
public:
  FiniteMasks(const ir::Module& module, std::vector<Suspicion>& found) : module(module), found(found) {}

  void run(Value root) {
    for (std::vector<bool>& one : wanted) one.assign(root.id + 1, false);
    wanted[0][root.id] = true;
    for (uint32_t id = root.id + 1; id-- > 0;)
      for (const bool isNegated : {false, true})
        if (wanted[isNegated][id]) follow({id}, isNegated);
  }

private:
  void follow(Value value, bool isNegated) {
    const Node& node = module[value];
    const auto want = [&](unsigned i, bool flips) { wanted[isNegated != flips][node.operands[i].id] = true; };
    switch (node.op) {
    case Op::Select:
      for (const unsigned i : {1u, 2u}) {
        report(node, node.operands[i], isNegated);
        want(i, false);
      }
      return;
    case Op::Add: want(0, false); return want(1, false);
    case Op::Sub: want(0, false); return want(1, true);
    case Op::Min:
    case Op::Max:
      if ((node.op == Op::Max) != isNegated) return;
      want(0, false);
      return want(1, false);
    case Op::Neg: return want(0, true);
    case Op::StopGradient: return want(0, false);
    case Op::Mul:
      for (const unsigned i : {0u, 1u})
        if (isFlag(node.operands[1 - i])) report(node, node.operands[i], isNegated);
      return;
    default: return;
    }
  }

  /// Whether a number is 0 or 1: a cast bool, or 1 minus one.
  bool isFlag(Value value) {
    const Node& node = module[value];
    if (node.op == Op::Cast) return module[node.operands[0]].type == Type::Bool;
    return node.op == Op::Sub && module.isConst(node.operands[0]) && module.f32(node.operands[0]) == 1 &&
           isFlag(node.operands[1]);
  }

  void report(const Node& user, Value value, bool isNegated) {
    if (!module.isConst(value) || module[value].type != Type::F32) return;
    const float number = module.f32(value), signedNumber = isNegated ? -number : number;
    if (std::isfinite(number) && signedNumber <= -kLarge)
      found.push_back({Kind::FiniteMask, user.line, fmt::format("{}", number)});
  }

  const ir::Module& module;
  std::vector<Suspicion>& found;
  std::vector<bool> wanted[2]; // by Value::id: summands of the score, and negated ones
};

void judgeGathers(const ir::Module& module, std::vector<Suspicion>& found) {
  const std::vector<bool> needed = ir::neededByOutputs(module);
  Intervals intervals(module);
  for (uint32_t id = 0; id < module.size(); ++id) {
    const Node& node = module[{id}];
    if (!needed[id] || node.op != Op::Load) continue;
    const ir::TensorCapture& tensor = module.tensors[size_t(node.attr)];
    for (size_t axis = 0; axis < node.operands.size(); ++axis) {
      const ir::Extent& extent = tensor.shape[axis];
      const Range& index = intervals.range(node.operands[axis]);
      if (index.hi < 0 || (!extent.isNamed && index.lo >= extent.value))
        found.push_back({Kind::GatherOutside, node.line, tensor.name, int64_t(axis)});
    }
  }
}

} // namespace

std::vector<Suspicion> suspicions(const ir::Module& traced, const ir::Module& simplified) {
  std::vector<Suspicion> found;
  judgeMask(traced, simplified, found);
  judgeConditions(traced, found);
  if (const std::optional<Value> score = traced.output(ir::kScore)) FiniteMasks(traced, found).run(*score);
  judgeGathers(traced, found);
  return found;
}

} // namespace attnc::analysis
