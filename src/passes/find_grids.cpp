// In: a module that declares no grids. Out: where q_idx and kv_idx are taken apart by quotients and remainders, the
// grids that these are coordinates on, and the coordinates.
//
//   %0 = floor_div i32 %q_idx, 64     =>   grid [rest #Q_LEN, 64]
//   %1 = mod i32 %q_idx, 64                %0 = coord i32 grid0.0, %q_idx
//                                          %1 = coord i32 grid0.1, %q_idx
//
// Nobody wrote how many slices of 64 tokens there are: it is what the length leaves. Where positions are compared with
// the number of all tokens (q_idx < 32 * 64), or the first coordinate is a remainder, too (q_idx // 64 % 32), the grid
// has an extent for it. The module means the same for tokens on its grids, whose extents are all at least 1.
//
// A quotient of a remainder of a quotient ... of a position is a slice of its digits: floor(position / lo) mod (hi / lo),
// without the modulo where hi is unset. A grid cuts the digits at the hi of some slices. What begins or ends elsewhere is
// computed of a coordinate: the tile of a column, q_idx % 64 // 8.
#include "ir/bindings.h"
#include "ir/walk.h"
#include "passes/pass.h"
#include "passes/rebuild.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/Sequence.h>
#include <llvm/ADT/SmallVector.h>

#include <algorithm>
#include <tuple>

namespace attnc::passes {
namespace {

using ir::Node;
using ir::Op;
using ir::ParamKind;
using ir::Type;
using ir::Value;

constexpr size_t kMostCuts = 6; // that are tried, in all their combinations

/// A constant, scalars and extents of the launch, multiplied. The launch sees to it that all are at least 1.
struct TokenCount {
  int64_t constant = 1;
  llvm::SmallVector<uint32_t, 2> factors = {}; ///< Value::id, in order
  friend bool operator==(const TokenCount& a, const TokenCount& b) {
    return a.constant == b.constant && a.factors == b.factors;
  }
  bool isConstant() const { return factors.empty(); }
};

/// Nothing where the constant is more than there can be tokens.
std::optional<TokenCount> times(const TokenCount& a, const TokenCount& b) {
  if (a.constant * b.constant > ir::kMaxExtent) return std::nullopt;
  TokenCount result{a.constant * b.constant, a.factors};
  result.factors.append(b.factors.begin(), b.factors.end());
  llvm::sort(result.factors);
  return result;
}

/// a / b, where that is a product whatever the factors are.
std::optional<TokenCount> over(const TokenCount& a, const TokenCount& b) {
  if (a.constant % b.constant != 0) return std::nullopt;
  TokenCount result{a.constant / b.constant, a.factors};
  for (uint32_t factor : b.factors) {
    const auto found = llvm::find(result.factors, factor);
    if (found == result.factors.end()) return std::nullopt;
    result.factors.erase(found);
  }
  return result;
}

bool divides(const TokenCount& a, const TokenCount& b) { return over(b, a).has_value(); }

/// Digits of a position.
struct Slice {
  ParamKind of = ParamKind::QIdx;
  TokenCount lo;
  std::optional<TokenCount> hi;
  Value operand;                       ///< the slice that it is taken of; of a position itself, that
  llvm::SmallVector<TokenCount, 2> asked; ///< what the two divide by
  bool isPosition() const { return lo == TokenCount() && !hi; }
};

/// A comparison of a position with a number of tokens.
struct Bound {
  ParamKind of;
  TokenCount tokens;
  bool isBelow; ///< position < tokens, else position >= tokens
};

/// Where digits are cut: axis i has those from edges[i + 1] to edges[i]. The first is unset where the length gives it.
struct Cut {
  llvm::SmallVector<std::optional<TokenCount>, 4> edges;

