#include "analysis/low_rank.h"

#include "analysis/ir_names.h"
#include "analysis/range.h"
#include "ir/levels.h"
#include "ir/loops.h"
#include "ir/walk.h"

#include <llvm/ADT/STLExtras.h>

namespace attnc::analysis {
namespace {

constexpr int64_t kManySquares = 4;                // in whose place products would gain
constexpr int kMostDepth = 64, kMostVisits = 1024; // of a sum: nodes may be reached on many ways

class LowRankFinder {
public:
  explicit LowRankFinder(const ir::Module& module)
      : module(module), needed(ir::neededByOutputs(module)), uses(module.size(), 0), users(module.size()) {
    for (uint32_t id = 0; id < module.size(); ++id) levels.push_back(ir::levelOf(module[{id}], levels));
    for (uint32_t id = 0; id < module.size(); ++id)
      if (needed[id])
        for (Value operand : module[{id}].operands) ++uses[operand.id], users[operand.id] = {id};
    for (const ir::Output& output : module.outputs()) ++uses[output.value.id];
  }

  LowRank find() {
    const std::optional<Value> score = neededScore();
    LowRankTerm term;
    if (score) {
      term.sum = *score;
      for (std::optional<Value> user = onlyUser(term.sum); user; user = onlyUser(term.sum)) {
        const Node& node = module[*user];
        const unsigned at = node.operands[0] == term.sum ? 0 : 1;
        if (node.op != Op::Add && (node.op != Op::Sub || at == 1)) break;
        addAddend(node.operands[1 - at], node.op == Op::Sub, term);
        term.sum = *user;
      }
    }
    if (term.parts.empty()) return {std::nullopt, whyNone(score)};
    // An unrolled sum is in the order of its indices: so were its numbers made.
    const auto made = [](const LowRankTerm::Part& part) { return part.kv.empty() ? 0 : part.kv[0].value.id; };
    llvm::stable_sort(term.parts, [&](const auto& a, const auto& b) { return made(a) < made(b); });
    ir::ParamSet on;
    term.qIsBf16 = term.kvIsBf16 = true;
    const std::vector<ir::LoopSet> open = ir::openLoops(module);
    std::vector<LowRankTerm::Factors> ofRows, ofColumns; // by part
    for (const LowRankTerm::Part& part : term.parts) {
      term.rank += part.rank();
      for (const LowRankTerm::Factor& factor : part.kv) on |= ir::paramsOf(module, factor.value);
      term.kvIsBf16 &= isBf16(part.kv);
      LowRankTerm::Factors ofRow;
      for (const LowRankTerm::Factor& factor : part.q)
        if (levels[factor.value.id] > Level::Head || open[factor.value.id]) ofRow.push_back(factor);
      term.qIsBf16 &= isBf16(ofRow);
      ofRows.push_back(ofRow), ofColumns.push_back(part.kv);
    }
    if (!module.offsetsQueries) term.qElements = elementsOf(ofRows, term.parts, ParamKind::QIdx);
    term.kvElements = elementsOf(ofColumns, term.parts, ParamKind::KvIdx);
    if (term.qIsBf16) term.gains = gainsOf(term.parts);
    term.kvPerBatch = on.contains(ParamKind::B);
    term.kvPerHead = on.contains(ParamKind::H);
    return {std::move(term), {}};
  }

private:
  /// What stands around a value in the sum.
  struct Around {
    bool isNegative = false;
    LowRankTerm::Factors q = {}, kv = {};
    std::optional<ir::Loop> loop = {};
  };

  std::optional<Value> neededScore() const {
    for (uint32_t id = 0; id < module.size(); ++id)
      if (needed[id] && ir::isScore(module, {id})) return Value{id};
    return std::nullopt;
  }

  std::optional<Value> onlyUser(Value value) const {
    if (uses[value.id] != 1) return std::nullopt;
    for (const ir::Output& output : module.outputs())
      if (output.value == value) return std::nullopt;
    return users[value.id];
  }

