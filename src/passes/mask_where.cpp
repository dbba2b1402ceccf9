#include "passes/mask_where.h"

#include "analysis/position_slices.h"
#include "ir/walk.h"
#include "passes/ir_names.h"
#include "passes/pass.h"
#include "passes/pipeline.h"
#include "passes/rebuild.h"
#include "support/try.h"

namespace attnc::passes {

Expected<ir::Module> assuming(const ir::Module& module, llvm::function_ref<std::optional<bool>(Value)> taken) {
  ir::Module result = module.declarations();
  const Value root = *module.output(ir::kMask);
  const std::vector<bool> needed = ir::neededBy(module, root, [&](Value value) { return taken(value).has_value(); });
  std::vector<Value> now(module.size());
  for (uint32_t id = 0; id <= root.id; ++id) {
    if (!needed[id]) continue;
    Node node = module[{id}];
    if (const std::optional<bool> known = taken({id})) {
      now[id] = result.constBool(*known);
      continue;
    }
    for (Value& operand : node.operands) operand = now[operand.id];
    now[id] = keep(result, node);
  }
  result.setOutput(ir::kMask, now[root.id]);
  std::vector<Pass> order;
  for (const char* name : {"fold-constants", "simplify", "cse", "levels", "simplify", "cse", "dce"})
    order.push_back(*findPass(name));
  ATTNC_TRY(runPasses(result, order, {}));
  return result;
}

namespace {

using analysis::PositionBound;
using analysis::TokenCount;
using analysis::TokenPlace;

/// A token on or off a grid, with the range of the grid's tokens.
struct GridToken {
  TokenPlace begin;
  std::optional<TokenPlace> end; ///< unset: the length
  GridSide side;

  /// Adds the numbers of the grid to `module` as values.
  GridToken(ir::Module& module, const ir::Grid& grid, GridSide side) : side(side) {
    const auto countOf = [&](const ir::Grid::Number& number) {
      if (number.kind == ir::Grid::Number::Kind::Constant) return TokenCount{number.value};
      return TokenCount{1, {module.numberOf(number).id}};
    };
    if (grid.before != ir::Grid::Number()) begin = behind({}, countOf(grid.before));
    std::optional<TokenCount> tokens = grid.hasRest() ? std::nullopt : std::optional(TokenCount());
    for (const ir::Grid::Number& extent : grid.extents) tokens = tokens ? times(*tokens, countOf(extent)) : tokens;
    if (tokens) end = behind(begin, *tokens);
  }

  std::optional<bool> isBelow(const TokenPlace& place) const {
    if (side == GridSide::Before && isAtMost(begin, place)) return true;
    if (side != GridSide::Before && isAtMost(place, begin)) return false;
    if (side != GridSide::Behind && end && isAtMost(*end, place)) return true;
    if (side == GridSide::Behind && end && isAtMost(place, *end)) return false;
    return std::nullopt;
  }
};

} // namespace

Expected<ir::Module> maskWhere(const ir::Module& module, const analysis::GridsUsed& grids, GridSide query,
                               GridSide key) {
  ir::Module with = module;
  std::optional<GridToken> ofQuery, ofKey;
  if (grids.queries) ofQuery.emplace(with, module.grids[*grids.queries], query);
  if (grids.keys) ofKey.emplace(with, module.grids[*grids.keys], key);
  const analysis::PositionSlices slices(with);
  return assuming(with, [&](Value value) -> std::optional<bool> {
    if (const PositionBound* bound = slices.bound(value)) {
      const std::optional<GridToken>& token = bound->of == ParamKind::QIdx ? ofQuery : ofKey;
      const std::optional<bool> isBelow = token ? token->isBelow(bound->place) : std::nullopt;
      return isBelow ? std::optional(*isBelow == bound->isBelow) : std::nullopt;
    }
    const Node& node = with[value];
    if (node.op != Op::InGrid) return std::nullopt;
    const unsigned grid = ir::GridAxis::of(node).grid;
    if (grid == grids.queries && with.isParam(node.operands[0], ParamKind::QIdx)) return query == GridSide::On;
    if (grid == grids.keys && with.isParam(node.operands[0], ParamKind::KvIdx)) return key == GridSide::On;
    return std::nullopt;
  });
}

} // namespace attnc::passes