  size_t axes() const { return edges.size() - 1; }
  /// The tokens that the extents make up that somebody wrote.
  const TokenCount& known() const { return edges[0] ? *edges[0] : *edges[1]; }
  /// The axis that has all digits of the slice.
  std::optional<size_t> axisOf(const Slice& slice) const {
    for (size_t axis = 0; axis < axes(); ++axis)
      if (divides(*edges[axis + 1], slice.lo) && (axis == 0 || (slice.hi && divides(*slice.hi, *edges[axis])))) return axis;
    return std::nullopt;
  }
  /// Whether the slice has the last digits of its axis, so that it is a quotient of the coordinate.
  bool isQuotient(const Slice& slice, size_t axis) const { return axis == 0 ? !slice.hi || slice.hi == edges[0] : slice.hi == edges[axis]; }
};

/// A slice as it follows from a coordinate: the coordinate // quotient % remainder.
struct Place {
  size_t axis;
  int64_t quotient = 1, remainder = 0; ///< 0: none
};

class GridFinder {
public:
  explicit GridFinder(const ir::Module& module)
      : module(module), needed(ir::neededByOutputs(module)),
        isOfMask(ir::neededBy(module, *module.output(ir::kMask))), slices(module.size()), isMultiple(module.size(), false) {
    for (uint32_t id = 0; id < module.size(); ++id) {
      if (!needed[id]) continue;
      slices[id] = sliceOf({id});
      if (std::optional<Bound> bound = boundOf({id})) bounds.try_emplace(id, *std::move(bound));
    }
    collectEnds();
  }

  /// The cuts of q_idx and of kv_idx: one for both, unless that breaks slices of one of them.
  std::pair<std::optional<Cut>, std::optional<Cut>> cuts() const {
    const std::optional<Cut> both = bestCut({ParamKind::QIdx, ParamKind::KvIdx});
    if (both && judge(*both, {ParamKind::QIdx, ParamKind::KvIdx}).broken == 0) return {both, both};
    return {bestCut({ParamKind::QIdx}), bestCut({ParamKind::KvIdx})};
  }

  const std::optional<Slice>& slice(Value value) const { return slices[value.id]; }
  const Bound* bound(Value value) const {
    const auto found = bounds.find(value.id);
    return found == bounds.end() ? nullptr : &found->second;
  }

  ir::Grid gridOf(const Cut& cut, ParamKind of) const {
    ir::Grid grid;
    for (size_t axis = 0; axis < cut.axes(); ++axis)
      grid.extents.push_back(cut.edges[axis] ? *numberOf(*over(*cut.edges[axis], *cut.edges[axis + 1]))
                                             : ir::Grid::Number{ir::Grid::Number::Kind::Rest, int64_t(*ir::extentOf(of))});
    return grid;
  }

  /// How a slice follows from a coordinate without what it is taken of. Numbers of the launch that are no extents of the
  /// grid may be anything, so nothing is concluded from these.
  std::optional<Place> placeOf(const Slice& slice, const Cut& cut) const {
    const std::optional<size_t> axis = cut.axisOf(slice);
    const auto isKnown = [&](const TokenCount& number) { return number.isConstant() || divides(number, cut.known()); };
    if (!axis || !llvm::all_of(slice.asked, isKnown)) return std::nullopt;
    const TokenCount quotient = *over(slice.lo, *cut.edges[*axis + 1]);
    const std::optional<TokenCount> remainder = cut.isQuotient(slice, *axis) ? std::nullopt : over(*slice.hi, slice.lo);
    if (!quotient.isConstant() || (remainder && !remainder->isConstant())) return std::nullopt;
    return Place{*axis, quotient.constant, remainder ? remainder->constant : 0};
  }

private:
  std::optional<TokenCount> productOf(Value value) const {
    const Node& node = module[value];
    if (node.type != Type::I32) return std::nullopt;
    if (module.isConst(value)) {
      if (module.integer(value) < 1 || module.integer(value) > ir::kMaxExtent) return std::nullopt;
      return TokenCount{module.integer(value)};
    }
    if (node.op == Op::Scalar || node.op == Op::Dim) return TokenCount{1, {value.id}};
    if (node.op != Op::Mul) return std::nullopt;
    const std::optional<TokenCount> a = productOf(node.operands[0]), b = a ? productOf(node.operands[1]) : std::nullopt;
    return b ? times(*a, *b) : std::nullopt;
  }