  /// Divides an addend. One without products stays as it is.
  void addAddend(Value value, bool isNegative, LowRankTerm& term) {
    const size_t parts = term.parts.size(), rest = term.rest.size();
    split(value, {.isNegative = isNegative}, term, 0);
    if (term.parts.size() > parts) return;
    term.rest.resize(rest);
    term.rest.push_back({value, {}, isNegative});
  }

  /// Whether the value is a number known at launch without arithmetic: LowRankTerm::Gain.
  bool isGain(Value value) const {
    const Node& node = module[value];
    return node.type == Type::F32 && (node.op == Op::Const || node.op == Op::Scalar);
  }

  /// Adds a factor that is no Element. Gains in its products and quotients become factors of their own, of the row.
  void multiply(Around& around, Value value, bool divides = false) const {
    for (int depth = 0; depth < kMostDepth; ++depth) {
      const Node& node = module[value];
      const bool isProduct = node.op == Op::Mul, isQuotient = node.op == Op::Div;
      const unsigned at = isProduct && isGain(node.operands[0]) ? 0 : 1; // of the gain
      if ((!isProduct && !isQuotient) || !isGain(node.operands[at])) break;
      around.q.push_back({node.operands[at], divides != isQuotient});
      value = node.operands[1 - at];
    }
    (levels[value.id] == Level::Column ? around.kv : around.q).push_back({value, divides});
  }

  bool hasLevel(const LowRankTerm::Factors& factors, Level level) const {
    return llvm::any_of(factors, [&](const auto& factor) { return levels[factor.value.id] == level; });
  }

  /// Divides the value into parts and rest. Whether all went into parts; inside a loop nothing may remain.
  bool split(Value value, const Around& around, LowRankTerm& out, int depth) {
    if (++visits > kMostVisits) return leave(value, around, out);
    if (levels[value.id] != Level::Element) {
      Around all = around;
      multiply(all, value);
      if (!all.loop && !(hasLevel(all.q, Level::Row) && hasLevel(all.kv, Level::Column)))
        return leave(value, around, out);
      out.parts.push_back({all.q, all.kv, all.loop, all.isNegative});
      return true;
    }
    const Node& node = module[value];
    if (node.type != Type::F32 || depth == kMostDepth) return leave(value, around, out);
    Around inner = around;
    switch (node.op) {
    case Op::Add:
    case Op::Sub: {
      const bool first = split(node.operands[0], inner, out, depth + 1);
      inner.isNegative = around.isNegative != (node.op == Op::Sub);
      return split(node.operands[1], inner, out, depth + 1) && first;
    }
    case Op::Neg: inner.isNegative = !around.isNegative; return split(node.operands[0], inner, out, depth + 1);
    case Op::Mul: {
      const unsigned at = levels[node.operands[0].id] == Level::Element ? 1 : 0; // a factor, if any is
      if (levels[node.operands[at].id] == Level::Element) {
        if (isSquareOfDifference(node)) squares += around.loop ? around.loop->count : 1;
        return leave(value, around, out);
      }
      multiply(inner, node.operands[at]);
      return split(node.operands[1 - at], inner, out, depth + 1);
    }
    case Op::Div:
      if (levels[node.operands[1].id] == Level::Element) return leave(value, around, out);
      multiply(inner, node.operands[1], true);
      return split(node.operands[0], inner, out, depth + 1);
    case Op::Sum: {
      LowRankTerm inLoop;
      inner.loop = ir::Loop::of(node);
      if (around.loop || !split(node.operands[0], inner, inLoop, depth + 1)) return leave(value, around, out);
      llvm::append_range(out.parts, inLoop.parts);
      return true;
    }
    default: return leave(value, around, out);
    }
  }

