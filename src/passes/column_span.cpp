// Walks the condition from its root. Each part becomes a span of columns: a comparison gives a span that is open on one
// side, `and` intersects spans, `or` unites spans with a common begin or end. Conditions known per head are tried both
// ways; each way gives its own span.
#include "passes/column_span.h"

#include "analysis/monotony.h"
#include "ir/ir.h"
#include "ir/levels.h"
#include "passes/ir_names.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLExtras.h>

namespace attnc::passes {
namespace {

using analysis::Direction;
using analysis::Range;

constexpr size_t kMaxChoices = 3;  // each choice doubles the number of values
constexpr int kMaxSteps = 1 << 11; // shared conditions are walked once per use; this also bounds the depth
constexpr int64_t kFarthest = int64_t(1) << 30;

/// Columns [begin, end).
struct Span {
  Value begin, end;
};
using MaybeSpan = std::optional<Span>;

class SpanFinder {
public:
  SpanFinder(ir::Module& module, Value root, RowConditions rows)
      : module(module), root(root), rows(rows), levels(ir::levels(module)), intervals(module),
        monotony(module, intervals) {}

  MaybeSpan run() {
    collectChoices(root);
    if (choices.size() > kMaxChoices || steps > kMaxSteps) return std::nullopt;
    return tryChoices(0);
  }

  /// Whether the value is monotone in q_idx and small enough for a kernel's sums.
  bool isEdge(Value value) {
    return monotony.of(value) != Direction::Unknown && intervals.range(value).within(-kFarthest, kFarthest);
  }

  bool isAll(const Span& span) { return span.begin == first() && span.end == behind(); }

private:
  // ---- Values ----

  Value number(int64_t value) { return module.constInt(Type::I32, value); }
  Value first() { return number(0); }               // no column lies before it
  Value behind() { return number(ir::kMaxExtent); } // no column lies at or behind it
  Span all() { return {first(), behind()}; }
  Span none() { return {behind(), first()}; }

  Value make(Op op, Value x, Value y) {
    if (x == y) return x;
    return module.make(op, module[x].type, {x, y}, 0, line);
  }
  Value larger(Value x, Value y) { return x == first() ? y : y == first() ? x : make(Op::Max, x, y); }
  Value smaller(Value x, Value y) { return x == behind() ? y : y == behind() ? x : make(Op::Min, x, y); }
  Value either(Value condition, Value x, Value y) {
    return x == y ? x : module.make(Op::Select, Type::I32, {condition, x, y}, 0, line);
  }

  /// Makes a sum or product; nullopt unless it provably does not wrap around.
  std::optional<Value> exact(Op op, Value x, Value y) {
    Value value = module.make(op, Type::I32, {x, y}, 0, line);
    if (!intervals.isExact(value)) return std::nullopt;
    return value;
  }

  /// Returns the value clamped to [lo, hi], as i32.
  std::optional<Value> clamped(Value value, int64_t lo, int64_t hi) {
    if (lo < INT32_MIN || hi > INT32_MAX) return std::nullopt;
    Type type = module[value].type;
    if (intervals.range(value).lo < lo) value = make(Op::Max, value, module.constInt(type, lo));
    if (intervals.range(value).hi > hi) value = make(Op::Min, value, module.constInt(type, hi));
    if (type == Type::I32) return value;
    return module.make(Op::Cast, Type::I32, {value}, 0, line);
  }

  // ---- Comparisons ----

  Level levelOf(Value value) const { return levels[value.id]; }