  std::optional<ir::Grid::Number> numberOf(const TokenCount& product) const {
    if (product.isConstant()) return ir::Grid::Number{ir::Grid::Number::Kind::Constant, product.constant};
    if (product.constant != 1 || product.factors.size() != 1) return std::nullopt;
    const Node& node = module[{product.factors[0]}];
    return ir::Grid::Number{node.op == Op::Dim ? ir::Grid::Number::Kind::Dim : ir::Grid::Number::Kind::Scalar, node.attr};
  }

  /// What x - x // divisor * divisor divides by; the product is told apart, whose quotient is then no end.
  std::optional<TokenCount> divisorOfRest(const Node& node) {
    if (node.op != Op::Sub || module[node.operands[1]].op != Op::Mul) return std::nullopt;
    const Node& multiple = module[node.operands[1]];
    for (unsigned i : {0u, 1u}) {
      const Node& quotient = module[multiple.operands[i]];
      if (quotient.op != Op::FloorDiv || quotient.operands[0] != node.operands[0]) continue;
      const std::optional<TokenCount> a = productOf(quotient.operands[1]), b = productOf(multiple.operands[1 - i]);
      if (!a || !b || !(*a == *b)) continue;
      isMultiple[node.operands[1].id] = true;
      return a;
    }
    return std::nullopt;
  }

  std::optional<Slice> sliceOf(Value value) {
    const Node& node = module[value];
    if (module.isParam(value, ParamKind::QIdx) || module.isParam(value, ParamKind::KvIdx))
      return Slice{ParamKind(node.attr), {}, {}, value, {}};
    const bool isSubtraction = node.op == Op::Sub, isQuotient = node.op == Op::FloorDiv;
    if (node.type != Type::I32 || !(isSubtraction || isQuotient || node.op == Op::Mod) || !slices[node.operands[0].id])
      return std::nullopt;
    Slice slice = *slices[node.operands[0].id];
    const std::optional<TokenCount> divisor = isSubtraction ? divisorOfRest(node) : productOf(node.operands[1]);
    const std::optional<TokenCount> cut = divisor ? times(slice.lo, *divisor) : std::nullopt;
    if (!cut || (slice.hi && !divides(*cut, *slice.hi))) return std::nullopt;
    slice.operand = node.operands[0];
    slice.asked.push_back(*divisor);
    if (!isQuotient)
      slice.hi = cut;
    else if (slice.hi == cut) // 0
      return std::nullopt;
    else
      slice.lo = *cut;
    return slice;
  }

  std::optional<Bound> boundOf(Value value) const {
    const Node& node = module[value];
    if (node.op != Op::Lt && node.op != Op::Le) return std::nullopt;
    for (unsigned i : {0u, 1u}) {
      const std::optional<Slice>& slice = slices[node.operands[i].id];
      if (!slice || !slice->isPosition()) continue;
      std::optional<TokenCount> tokens = productOf(node.operands[1 - i]);
      const bool isBelow = i == 0, isOneMore = isBelow == (node.op == Op::Le);
      if (!tokens || (isOneMore && !tokens->isConstant())) return std::nullopt;
      tokens->constant += isOneMore;
      return Bound{slice->of, *tokens, isBelow};
    }
    return std::nullopt;
  }

  /// Slices that something else is computed of.
  void collectEnds() {
    std::vector<bool> isEnd(module.size(), false);
    for (const ir::Output& output : module.outputs()) isEnd[output.value.id] = true;
    for (uint32_t id = 0; id < module.size(); ++id) {
      if (!needed[id] || slices[id] || isRestAlone({id})) continue;
      for (Value operand : module[{id}].operands) isEnd[operand.id] = true;
    }
    for (uint32_t id = 0; id < module.size(); ++id)
      if (isEnd[id] && slices[id] && !slices[id]->isPosition()) ends.push_back({id});
  }

