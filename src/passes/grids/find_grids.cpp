// In: a module that declares no grids. Out: the grids implied by quotients and remainders of q_idx and kv_idx, with
// these quotients and remainders as coordinates.
//
//   %0 = floor_div i32 %q_idx, 64     =>   grid [rest #Q_LEN, 64]
//   %1 = mod i32 %q_idx, 64                %0 = coord i32 grid0.0, %q_idx
//                                          %1 = coord i32 grid0.1, %q_idx
//
// Quotients and remainders of q_idx - 77 are coordinates on a grid that begins after 77 tokens. The first axis has no
// written extent (how many slices of 64 tokens?), so the length determines it (`rest`). It has an extent if the first
// coordinate is itself a remainder (q_idx // 64 % 32), or if positions are compared with the end of all slices (q_idx <
// 32 * 64). The module means the same for all tokens, on or off its grids, if all extents are at least 1 and scalars
// are near (ir::Module::hasNearScalars). A grid that begins at token 0 and whose end no comparison reads has no
// off-grid tokens.
//
// A grid cuts the digits of positions (analysis/position_slices.h) at the hi of some slices. A slice that begins or
// ends elsewhere is computed from a coordinate: the tile of a column, q_idx % 64 // 8.
#include "analysis/position_slices.h"
#include "ir/walk.h"
#include "passes/ir_names.h"
#include "passes/pass.h"
#include "passes/rebuild.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/Sequence.h>
#include <llvm/ADT/SmallVector.h>

#include <algorithm>
#include <tuple>

namespace attnc::passes {
namespace {

using analysis::countBetween;
using analysis::divides;
using analysis::over;
using analysis::PositionBound;
using analysis::PositionSlice;
using analysis::PositionSlices;
using analysis::TokenCount;
using analysis::TokenPlace;

constexpr size_t kMostCuts = 6; // candidate cuts; all their combinations are tried

/// Where digits are cut: axis i has the digits from edges[i + 1] to edges[i]. edges[0] is unset if the length
/// determines it.
struct Cut {
  TokenPlace before; ///< tokens before the grid
  llvm::SmallVector<std::optional<TokenCount>, 4> edges;

  size_t axes() const { return edges.size() - 1; }
  /// Returns the product of the written extents.
  const TokenCount& known() const { return edges[0] ? *edges[0] : *edges[1]; }
  bool hasBefore() const { return !(before == TokenPlace()); }
  /// Whether the comparison is with the end of this grid. Needs a written extent for each axis.
  bool endsAt(const PositionBound& bound) const { return edges[0] && bound.place == behind(before, *edges[0]); }
  /// Returns the axis that contains all digits of the slice; nullopt if no axis does.
  std::optional<size_t> axisOf(const PositionSlice& slice) const {
    if (!(slice.before == before)) return std::nullopt;
    for (size_t axis = 0; axis < axes(); ++axis)
      if (divides(*edges[axis + 1], slice.lo) && (axis == 0 || (slice.hi && divides(*slice.hi, *edges[axis]))))
        return axis;
    return std::nullopt;
  }
  /// Whether the slice reaches the leading digits of its axis, so that it is a quotient of the coordinate.
  bool isQuotient(const PositionSlice& slice, size_t axis) const {
    return axis == 0 ? !slice.hi || slice.hi == edges[0] : slice.hi == edges[axis];
  }
};

/// How to compute a slice from a coordinate: coordinate // quotient % remainder.
struct Place {
  size_t axis;
  int64_t quotient = 1, remainder = 0; ///< 0: no remainder
};

class GridFinder {
public:
  GridFinder(const ir::Module& module, const PositionSlices& slices)
      : module(module), slices(slices), isOfMask(ir::neededBy(module, *module.output(ir::kMask))) {}

  /// Returns the cuts of q_idx and of kv_idx: a common one, unless it breaks slices of either.
  std::pair<std::optional<Cut>, std::optional<Cut>> cuts() const {
    const std::optional<Cut> both = bestCut({ParamKind::QIdx, ParamKind::KvIdx});
    if (both && judge(*both, {ParamKind::QIdx, ParamKind::KvIdx}).broken == 0) return {both, both};
    return {bestCut({ParamKind::QIdx}), bestCut({ParamKind::KvIdx})};
  }

  ir::Grid gridOf(const Cut& cut, ParamKind of) const {
    ir::Grid grid;
    if (const std::optional<TokenCount> before = countBetween({}, cut.before)) grid.before = *numberOf(*before);
    for (size_t axis = 0; axis < cut.axes(); ++axis)
      grid.extents.push_back(cut.edges[axis]
                                 ? *numberOf(*over(*cut.edges[axis], *cut.edges[axis + 1]))
                                 : ir::Grid::Number{ir::Grid::Number::Kind::Rest, int64_t(*ir::extentOf(of))});
    return grid;
  }

