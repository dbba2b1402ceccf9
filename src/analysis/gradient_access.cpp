#include "analysis/gradient_access.h"

#include "analysis/intervals.h"
#include "analysis/ir_names.h"
#include "ir/walk.h"

#include <llvm/ADT/STLExtras.h>

#include <optional>

namespace attnc::analysis {
namespace {

constexpr int64_t kMaxExactFloat = int64_t(1) << 24;

/// How values change from (q_idx, kv_idx) to (q_idx + 1, kv_idx + 1).
class AlongDiagonal {
public:
  AlongDiagonal(const ir::Module& module, llvm::ArrayRef<ir::ParamSet> params)
      : module(module), params(params), intervals(module) {
    for (uint32_t id = 0; id < module.size(); ++id) {
      growths.push_back(of({id}));
      rates.push_back(rateOf({id}));
    }
  }

  bool isConstant(Value value) const { return growths[value.id] && growths[value.id]->by == 0; }

  /// Whether the value is `grad` times a factor that is constant along diagonals and does not depend on the score.
  bool isRateOfGrad(Value value) const { return rates[value.id] == Rate::OfGrad; }

private:
  /// The step of a value along a diagonal, the same everywhere; 0 for a constant value of any type. A growing f32 is
  /// exactly an integer.
  struct Growth {
    int64_t by = 0;
    bool wraps = false; ///< whether it may wrap modulo 2^32 or 2^64
  };

  std::optional<Growth> of(Value value) {
    const ir::ParamSet& on = params[value.id];
    if (!on.contains(ParamKind::QIdx) && !on.contains(ParamKind::KvIdx)) return Growth{};
    const Node& node = module[value];
    if (node.op == Op::Param) return Growth{1}; // q_idx or kv_idx
    if (llvm::all_of(node.operands, [&](Value x) { return isConstant(x); })) return Growth{};
    if (!llvm::all_of(node.operands, [&](Value x) { return growths[x.id].has_value(); })) return std::nullopt;
    const auto operand = [&](size_t i) { return *growths[node.operands[i].id]; };
    const auto sum = [&](uint64_t by) {
      const bool wraps = llvm::any_of(node.operands, [&](Value x) { return growths[x.id]->wraps; });
      return Growth{int64_t(by), by != 0 && (wraps || !intervals.isExact(value))};
    };
    const bool isOfInts = ir::isInt(module[node.operands[0]].type);
    const bool isCompare = ir::info(node.op).rule == ir::TypeRule::Compare;
    // The difference of two exact numbers that grow equally is constant, and so is its rounded value.
    if (isCompare || (node.op == Op::Sub && node.type == ir::Type::F32)) {
      if (operand(0).by == operand(1).by && !operand(0).wraps && !operand(1).wraps) return Growth{};
      return std::nullopt;
    }
    if (node.op == Op::Cast && node.type == ir::Type::F32 && isOfInts) {
      const bool isExact = intervals.range(node.operands[0]).within(-kMaxExactFloat, kMaxExactFloat);
      return isExact && !operand(0).wraps ? std::optional(operand(0)) : std::nullopt;
    }
    if (!ir::isInt(node.type) || !isOfInts) return std::nullopt;
    switch (node.op) {
    case Op::Add: return sum(uint64_t(operand(0).by) + uint64_t(operand(1).by));
    case Op::Sub: return sum(uint64_t(operand(0).by) - uint64_t(operand(1).by));
    case Op::Neg: return sum(-uint64_t(operand(0).by));
    case Op::Mul:
      for (int i : {0, 1})
        if (module.isConst(node.operands[size_t(i)]))
          return sum(uint64_t(module.integer(node.operands[size_t(i)])) * uint64_t(operand(size_t(1 - i)).by));
      return std::nullopt;
    default: return std::nullopt;
    }
  }

  enum class Rate {
    None,   ///< unknown
    Zero,   ///< the constant 0
    Factor, ///< constant, independent of score and gradient
    OfGrad, ///< `grad` times a factor
  };

  Rate rateOf(Value value) const {
    const ir::ParamSet& on = params[value.id];
    if (module.isParam(value, ParamKind::Grad)) return Rate::OfGrad;
    if (module.isConst(value) && module[value].type == ir::Type::F32 && module.f32(value) == 0) return Rate::Zero;
    if (!on.contains(ParamKind::Grad))
      return !on.contains(ParamKind::Score) && isConstant(value) ? Rate::Factor : Rate::None;
    const Node& node = module[value];
    const auto is = [&](size_t i, Rate rate) { return rates[node.operands[i].id] == rate; };
    const auto isGradOrZero = [&](size_t i) { return is(i, Rate::OfGrad) || is(i, Rate::Zero); };
    bool isOfGrad = false;
    switch (node.op) {
    case Op::Neg: isOfGrad = is(0, Rate::OfGrad); break;
    case Op::Mul:
      isOfGrad = (is(0, Rate::OfGrad) && is(1, Rate::Factor)) || (is(0, Rate::Factor) && is(1, Rate::OfGrad));
      break;
    case Op::Div: isOfGrad = is(0, Rate::OfGrad) && is(1, Rate::Factor); break;
    case Op::Add:
    case Op::Sub: isOfGrad = isGradOrZero(0) && isGradOrZero(1); break;
    case Op::Select: isOfGrad = is(0, Rate::Factor) && isGradOrZero(1) && isGradOrZero(2); break;
    default: break;
    }
    return isOfGrad ? Rate::OfGrad : Rate::None;
  }