  /// Whether a product is there for remainders alone, x - x // w * w.
  bool isRestAlone(Value product) const {
    if (!isMultiple[product.id]) return false;
    for (uint32_t id = product.id + 1; id < module.size(); ++id)
      if (needed[id] && llvm::is_contained(module[{id}].operands, product) && !slices[id]) return false;
    return true;
  }

  struct Judgement {
    int broken = 0;    ///< ends that stay divisions of a position
    int quotients = 0; ///< ends of mask_mod that are quotients of one coordinate: what boxes are made of
  };

  Judgement judge(const Cut& cut, llvm::ArrayRef<ParamKind> of) const {
    Judgement result;
    for (Value end : ends) {
      if (!llvm::is_contained(of, slices[end.id]->of)) continue;
      if (!isOfCoordinates(end, cut))
        ++result.broken;
      else if (const std::optional<size_t> axis = cut.axisOf(*slices[end.id]); isOfMask[end.id] && axis)
        result.quotients += cut.isQuotient(*slices[end.id], *axis);
    }
    return result;
  }

  bool isOfCoordinates(Value value, const Cut& cut) const {
    for (; !slices[value.id]->isPosition(); value = slices[value.id]->operand)
      if (placeOf(*slices[value.id], cut)) return true;
    return false;
  }

  /// A grid whose axes these numbers end, the largest first; nothing where it is none.
  std::optional<Cut> cutAt(llvm::ArrayRef<TokenCount> at, llvm::ArrayRef<ParamKind> of) const {
    const auto isAsked = [&](ParamKind param) { return llvm::is_contained(of, param); };
    const auto make = [&](std::optional<TokenCount> first) {
      Cut cut;
      if (!first || !(*first == at[0])) cut.edges.push_back(std::move(first));
      cut.edges.append(at.begin(), at.end());
      cut.edges.push_back(TokenCount());
      bool isGrid = cut.axes() >= 2 && cut.axes() <= ir::kMaxGridAxes;
      for (size_t axis = 0; isGrid && axis < cut.axes(); ++axis) {
        if (!cut.edges[axis]) continue;
        const std::optional<TokenCount> extent = over(*cut.edges[axis], *cut.edges[axis + 1]);
        isGrid = extent && numberOf(*extent);
      }
      return isGrid ? std::optional(std::move(cut)) : std::nullopt;
    };
    std::optional<Cut> least;
    for (uint32_t id = 0; id < module.size(); ++id) {
      const Bound* const limit = bound({id});
      if (!limit || !isAsked(limit->of) || !divides(at[0], limit->tokens)) continue;
      std::optional<Cut> cut = make(limit->tokens);
      if (cut && (!least || divides(*cut->edges[0], *least->edges[0]))) least = std::move(cut);
    }
    if (least) return least;
    const bool asksBeyond = llvm::any_of(ends, [&](Value end) { return isAsked(slices[end.id]->of) && !slices[end.id]->hi; });
    return make(asksBeyond || at.size() == 1 ? std::nullopt : std::optional(at[0]));
  }

  /// The cut that leaves the fewest divisions of positions, then of which the most ends are quotients, then of the fewest
  /// axes. Nothing where there are no remainders: quotients by one number are no grid.
  std::optional<Cut> bestCut(llvm::ArrayRef<ParamKind> of) const {
    llvm::SmallVector<TokenCount, 8> his;
    for (Value end : ends) {
      const Slice& slice = *slices[end.id];
      if (slice.hi && llvm::is_contained(of, slice.of) && !llvm::is_contained(his, *slice.hi)) his.push_back(*slice.hi);
    }
    if (his.size() > kMostCuts) return std::nullopt;
    std::optional<Cut> best;
    std::tuple<int, int, size_t> bestRank;
    for (uint32_t subset = 1; subset < 1u << his.size(); ++subset) {
      llvm::SmallVector<TokenCount, 8> at;
      for (size_t i = 0; i < his.size(); ++i)
        if (subset & 1u << i) at.push_back(his[i]);
      const auto size = [](const TokenCount& product) { return std::pair(product.factors.size(), product.constant); };
      llvm::stable_sort(at, [&](const TokenCount& a, const TokenCount& b) { return size(a) > size(b); });
      const auto isOrdered = [&](size_t i) { return divides(at[i], at[i - 1]); };
      if (at.size() > ir::kMaxGridAxes || !llvm::all_of(llvm::seq(size_t(1), at.size()), isOrdered)) continue;
      const std::optional<Cut> cut = cutAt(at, of);
      if (!cut) continue;
      const Judgement judged = judge(*cut, of);
      const std::tuple rank{judged.broken, -judged.quotients, cut->axes()};
      if (judged.quotients > 0 && (!best || rank < bestRank)) best = cut, bestRank = rank;
    }
    return best;
  }