  /// Returns how to compute a slice directly from a coordinate, without the slice that it is taken from. Run-time
  /// numbers that are not extents of the grid may be anything, so slices that divide by these give nullopt.
  std::optional<Place> placeOf(const PositionSlice& slice, const Cut& cut) const {
    const std::optional<size_t> axis = cut.axisOf(slice);
    const auto isKnown = [&](const TokenCount& number) { return number.isConstant() || divides(number, cut.known()); };
    if (!axis || !llvm::all_of(slice.asked, isKnown)) return std::nullopt;
    const TokenCount quotient = *over(slice.lo, *cut.edges[*axis + 1]);
    const std::optional<TokenCount> remainder = cut.isQuotient(slice, *axis) ? std::nullopt : over(*slice.hi, slice.lo);
    if (!quotient.isConstant() || (remainder && !remainder->isConstant())) return std::nullopt;
    return Place{*axis, quotient.constant, remainder ? remainder->constant : 0};
  }

private:
  std::optional<ir::Grid::Number> numberOf(const TokenCount& product) const {
    if (product.isConstant()) return ir::Grid::Number{ir::Grid::Number::Kind::Constant, product.constant};
    if (product.constant != 1 || product.factors.size() != 1) return std::nullopt;
    const Node& node = module[{product.factors[0]}];
    return ir::Grid::Number{node.op == Op::Dim ? ir::Grid::Number::Kind::Dim : ir::Grid::Number::Kind::Scalar,
                            node.attr};
  }

  struct Judgement {
    int broken = 0;    ///< ends that stay divisions of a position
    int quotients = 0; ///< ends in mask_mod that are quotients of one coordinate, which boxes are made of
  };

  Judgement judge(const Cut& cut, llvm::ArrayRef<ParamKind> of) const {
    Judgement result;
    for (Value end : slices.ends()) {
      const PositionSlice& slice = *slices.of(end);
      if (!llvm::is_contained(of, slice.of)) continue;
      if (!isOfCoordinates(end, cut))
        ++result.broken;
      else if (const std::optional<size_t> axis = cut.axisOf(slice); isOfMask[end.id] && axis)
        result.quotients += cut.isQuotient(slice, *axis);
    }
    return result;
  }

  bool isOfCoordinates(Value value, const Cut& cut) const {
    for (; !slices.of(value)->isWhole(); value = slices.of(value)->operand)
      if (placeOf(*slices.of(value), cut)) return true;
    return false;
  }

  /// Returns the grid with axes cut at these counts (largest first); nullopt if they make no grid.
  std::optional<Cut> cutAt(const TokenPlace& before, llvm::ArrayRef<TokenCount> at,
                           llvm::ArrayRef<ParamKind> of) const {
    const auto make = [&](std::optional<TokenCount> first) {
      Cut cut{before, {}};
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
      const PositionBound* const bound = slices.bound({id});
      if (!bound || !llvm::is_contained(of, bound->of)) continue;
      const std::optional<TokenCount> tokens = countBetween(before, bound->place);
      if (!tokens || !divides(at[0], *tokens)) continue;
      std::optional<Cut> cut = make(tokens);
      if (cut && (!least || divides(*cut->edges[0], *least->edges[0]))) least = std::move(cut);
    }
    if (least) return least;
    const bool asksBeyond = llvm::any_of(slicesFrom(before, of), [](const PositionSlice* slice) { return !slice->hi; });
    return make(asksBeyond || at.size() == 1 ? std::nullopt : std::optional(at[0]));
  }

  /// Returns the ends that are counted from `before`.
  llvm::SmallVector<const PositionSlice*, 8> slicesFrom(const TokenPlace& before, llvm::ArrayRef<ParamKind> of) const {
    llvm::SmallVector<const PositionSlice*, 8> found;
    for (Value end : slices.ends())
      if (const PositionSlice& slice = *slices.of(end); slice.before == before && llvm::is_contained(of, slice.of))
        found.push_back(&slice);
    return found;
  }

  /// Returns the best cut: the fewest divisions of positions left; then the most ends that are quotients; then the
  /// fewest axes. Returns nullopt without remainders, since quotients by one number make no grid.
  std::optional<Cut> bestCut(llvm::ArrayRef<ParamKind> of) const {
    llvm::SmallVector<TokenPlace, 2> places;
    for (Value end : slices.ends())
      if (const PositionSlice& slice = *slices.of(end);
          llvm::is_contained(of, slice.of) && !llvm::is_contained(places, slice.before))
        places.push_back(slice.before);
    std::optional<Cut> best;
    std::tuple<int, int, size_t> bestRank;
    for (const TokenPlace& before : places) takeBestCut(before, of, best, bestRank);
    return best;
  }