  /// Returns the first column for which `column` >= `least`. Since every operation taken apart here grows with kv_idx,
  /// the condition also holds for all later columns. `least` is i32, at most one beyond the range of `column`.
  std::optional<Value> firstWhere(Value column, Value least) {
    const Node node = module[column];
    if (node.op == Op::Param) return least; // kv_idx
    auto within = [&](Value value) {
      Range range = intervals.range(column);
      return clamped(value, range.lo, range.hi + 1);
    };
    auto then = [&](Value operand, std::optional<Value> value) {
      return value ? firstWhere(operand, *value) : std::nullopt;
    };
    bool isFirst = levelOf(node.operands[0]) == Level::Column;
    if (node.op == Op::Cast && isInt(module[node.operands[0]].type)) {
      bool keepsNumber = intervals.range(node.operands[0]).within(INT32_MIN, INT32_MAX);
      return keepsNumber ? firstWhere(node.operands[0], least) : std::nullopt;
    }
    if (node.operands.size() != 2 || levelOf(node.operands[isFirst ? 1 : 0]) == Level::Column) return std::nullopt;
    Value operand = node.operands[isFirst ? 0 : 1], other = node.operands[isFirst ? 1 : 0];
    if (!intervals.range(other).within(INT32_MIN, INT32_MAX)) return std::nullopt;
    std::optional<Value> bounded = within(least), amount = clamped(other, INT32_MIN, INT32_MAX);
    bool isPositive = intervals.range(other).lo >= 1;
    if (!bounded || !amount) return std::nullopt;
    if (node.op == Op::Add && intervals.isExact(column)) return then(operand, exact(Op::Sub, *bounded, *amount));
    if (node.op == Op::Sub && isFirst && intervals.isExact(column))
      return then(operand, exact(Op::Add, *bounded, *amount));
    if (node.op == Op::FloorDiv && isFirst && isPositive) return then(operand, exact(Op::Mul, *bounded, *amount));
    if (node.op == Op::Mul && isPositive && intervals.isExact(column)) {
      // column * amount >= least: column >= -(-least // amount)
      Value quotient = make(Op::FloorDiv, module.make(Op::Sub, Type::I32, {number(0), *bounded}, 0, line), *amount);
      return firstWhere(operand, module.make(Op::Sub, Type::I32, {number(0), quotient}, 0, line));
    }
    return std::nullopt;
  }

  /// Returns the first column for which `column` >= `row`, or `column` > `row` with `beyond`.
  std::optional<Value> firstBeside(Value column, Value row, bool beyond) {
    Range range = intervals.range(column);
    if (module[column].op == Op::Param)
      range = Range::integers(Type::I32, 1 - kFarthest, kFarthest - 1); // no sums follow
    if (range.lo <= INT32_MIN || range.hi >= INT32_MAX) return std::nullopt;
    std::optional<Value> least = clamped(row, range.lo - beyond, range.hi + !beyond);
    if (least && beyond) least = exact(Op::Add, *least, number(1));
    return least ? firstWhere(column, *least) : std::nullopt;
  }

  /// A comparison known per row gives all columns or none. The edge that rises with q_idx is the one that moves.
  MaybeSpan rowCondition(Value condition, bool holds) {
    if (!holds) condition = module.make(Op::Not, Type::Bool, {condition}, 0, line);
    Direction direction = monotony.of(condition);
    if (direction == Direction::Up) return Span{first(), either(condition, behind(), first())};
    if (direction == Direction::Down || rows == RowConditions::Any)
      return Span{either(condition, first(), behind()), behind()};
    return std::nullopt;
  }

  MaybeSpan comparison(const Node& node, bool holds) {
    Value x = node.operands[0], y = node.operands[1];
    bool isEqual = node.op == (holds ? Op::Eq : Op::Ne);
    if (!isInt(module[x].type) || (!isEqual && (node.op == Op::Eq || node.op == Op::Ne))) return std::nullopt;
    bool isStrict = (node.op == Op::Lt) == holds;
    if (!holds && !isEqual) std::swap(x, y); // not x < y: y <= x
    bool isColumnFirst = levelOf(x) == Level::Column;
    Value column = isColumnFirst ? x : y, row = isColumnFirst ? y : x;
    if (levelOf(column) != Level::Column || levelOf(row) > Level::Row) return std::nullopt;
    std::optional<Value> begin = first(), end = behind();
    if (isEqual || !isColumnFirst) begin = firstBeside(column, row, !isEqual && isStrict);
    if (isEqual || isColumnFirst) end = firstBeside(column, row, isEqual || !isStrict);
    if (!begin || !end) return std::nullopt;
    return Span{*begin, *end};
  }

  // ---- The walk ----

  bool isNone(const Span& span) { return span.begin == behind() && span.end == first(); }

  MaybeSpan intersection(const Span& a, const Span& b) {
    if (isNone(a) || isNone(b)) return none();
    return Span{larger(a.begin, b.begin), smaller(a.end, b.end)};
  }

