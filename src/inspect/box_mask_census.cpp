// The census of a kernel that walks lists of boxes. Boxes are judged by the ranges of their tokens' coordinates, and
// pair by pair if that does not decide.
#include "inspect/grid_census.h"

#include "analysis/tile_verdict.h"
#include "families/grids/grid_plan.h"
#include "ir/interpreter.h"
#include "ir/walk.h"

#include <llvm/ADT/SmallVector.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace attnc {
namespace {

using analysis::Range;
using analysis::Verdict;

constexpr int64_t kMostPairs = int64_t(1) << 23; // that are evaluated one by one: some seconds

/// The values of a module that are coordinates of q_idx and kv_idx, and their ranges in boxes.
class Coordinates {
public:
  explicit Coordinates(const ir::Module& module) {
    for (uint32_t id = 0; id < module.size(); ++id) {
      const ir::Node& node = module[{id}];
      if (node.op != ir::Op::Coord) continue;
      const ir::GridAxis axis = ir::GridAxis::of(node);
      values.push_back({id});
      places.push_back({module.isParam(node.operands[0], ir::ParamKind::QIdx),
                        axis.axis + 3 - module.grids[axis.grid].extents.size()});
    }
  }

  llvm::SmallVector<ir::Value, 8> values;

  llvm::SmallVector<Range, 8> ranges(const BlockMaskShape::Boxes& boxes, int64_t queries, int64_t keys) const {
    llvm::SmallVector<Range, 8> all;
    for (const Place& place : places) {
      const BoxLattice& lattice = place.ofQuery ? boxes.queries : boxes.keys;
      int64_t index = place.ofQuery ? queries : keys;
      for (size_t axis = 2; axis > place.axis; --axis) index /= lattice.along(axis);
      const int64_t first = index % lattice.along(place.axis) * lattice.box[place.axis];
      all.push_back(Range::integers(ir::Type::I32, first,
                                    std::min(first + lattice.box[place.axis], lattice.extents[place.axis]) - 1));
    }
    return all;
  }

private:
  struct Place {
    bool ofQuery;
    size_t axis; // of three axes
  };
  llvm::SmallVector<Place, 8> places;
};

/// Counts the boxes of keys, one box of queries after another.
class Counter {
public:
  Counter(const ir::Module& module, const ir::Bindings& bindings, const BlockMaskShape::Boxes& boxes)
      : boxes(boxes), coordinates(module), interpreter(module, bindings), judge(module, bindings, coordinates.values) {
    for (int64_t i = 0; i < boxes.keys.boxes(); ++i) keysOf.push_back(boxes.keys.tokensIn(i));
  }

  void add(GridCensus& census, int64_t b, int64_t h, int64_t tile) {
    const std::vector<int64_t> queries = boxes.queries.tokensIn(tile);
    const auto isWhole = [](const BoxLattice& of, const std::vector<int64_t>& tokens) {
      return int64_t(tokens.size()) == of.tokensOfBox();
    };
    double steps = 0;
    for (int64_t i = 0; i < boxes.keys.boxes(); ++i) {
      const std::vector<int64_t>& keys = keysOf[size_t(i)];
      const double all = double(queries.size()) * double(keys.size());
      const double live = livePairs(b, h, tile, i, queries);
      if (live == 0) continue;
      ++steps;
      census.live += live;
      *census.full += live == all && isWhole(boxes.queries, queries) && isWhole(boxes.keys, keys);
    }
    ++census.tiles;
    census.steps += std::max(steps, 1.0); // every tile has a step
  }

  int64_t asked = 0; ///< pairs that were evaluated

private:
  double livePairs(int64_t b, int64_t h, int64_t tile, int64_t box, const std::vector<int64_t>& queries) {
    const std::vector<int64_t>& keys = keysOf[size_t(box)];
    const analysis::ScoreRect around{b, h, queries.front(), queries.back() + 1, keys.front(), keys.back() + 1};
    const double all = double(queries.size()) * double(keys.size());
    const llvm::SmallVector<Range, 8> ranges = coordinates.ranges(boxes, tile, box);
    llvm::SmallVector<const Range*, 8> told;
    for (const Range& range : ranges) told.push_back(&range);
    const Verdict verdict = judge.judge(around, told);
    if (verdict == Verdict::AlwaysFalse) return 0;
    if (verdict == Verdict::AlwaysTrue) return all;
    asked += int64_t(queries.size() * keys.size());
    int64_t live = 0;
    for (int64_t q : queries)
      for (int64_t kv : keys) live += interpreter.mask(b, h, q, kv);
    return double(live);
  }

  const BlockMaskShape::Boxes& boxes;
  std::vector<std::vector<int64_t>> keysOf;
  Coordinates coordinates;
  ir::Interpreter interpreter;
  analysis::TileJudge judge;
};

} // namespace

GridCensus takeBoxMaskCensus(const ir::Module& module, const ir::Bindings& bindings, const codegen::Config& config,
                             const plan::LaunchOperands::Grids& grids, const ProblemShape& problem) {
  GridCensus census{.queryBox = plan::queryBoxOf(config),
                    .keyBox = config.boxes->keys,
                    .full = 0,
                    .queryGrid = grids.queries,
                    .keyGrid = grids.keys};
  if (problem.batch == 0 || problem.qHeads == 0 || problem.qLen == 0) return census;
  const BlockMaskShape::Boxes boxes = plan::latticesOf(config, grids);
  const ir::ParamSet params = ir::paramsOf(module, *module.output(ir::kMask));
  const int64_t batch = params.contains(ir::ParamKind::B) ? problem.batch : 1;
  const int64_t heads = params.contains(ir::ParamKind::H) ? problem.qHeads : 1;
  Counter counter(module, bindings, boxes);
  // Visits boxes far from each other, so that those that fit into the time are representative.
  const int64_t perHead = boxes.queries.boxes(), all = batch * heads * perHead;
  int64_t stride = std::max<int64_t>(1, int64_t(double(all) * 0.618));
  while (std::gcd(stride, all) != 1) ++stride;
  int64_t counted = 0;
  for (int64_t tile = 0; counted < all && counter.asked < kMostPairs; ++counted, tile = (tile + stride) % all)
    counter.add(census, tile / perHead / heads, tile / perHead % heads, tile % perHead);
  census.isEstimate = counted < all;
  const double copies = double(problem.batch * problem.qHeads / (batch * heads)) * double(all) / double(counted);
  for (double* count : {&census.tiles, &census.steps, &*census.full, &census.live}) *count *= copies;
  census.visited = census.steps * config.blockM * config.blockN;
  return census;
}

} // namespace attnc