  void takeBestCut(const TokenPlace& before, llvm::ArrayRef<ParamKind> of, std::optional<Cut>& best,
                   std::tuple<int, int, size_t>& bestRank) const {
    llvm::SmallVector<TokenCount, 8> his;
    for (const PositionSlice* slice : slicesFrom(before, of))
      if (slice->hi && !llvm::is_contained(his, *slice->hi)) his.push_back(*slice->hi);
    if (his.size() > kMostCuts) return;
    for (uint32_t subset = 1; subset < 1u << his.size(); ++subset) {
      llvm::SmallVector<TokenCount, 8> at;
      for (size_t i = 0; i < his.size(); ++i)
        if (subset & 1u << i) at.push_back(his[i]);
      const auto size = [](const TokenCount& product) { return std::pair(product.factors.size(), product.constant); };
      llvm::stable_sort(at, [&](const TokenCount& a, const TokenCount& b) { return size(a) > size(b); });
      const auto isOrdered = [&](size_t i) { return divides(at[i], at[i - 1]); };
      if (at.size() > ir::kMaxGridAxes || !llvm::all_of(llvm::seq(size_t(1), at.size()), isOrdered)) continue;
      const std::optional<Cut> cut = cutAt(before, at, of);
      if (!cut) continue;
      const Judgement judged = judge(*cut, of);
      const std::tuple rank{judged.broken, -judged.quotients, cut->axes()};
      if (judged.quotients > 0 && (!best || rank < bestRank)) best = cut, bestRank = rank;
    }
  }

  const ir::Module& module;
  const PositionSlices& slices;
  const std::vector<bool> isOfMask; ///< by Value::id
};

} // namespace

Status findGrids(ir::Module& module, const PassContext&) {
  const bool hasQuotients = ir::uses(module, Op::FloorDiv) || ir::uses(module, Op::Mod);
  if (!module.grids.empty() || !hasQuotients || !module.output(ir::kMask)) return {};
  ir::Module declared = module;
  declared.hasNearScalars = true; // needed to bound height - 1 - 6, which rows are compared with
  const PositionSlices slices(declared);
  const GridFinder finder(declared, slices);
  const auto [ofQueries, ofKeys] = finder.cuts();
  if (!ofQueries && !ofKeys) return {};
  const auto declare = [&](const std::optional<Cut>& cut, ParamKind of) {
    if (!cut) return 0u;
    ir::Grid grid = finder.gridOf(*cut, of);
    const auto found = llvm::find(declared.grids, grid);
    const unsigned index = unsigned(found - declared.grids.begin());
    if (found == declared.grids.end()) declared.grids.push_back(std::move(grid));
    return index;
  };
  const unsigned gridOfQueries = declare(ofQueries, ParamKind::QIdx), gridOfKeys = declare(ofKeys, ParamKind::KvIdx);
  const auto cutOf = [&](ParamKind of) -> const std::optional<Cut>& {
    return of == ParamKind::QIdx ? ofQueries : ofKeys;
  };
  const auto isEnd = [&](const PositionBound* bound) { // other comparisons with grid ends stay
    return bound && cutOf(bound->of) && !cutOf(bound->of)->hasBefore() && cutOf(bound->of)->endsAt(*bound);
  };
  const bool haveBeside =
      (ofQueries && ofQueries->hasBefore()) || (ofKeys && ofKeys->hasBefore()) ||
      llvm::any_of(llvm::seq(0u, uint32_t(declared.size())), [&](uint32_t id) { return isEnd(slices.bound({id})); });
  uint32_t at = 0;
  const std::vector<bool> needed = ir::neededByOutputs(declared);
  module = rebuild(declared, [&](ir::Module& out, const Node& node) {
    while (!needed[at]) ++at;
    const Value value{at++};
    const std::optional<PositionSlice>& slice = slices.of(value);
    const PositionBound* const bound = slices.bound(value);
    const auto ofToken = [&](Op op, Type type, ParamKind of, unsigned axis) {
      const unsigned grid = of == ParamKind::QIdx ? gridOfQueries : gridOfKeys;
      return out.make(op, type, {out.param(of)}, ir::GridAxis{grid, axis}.attr(), node.line);
    };
    if (isEnd(bound)) {
      const Value isIn = ofToken(Op::InGrid, Type::Bool, bound->of, 0);
      return bound->isBelow ? isIn : out.make(Op::Not, Type::Bool, {isIn}, 0, node.line);
    }
    if (!slice || slice->isWhole() || !cutOf(slice->of)) return keep(out, node);
    const Cut& cut = *cutOf(slice->of);
    const std::optional<Place> place = finder.placeOf(*slice, cut);
    if (!place) return keep(out, node);
    const auto with = [&](Op op, Value a, int64_t b) {
      return out.make(op, Type::I32, {a, out.constInt(Type::I32, b)}, 0, node.line);
    };
    Value result = ofToken(Op::Coord, Type::I32, slice->of, unsigned(place->axis));
    if (place->quotient > 1) result = with(Op::FloorDiv, result, place->quotient);
    if (place->remainder) result = with(Op::Mod, result, place->remainder);
    if (node.type != Type::I32) result = out.make(Op::Cast, node.type, {result}, 0, node.line);
    if (!haveBeside || !cut.edges[0] || slice->hi != cut.edges[0]) return result;
    // For an off-grid token the first coordinate lies outside its extent, but the remainder lies inside. So keep both.
    const Value isIn = ofToken(Op::InGrid, Type::Bool, slice->of, 0);
    return out.make(Op::Select, node.type, {isIn, result, keep(out, node)}, 0, node.line);
  });
  return {};
}

} // namespace attnc::passes