  /// Whether a product is the square of a difference between a number of the row and one of the column.
  bool isSquareOfDifference(const Node& product) const {
    const Node& difference = module[product.operands[0]];
    if (product.operands[0] != product.operands[1] || difference.op != Op::Sub) return false;
    const Level a = levels[difference.operands[0].id], b = levels[difference.operands[1].id];
    return (a == Level::Row && b == Level::Column) || (a == Level::Column && b == Level::Row);
  }

  bool leave(Value value, const Around& around, LowRankTerm& out) {
    LowRankTerm::Factors factors = around.q;
    factors.append(around.kv);
    out.rest.push_back({value, std::move(factors), around.isNegative});
    return false;
  }

  /// Says why the module has no term, if one of its loops is a sum of products, or if squares of differences are added
  /// to the score.
  std::string whyNone(std::optional<Value> score) {
    if (squares >= kManySquares) return "squares of differences are not divided: write x @ x + y @ y - 2 * (x @ y)";
    for (uint32_t id = 0; id < module.size(); ++id) {
      LowRankTerm term;
      if (!needed[id] || module[{id}].op != Op::Sum || levels[id] != Level::Element || !split({id}, {}, term, 0))
        continue;
      if (score && uses[score->id] > 1) return "score_mod also uses the score without the sum of products";
      return "the sum of products is not added to the score as it is given";
    }
    return {};
  }

  /// Returns LowRankTerm::gains. Precondition: factors of the row that are not known per head are numbers of bf16.
  std::optional<std::vector<llvm::SmallVector<LowRankTerm::Gain, 2>>> gainsOf(llvm::ArrayRef<LowRankTerm::Part> parts) {
    std::vector<llvm::SmallVector<LowRankTerm::Gain, 2>> all;
    for (const LowRankTerm::Part& part : parts) {
      auto& gains = all.emplace_back();
      for (const auto& [value, divides] : part.q) {
        if (isGain(value) && module.isConst(value))
          gains.push_back({divides, module.f32(value)});
        else if (isGain(value))
          gains.push_back({divides, 1, unsigned(module[value].attr)});
        else if (levels[value.id] <= Level::Head)
          return std::nullopt;
      }
    }
    return all;
  }

  /// Returns what is added to the index of a loop. Unset if the value is something else.
  std::optional<int64_t> behindIter(Value value, ir::Loop loop) const {
    const auto isIter = [&](Value of) { return module[of].op == Op::Iter && module[of].attr == loop.attr(); };
    if (isIter(value)) return 0;
    if (module[value].op != Op::Add) return std::nullopt;
    const Value a = module[value].operands[0], b = module[value].operands[1];
    if (isIter(a) && module.isConst(b)) return module.integer(b);
    if (isIter(b) && module.isConst(a)) return module.integer(a);
    return std::nullopt;
  }

  /// Returns the elements that the only factor of a part is; with a loop, in its round 0. `row`: the parameter that
  /// counts the rows.
  std::optional<LowRankTerm::Elements> elementsOf(const LowRankTerm::Factors& factors, std::optional<ir::Loop> loop,
                                                  ParamKind row) const {
    if (factors.size() != 1 || factors[0].divides || module[factors[0].value].op != Op::Load) return std::nullopt;
    const Node& load = module[factors[0].value];
    const ir::TensorCapture& tensor = module.tensors[size_t(load.attr)];
    if (tensor.dtype != DType::BF16) return std::nullopt;
    LowRankTerm::Elements found{unsigned(load.attr), {}, {}, {}, {}, {}};
    for (unsigned axis = 0; axis < load.operands.size(); ++axis) {
      const Value index = load.operands[axis];
      const auto counts = [&](std::optional<unsigned>& axisOf, ParamKind param, ir::BuiltinDim dim) {
        const ir::Extent& extent = tensor.shape[axis];
        if (axisOf || !module.isParam(index, param) || !extent.isNamed || extent.value != int64_t(dim)) return false;
        axisOf = axis;
        return true;
      };
      if (counts(found.batch, ParamKind::B, ir::BuiltinDim::B) || counts(found.head, ParamKind::H, ir::BuiltinDim::H) ||
          counts(found.row, row, row == ParamKind::QIdx ? ir::BuiltinDim::QLen : ir::BuiltinDim::KvLen))
        continue;
      const std::optional<int64_t> first = module.isConst(index) ? module.integer(index)
                                           : loop && !found.rank ? behindIter(index, *loop)
                                                                 : std::nullopt;
      if (!first || *first < 0) return std::nullopt;
      if (!module.isConst(index)) found.rank = axis;
      found.first.push_back({axis, *first});
    }
    if (!found.row || (loop && !found.rank)) return std::nullopt;
    return found;
  }

