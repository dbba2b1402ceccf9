#include "reference/ranges.h"

#include "ir/levels.h"
#include "ir/philox.h"
#include "ir/semantics.h"
#include "ir/walk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

namespace attnc::reference {
namespace {

using ir::Op;
using ir::Type;
using Real = NumberOf<double>;

constexpr double kMostOfF32 = std::numeric_limits<float>::max(), kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

Range point(int64_t value) { return {{.integer = value}, {.integer = value}}; }
Range point(double value) { return {{.real = value}, {.real = value}}; }

/// Returns the numbers of two ranges and those between.
Range hull(const Range& a, const Range& b, Type type) {
  if (type != Type::F32)
    return {{.integer = std::min(a.low.integer, b.low.integer)}, {.integer = std::max(a.high.integer, b.high.integer)}};
  if (std::isnan(a.low.real) || std::isnan(b.low.real))
    return a.isPoint() && b.isPoint() && a.low.integer == b.low.integer ? a : point(kNoNumber);
  return {{.real = std::min(a.low.real, b.low.real)}, {.real = std::max(a.high.real, b.high.real)}};
}

/// How far an operation of f32 may be from its exact result, dsl/SPEC.md: relative to it, and absolutely.
struct OperationError {
  double relative = 0, absolute = 0;
  bool vanishes = true; ///< whether there is no error if the exact result is a number of f32
};

OperationError errorOf(Op op) {
  switch (op) {
  case Op::Add:
  case Op::Sub:
  case Op::Mul:
  case Op::Cast: return {0x1p-23}; // a multiply-add rounds once
  case Op::Div:
  case Op::Sqrt:
  case Op::Mod: return {0x1p-21}; // a reciprocal
  case Op::Neg:
  case Op::Abs:
  case Op::Min:
  case Op::Max:
  case Op::FloorDiv:
  case Op::Floor:
  case Op::Ceil:
  case Op::Trunc:
  case Op::Round:
  case Op::Fmod:
  case Op::StopGradient: return {};
  case Op::TanhApprox: return {0x1p-10, 0, false};
  case Op::Tanh: return {0x1p-20, 0x1p-20, false}; // a softcap in the exponent
  default: return {0x1p-20, 0x1p-120, false};
  }
}

/// Widens the range of an operation's exact results by its error.
Range rounded(Range range, Op op) {
  if (std::isnan(range.low.real)) return range;
  const OperationError error = errorOf(op);
  if (error.vanishes && range.isPoint() && double(float(range.low.real)) == range.low.real) return range;
  range.low.real -= error.relative * std::fabs(range.low.real) + error.absolute;
  range.high.real += error.relative * std::fabs(range.high.real) + error.absolute;
  if (range.low.real < -kMostOfF32) range.low.real = -kInfinity;
  if (range.high.real > kMostOfF32) range.high.real = kInfinity;
  // What lies beyond f32 on the other side is its infinity.
  if (range.low.real > kMostOfF32) range.low.real = kMostOfF32;
  if (range.high.real < -kMostOfF32) range.high.real = -kMostOfF32;
  return range;
}

bool isIn(double x, const Range& range) { return range.low.real <= x && x <= range.high.real; }

/// Widens the hull of the results at the ends of the operands' ranges by results between them that lie outside.
Range withInner(Op op, const Range& a, const Range& b, Range ends) {
  const auto include = [&](double x) { ends = hull(ends, point(x), Type::F32); };
  switch (op) {
  case Op::Abs:
    if (isIn(0, a)) include(0);
    break;
  case Op::Div:
    if (isIn(0, b)) return b.isPoint() ? ends : Range{{.real = -kInfinity}, {.real = kInfinity}};
    break;
  case Op::Pow:
    if (isIn(0, a)) include(b.low.real > 0 ? 0 : kInfinity);
    break;
  case Op::Mod:
  case Op::Fmod:
    if (std::floor(a.low.real / b.low.real) != std::floor(a.high.real / b.high.real))
      include(0), include(op == Op::Fmod && a.low.real < 0 ? -b.low.real : b.high.real);
    break;
  case Op::Sin:
  case Op::Cos: {
    const double width = std::min(4.0, a.high.real - a.low.real);
    include(std::min(1.0, ends.high.real + width * width / 8));
    include(std::max(-1.0, ends.low.real - width * width / 8));
    break;
  }
  default: break;
  }
  return ends;
}

/// Applies an operation to ranges of f32.
Range applied(Op op, Type to, const Range& a, const Range& b, bool isBinary) {
  if (op == Op::Eq || op == Op::Ne) {
    const bool overlap = a.low.real <= b.high.real && b.low.real <= a.high.real;
    if (overlap && !(a.isPoint() && b.isPoint())) return {{.integer = 0}, {.integer = 1}};
  }
  if (op == Op::Cast && to == Type::Bool && isIn(0, a) && !a.isPoint()) return {{.integer = 0}, {.integer = 1}};
  const auto at = [&](Real x, Real y) {
    const Real value = ir::semantics::apply(op, Type::F32, to, x, y);
    return Range{value, value};
  };
  Range ends = at(a.low, b.low);
  if (!a.isPoint()) ends = hull(ends, at(a.high, b.low), to);
  if (isBinary && !b.isPoint()) {
    ends = hull(ends, at(a.low, b.high), to);
    if (!a.isPoint()) ends = hull(ends, at(a.high, b.high), to);
  }
  if (to != Type::F32) return ends;
  return rounded(a.isPoint() && (!isBinary || b.isPoint()) ? ends : withInner(op, a, b, ends), op);
}

/// Applies an operation to ranges of integers or bools: to all of them, or to their ends if there are many.
Range applied(Op op, Type from, Type to, const Range& a, const Range& b, bool isBinary) {
  constexpr int64_t kMost = 8;
  const auto stepOf = [&](const Range& range) {
    const int64_t span = std::max<int64_t>(1, range.high.integer - range.low.integer);
    return span > kMost || span < 0 ? span : 1;
  };
  std::optional<Range> all;
  for (int64_t x = a.low.integer; x <= a.high.integer; x += stepOf(a))
    for (int64_t y = b.low.integer; y <= (isBinary ? b.high.integer : b.low.integer); y += stepOf(b)) {
      const Real value = ir::semantics::apply<double>(op, from, to, {.integer = x}, {.integer = y});
      all = all ? hull(*all, {value, value}, to) : Range{value, value};
    }
  return to == Type::F32 ? rounded(*all, op) : *all;
}

} // namespace

RangeEvaluator::RangeEvaluator(const ir::Module& module, const ir::Bindings& bindings, ir::Value root)
    : module(module), bindings(bindings), root(root), inside(module.size()), values(module.size()) {
  at.fill(INT64_MIN); // nothing has been computed yet
  const std::vector<bool> needed = ir::neededBy(module, root);
  const std::vector<ir::LoopSet> open = ir::openLoops(module);
  const std::vector<ir::Level> levels = ir::levels(module);
  std::vector<ir::Value> ofLaunch;
  for (uint32_t id = 0; id < module.size(); ++id) {
    if (!needed[id]) continue;
    if (module[{id}].op == Op::Sum) inside[id] = ir::nodesInside(module, open, {id});
    if (open[id]) continue;
    const size_t level = std::min<size_t>(size_t(levels[id]), byLevel.size());
    (level ? byLevel[level - 1] : ofLaunch).push_back({id});
  }
  compute(ofLaunch);
}

Range RangeEvaluator::evaluate(double low, double high, int64_t b, int64_t h, int64_t q, int64_t kv, int64_t round,
                               const Range& prob) const {
  const bool isHead = b == at[0] && h == at[1], isRow = isHead && q == at[2];
  at = {b, h, q, kv, round};
  score = {{.real = low}, {.real = high}}, weight = prob;
  if (!isHead) compute(byLevel[0]);
  if (!isRow) compute(byLevel[1]);
  compute(byLevel[2]);
  return values[root.id];
}

void RangeEvaluator::compute(const std::vector<ir::Value>& nodes) const {
  for (ir::Value value : nodes) {
    const ir::Node& node = module[value];
    values[value.id] = node.op == Op::Sum ? summed(node, value.id) : valueOf(node);
  }
}

Range RangeEvaluator::valueOf(const ir::Node& node) const {
  if (ir::isLeaf(node)) return leaf(node);
  if (node.op == Op::Load) return gathered(node);
  if (ir::info(node.op).rule == ir::TypeRule::Grid) return placed(node);
  if (node.op == Op::Random) return drawn(node);
  const Range &a = values[node.operands[0].id], b = node.operands.size() > 1 ? values[node.operands[1].id] : a;
  if (node.op == Op::Select) {
    const Range& c = values[node.operands[2].id];
    return a.isPoint() ? (a.low.integer ? b : c) : hull(b, c, node.type);
  }
  const Type from = module[node.operands[0]].type;
  const bool isBinary = node.operands.size() > 1;
  return from == Type::F32 ? applied(node.op, node.type, a, b, isBinary)
                           : applied(node.op, from, node.type, a, b, isBinary);
}

Range RangeEvaluator::drawn(const ir::Node& node) const {
  std::array<int64_t, 5> at;
  for (size_t i = 0; i < at.size(); ++i) {
    const Range& operand = values[node.operands[i].id];
    if (!operand.isPoint()) return {{.real = 0}, {.real = 1}};
    at[i] = operand.low.integer;
  }
  return point(double(ir::randomAt(at[0], uint32_t(at[1]), uint32_t(at[2]), uint32_t(at[3]), uint32_t(at[4]))));
}

Range RangeEvaluator::leaf(const ir::Node& node) const {
  switch (ir::leafOf(node)) {
  case ir::Leaf::Const:
    return node.type == Type::F32 ? point(double(std::bit_cast<float>(uint32_t(node.attr)))) : point(node.attr);
  case ir::Leaf::Param:
    switch (ir::ParamKind(node.attr)) {
    case ir::ParamKind::Score: return score;
    case ir::ParamKind::Grad: return point(1.0);
    case ir::ParamKind::ScoreTangent:
    case ir::ParamKind::GradTangent: return {{.real = -kInfinity}, {.real = kInfinity}};
    case ir::ParamKind::Prob: return weight;
    case ir::ParamKind::B: return point(at[0]);
    case ir::ParamKind::H: return point(at[1]);
    case ir::ParamKind::QIdx: return point(at[2]);
    case ir::ParamKind::KvIdx: return point(at[3]);
    case ir::ParamKind::Round: return point(at[4]);
    }
    break;
  case ir::Leaf::Dim: return point(bindings.dims[size_t(node.attr)]);
  case ir::Leaf::Iter: return point(rounds[ir::Loop::of(node).id]);
  case ir::Leaf::Scalar: {
    const ir::ScalarValue& scalar = bindings.scalars[size_t(node.attr)];
    return node.type == Type::F32 ? point(double(scalar.real)) : point(scalar.integer);
  }
  }
  return point(int64_t(0));
}

Range RangeEvaluator::gathered(const ir::Node& node) const {
  const TensorView& view = bindings.tensors[size_t(node.attr)];
  if (view.elements() == 0) return point(int64_t(0));
  constexpr int64_t kMost = 64; // elements of one axis
  std::vector<int64_t> offsets = {0};
  for (int axis = 0; axis < view.rank; ++axis) {
    const Range& index = values[node.operands[size_t(axis)].id];
    const int64_t last = view.shape[size_t(axis)] - 1, low = std::clamp<int64_t>(index.low.integer, 0, last),
                  high = std::clamp<int64_t>(index.high.integer, 0, last), before = int64_t(offsets.size());
    if (high - low > kMost)
      return node.type == Type::F32 ? point(kNoNumber) : Range{{.integer = INT32_MIN}, {.integer = INT32_MAX}};
    for (int64_t i = 0; i < before; ++i) {
      for (int64_t other = low + 1; other <= high; ++other)
        offsets.push_back(offsets[size_t(i)] + other * view.stride[size_t(axis)]);
      offsets[size_t(i)] += low * view.stride[size_t(axis)];
    }
  }
  std::optional<Range> all;
  for (int64_t offset : offsets) {
    const Number element = readElement(view.data, view.dtype, offset);
    const Range one = node.type == Type::F32 ? point(double(element.real)) : point(element.integer);
    all = all ? hull(*all, one, node.type) : one;
  }
  return *all;
}

Range RangeEvaluator::placed(const ir::Node& node) const {
  const ir::GridAxis axis = ir::GridAxis::of(node);
  const ir::Grid& grid = module.grids[axis.grid];
  const auto extents = bindings.extentsOf(grid);
  const int64_t token = values[node.operands[0].id].low.integer - bindings.of(grid.before);
  int64_t behind = 1;
  for (size_t i = axis.axis + 1; i < extents.size(); ++i) behind *= extents[i];
  if (node.op == Op::InGrid) return point(int64_t(token >= 0 && token < behind * extents[0]));
  const int64_t line = ir::semantics::floorDiv(token, behind);
  return point(axis.axis == 0 ? line : ir::semantics::floorMod(line, extents[axis.axis]));
}

Range RangeEvaluator::summed(const ir::Node& node, uint32_t id) const {
  const ir::Loop loop = ir::Loop::of(node);
  const int64_t outer = rounds[loop.id]; // a sum that does not depend on it may stand in a loop of the same id
  Range total = point(int64_t(0));       // the bits of 0.0 also
  for (int64_t i = 0; i < loop.count; ++i) {
    rounds[loop.id] = i;
    compute(inside[id]);
    const Range& term = values[node.operands[0].id];
    total = node.type == Type::F32 ? applied(Op::Add, Type::F32, total, term, /*isBinary=*/true)
                                   : applied(Op::Add, node.type, node.type, total, term, /*isBinary=*/true);
  }
  rounds[loop.id] = outer;
  return total;
}

} // namespace attnc::reference