  /// Unites two spans that begin together or end together into the longer one. Empty spans need no special case.
  MaybeSpan unionOf(const Span& a, const Span& b) {
    if (isNone(a) || isAll(b)) return b;
    if (isNone(b) || isAll(a)) return a;
    if (a.begin == b.begin) {
      bool isOpen = a.end == behind() || b.end == behind();
      return Span{a.begin, isOpen ? behind() : make(Op::Max, a.end, b.end)};
    }
    if (a.end != b.end) return std::nullopt;
    bool isOpen = a.begin == first() || b.begin == first();
    return Span{isOpen ? first() : make(Op::Min, a.begin, b.begin), a.end};
  }

  /// Returns the columns in which the value is `wanted`.
  MaybeSpan spanOf(Value value, bool wanted) {
    const Node node = module[value];
    if (++steps > kMaxSteps) return std::nullopt;
    if (node.line) line = node.line;
    if (module.isConst(value)) return (module.integer(value) != 0) == wanted ? all() : none();
    if (auto chosen = assumed.find(value.id); chosen != assumed.end()) return chosen->second == wanted ? all() : none();
    if (node.op == Op::Not) return spanOf(node.operands[0], !wanted);
    if (node.op == Op::And || node.op == Op::Or) {
      MaybeSpan a = spanOf(node.operands[0], wanted);
      MaybeSpan b = a ? spanOf(node.operands[1], wanted) : std::nullopt;
      if (!b) return std::nullopt;
      return (node.op == Op::And) == wanted ? intersection(*a, *b) : unionOf(*a, *b);
    }
    if (node.op == Op::Select)
      if (auto chosen = assumed.find(node.operands[0].id); chosen != assumed.end())
        return spanOf(node.operands[chosen->second ? 1 : 2], wanted);
    if (levelOf(value) == Level::Row) return rowCondition(value, wanted);
    bool isComparison = ir::info(node.op).rule == ir::TypeRule::Compare;
    return isComparison ? comparison(node, wanted) : std::nullopt;
  }

  /// Collects the per-head conditions among those that mask_mod joins.
  void collectChoices(Value value) {
    const Node& node = module[value];
    if (module.isConst(value) || ++steps > kMaxSteps) return;
    if (levelOf(value) <= Level::Head) {
      if (node.op == Op::Not) return collectChoices(node.operands[0]);
      if (!llvm::is_contained(choices, value)) choices.push_back(value);
      return;
    }
    bool isJoined = node.op == Op::And || node.op == Op::Or || node.op == Op::Not || node.op == Op::Select;
    if (isJoined && module[node.operands[0]].type == Type::Bool && choices.size() <= kMaxChoices)
      for (Value operand : node.operands) collectChoices(operand);
  }

  MaybeSpan tryChoices(size_t decided) {
    if (decided == choices.size()) return spanOf(root, true);
    Value choice = choices[decided];
    assumed[choice.id] = true;
    MaybeSpan whenTrue = tryChoices(decided + 1);
    assumed[choice.id] = false;
    MaybeSpan whenFalse = whenTrue ? tryChoices(decided + 1) : std::nullopt;
    if (!whenFalse) return std::nullopt;
    return Span{either(choice, whenTrue->begin, whenFalse->begin), either(choice, whenTrue->end, whenFalse->end)};
  }

  ir::Module& module;
  const Value root;
  const RowConditions rows;
  std::vector<Level> levels; // levels of the module's original nodes
  analysis::Intervals intervals;
  analysis::Monotony monotony;
  std::vector<Value> choices;
  llvm::DenseMap<uint32_t, bool> assumed; // by Value::id
  int steps = 0;
  uint32_t line = 0; // current line of the mod's text
};

} // namespace

std::optional<ColumnSpan> columnSpan(ir::Module& module, Value root, RowConditions rows) {
  SpanFinder finder(module, root, rows);
  const MaybeSpan span = finder.run();
  if (!span) return std::nullopt;
  return ColumnSpan{span->begin, span->end, finder.isAll(*span),
                    finder.isEdge(span->begin) && finder.isEdge(span->end)};
}

} // namespace attnc::passes