  /// Returns LowRankTerm::qElements or kvElements, from the factors of each part. A sum that was unrolled has a part
  /// for each index.
  std::optional<LowRankTerm::Elements> elementsOf(llvm::ArrayRef<LowRankTerm::Factors> factors,
                                                  llvm::ArrayRef<LowRankTerm::Part> parts, ParamKind row) const {
    auto all = elementsOf(factors[0], parts[0].loop, row);
    if (!all || all->rank || parts.size() == 1) return parts.size() == 1 && all && all->rank ? all : std::nullopt;
    for (size_t i = 1; i < parts.size(); ++i) {
      const auto one = parts[i].loop ? std::nullopt : elementsOf(factors[i], {}, row);
      if (!one || one->tensor != all->tensor || one->row != all->row || one->batch != all->batch ||
          one->head != all->head)
        return std::nullopt;
      for (size_t j = 0; j < one->first.size(); ++j) { // of the same axes
        const auto [axis, index] = one->first[j];
        if (i == 1 && !all->rank && index == all->first[j].second + 1) all->rank = axis;
        if (index != all->first[j].second + (all->rank == axis ? int64_t(i) : 0)) return std::nullopt;
      }
    }
    return all->rank ? all : std::nullopt;
  }

  bool isBf16(const LowRankTerm::Factors& factors) const {
    return factors.empty() || (factors.size() == 1 && !factors[0].divides && isBf16(factors[0].value, 0));
  }

  /// Whether every number that the value can be is one of bf16, which has 8 significant bits.
  bool isBf16(Value value, int depth) const {
    const Node& node = module[value];
    const auto isOperand = [&](unsigned i) { return depth < kMostDepth && isBf16(node.operands[i], depth + 1); };
    const auto isSmall = [](const Range& range) { return range.within(-256, 256); };
    switch (node.op) {
    case Op::Const: return node.type == Type::F32 && (uint32_t(node.attr) & 0xffff) == 0;
    case Op::Load: return module.tensors[size_t(node.attr)].dtype == DType::BF16;
    case Op::Neg:
    case Op::Abs: return isOperand(0);
    case Op::Min:
    case Op::Max: return isOperand(0) && isOperand(1);
    case Op::Select: return isOperand(1) && isOperand(2);
    case Op::Cast: {
      const Node& from = module[node.operands[0]];
      return from.type == Type::Bool ||
             (from.op == Op::Load && isSmall(Range::ofElement(module.tensors[size_t(from.attr)].dtype)));
    }
    default: return false;
    }
  }

  const ir::Module& module;
  std::vector<Level> levels; // by Value::id, as if there were no loops
  const std::vector<bool> needed;
  std::vector<int> uses;    // by Value::id, including uses by outputs
  std::vector<Value> users; // by Value::id, the last one
  int visits = 0;
  int64_t squares = 0; ///< of differences, which split() met
};

} // namespace

LowRank lowRank(const ir::Module& module) {
  if (!module.output(ir::kScore) || module.output(ir::kQFactor)) return {};
  return LowRankFinder(module).find();
}

} // namespace attnc::analysis