  const ir::Module& module;
  const llvm::ArrayRef<ir::ParamSet> params; // by Value::id
  Intervals intervals;
  std::vector<std::optional<Growth>> growths; // by Value::id
  std::vector<Rate> rates;                    // by Value::id
};

} // namespace

bool isPositionAlong(const ir::Module& module, Value value, const ir::Extent& extent) {
  if (module[value].op != Op::Param) return false;
  const std::optional<ir::BuiltinDim> along = ir::extentOf(ParamKind(module[value].attr));
  return along && extent.isNamed && extent.value == int64_t(*along);
}

namespace {

class AccessFinder {
public:
  explicit AccessFinder(const ir::Module& module) : module(module), params(ir::paramsOf(module)) {}

  GradientAccess of(const ir::CaptureGradient& place) {
    GradientAccess access{.reach = Reach::Head};
    const auto tensor = llvm::find_if(module.tensors, [&](const auto& t) { return t.name == place.capture; });
    if (tensor != module.tensors.end()) addIndices(place, *tensor, access); // otherwise a scalar
    access.ofDiagonals = isOfDiagonals(place, access.reach);
    return access;
  }

private:
  void addIndices(const ir::CaptureGradient& place, const ir::TensorCapture& tensor, GradientAccess& access) {
    ir::ParamSet on, positions;
    bool countsRounds = false;
    for (size_t axis = 0; axis < place.indices.size(); ++axis) {
      const Value index = *module.output(place.indices[axis]);
      on |= params[index.id];
      if (isPositionAlong(module, index, tensor.shape[axis])) positions |= {ParamKind(module[index].attr)};
      countsRounds |= isRoundAndConstant(index);
    }
    access.roundMoves = on.contains(ParamKind::Round);
    access.once = place.rounds == 1 && positions.containsAll({ParamKind::QIdx, ParamKind::KvIdx});
    if (place.ofFactor)
      access.once = countsRounds && (positions.contains(ParamKind::QIdx) || positions.contains(ParamKind::KvIdx));
    access.oneBatch = !positions.contains(ParamKind::B);
    access.oneHead = !positions.contains(ParamKind::H);

    const bool ofRow = on.contains(ParamKind::QIdx), ofColumn = on.contains(ParamKind::KvIdx);
    if (on.contains(ParamKind::Score) || on.contains(ParamKind::Grad)) {
      access.reach = Reach::Element;
    } else if (ofRow && ofColumn) {
      const bool isDiagonal = llvm::all_of(
          place.indices, [&](const std::string& name) { return alongDiagonal().isConstant(*module.output(name)); });
      access.reach = isDiagonal ? Reach::Diagonal : Reach::Element;
    } else if (ofRow || ofColumn) {
      access.reach = ofRow ? Reach::Row : Reach::Column;
    }
  }

  bool isRoundAndConstant(Value index) const {
    const Node& node = module[index];
    if (node.op == Op::Add || node.op == Op::Sub)
      return module.isParam(node.operands[0], ParamKind::Round) && module.isConst(node.operands[1]);
    return module.isParam(index, ParamKind::Round);
  }

  /// Whether GradientAccess::ofDiagonals holds.
  bool isOfDiagonals(const ir::CaptureGradient& place, Reach reach) {
    const std::optional<Value> dScore = module.output(ir::kDScore), value = module.output(place.output);
    if (!dScore || !module.isParam(*dScore, ParamKind::Grad) || !value) return false;
    return (reach == Reach::Head || reach == Reach::Diagonal) && alongDiagonal().isRateOfGrad(*value);
  }

  const AlongDiagonal& alongDiagonal() {
    if (!along) along.emplace(module, params);
    return *along;
  }

  const ir::Module& module;
  const std::vector<ir::ParamSet> params; // by Value::id
  std::optional<AlongDiagonal> along;
};

} // namespace

std::vector<GradientAccess> gradientAccesses(const ir::Module& module, llvm::ArrayRef<ir::CaptureGradient> places) {
  std::vector<GradientAccess> accesses;
  if (places.empty()) return accesses;
  AccessFinder finder(module);
  for (const ir::CaptureGradient& place : places) accesses.push_back(finder.of(place));
  return accesses;
}

} // namespace attnc::analysis