  const ir::Module& module;
  const std::vector<bool> needed, isOfMask; ///< by Value::id, as all here
  std::vector<std::optional<Slice>> slices;
  std::vector<bool> isMultiple; ///< x // w * w of a remainder
  llvm::DenseMap<uint32_t, Bound> bounds;
  std::vector<Value> ends;
};

} // namespace

Status findGrids(ir::Module& module, const PassContext&) {
  const bool divides = ir::uses(module, Op::FloorDiv) || ir::uses(module, Op::Mod);
  if (!module.grids.empty() || !divides || !module.output(ir::kMask)) return {};
  const GridFinder finder(module);
  const auto [ofQueries, ofKeys] = finder.cuts();
  if (!ofQueries && !ofKeys) return {};
  ir::Module declared = module;
  const auto declare = [&](const std::optional<Cut>& cut, ParamKind of) {
    if (!cut) return 0u;
    ir::Grid grid = finder.gridOf(*cut, of);
    const auto found = llvm::find(declared.grids, grid);
    const unsigned index = unsigned(found - declared.grids.begin());
    if (found == declared.grids.end()) declared.grids.push_back(std::move(grid));
    return index;
  };
  const unsigned gridOfQueries = declare(ofQueries, ParamKind::QIdx), gridOfKeys = declare(ofKeys, ParamKind::KvIdx);
  uint32_t at = 0;
  const std::vector<bool> needed = ir::neededByOutputs(module);
  module = rebuild(declared, [&](ir::Module& out, const Node& node) {
    while (!needed[at]) ++at;
    const Value value{at++};
    const std::optional<Slice>& slice = finder.slice(value);
    const Bound* const bound = finder.bound(value);
    if (!bound && (!slice || slice->isPosition())) return keep(out, node);
    const ParamKind of = bound ? bound->of : slice->of;
    const std::optional<Cut>& cut = of == ParamKind::QIdx ? ofQueries : ofKeys;
    const unsigned grid = of == ParamKind::QIdx ? gridOfQueries : gridOfKeys;
    if (!cut) return keep(out, node);
    if (bound) {
      if (!(cut->edges[0] && bound->tokens == *cut->edges[0])) return keep(out, node);
      const Value isIn = out.make(Op::InGrid, Type::Bool, {out.param(of)}, ir::GridAxis{grid, 0}.attr(), node.line);
      return bound->isBelow ? isIn : out.make(Op::Not, Type::Bool, {isIn}, 0, node.line);
    }
    const std::optional<Place> place = finder.placeOf(*slice, *cut);
    if (!place) return keep(out, node);
    const auto with = [&](Op op, Value a, int64_t b) {
      return out.make(op, Type::I32, {a, out.constInt(Type::I32, b)}, 0, node.line);
    };
    Value result = out.make(Op::Coord, Type::I32, {out.param(of)}, ir::GridAxis{grid, unsigned(place->axis)}.attr(), node.line);
    if (place->quotient > 1) result = with(Op::FloorDiv, result, place->quotient);
    return place->remainder ? with(Op::Mod, result, place->remainder) : result;
  });
  return {};
}

} // namespace attnc::passes
