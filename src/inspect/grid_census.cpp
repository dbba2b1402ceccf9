#include "inspect/grid_census.h"

#include "analysis/grid_box.h"
#include "families/grids/grid_plan.h"
#include "ir/interpreter.h"
#include "ir/walk.h"

#include <algorithm>
#include <vector>

namespace attnc {
namespace {

constexpr double kMostQueries = 1 << 21; // queries that are examined, if one head has no more

constexpr size_t kMostTiles = 4096; // that are told one by one

using Extents = std::array<int64_t, 3>;

/// Keys along three axes, [begin, end) of each.
struct KeyRange {
  Extents begin, end;

  bool isEmpty() const { return begin[0] >= end[0] || begin[1] >= end[1] || begin[2] >= end[2]; }
  double keys() const {
    double product = 1;
    for (size_t i = 0; i < 3; ++i) product *= double(std::max<int64_t>(end[i] - begin[i], 0));
    return product;
  }
  void cover(const KeyRange& other) {
    for (size_t i = 0; i < 3; ++i) {
      begin[i] = std::min(begin[i], other.begin[i]);
      end[i] = std::max(end[i], other.end[i]);
    }
  }
};

/// The boxes of keys of one head, as the kernel's hooks compute them.
class Boxes {
public:
  Boxes(const ir::Module& module, const ir::Bindings& bindings, const plan::LaunchOperands::Grids& grids)
      : grids(grids) {
    const std::optional<analysis::GridBox> box = analysis::gridBox(module);
    beside = box->beside;
    const size_t first = 3 - box->axes.size();
    for (size_t i = 0; i < box->axes.size(); ++i) {
      if (!box->axes[i].begin) continue;
      begin[first + i].emplace(module, bindings, *box->axes[i].begin);
      end[first + i].emplace(module, bindings, *box->axes[i].end);
      params |= ir::paramsOf(module, *box->axes[i].begin);
      params |= ir::paramsOf(module, *box->axes[i].end);
    }
  }

  bool differBy(ir::ParamKind kind) const { return params.contains(kind); }

  KeyRange of(int64_t b, int64_t h, const Extents& at) const {
    const int64_t before = grids.before ? grids.before->queries : 0;
    const int64_t query = before + (at[0] * grids.queries[1] + at[1]) * grids.queries[2] + at[2];
    KeyRange range{{}, grids.keys};
    for (size_t i = 0; i < 3; ++i) {
      if (!begin[i]) continue;
      range.begin[i] = std::max<int64_t>(begin[i]->evaluate(0, b, h, query, 0).integer, 0);
      range.end[i] = std::min(end[i]->evaluate(0, b, h, query, 0).integer, grids.keys[i]);
    }
    return range;
  }

  std::optional<analysis::BesideGrid> beside; ///< for modules that allow off-grid tokens

private:
  plan::LaunchOperands::Grids grids;
  std::optional<ir::Evaluator> begin[3], end[3];
  ir::ParamSet params;
};

/// Calls function(at) for all tokens of a box that lie on the grid.
template <class Function>
void forEachToken(const Extents& origin, const std::array<int, 3>& box, const Extents& extents, Function function) {
  const auto endOf = [&](size_t i) { return std::min(origin[i] + box[i], extents[i]); };
  for (int64_t z = origin[0]; z < endOf(0); ++z)
    for (int64_t y = origin[1]; y < endOf(1); ++y)
      for (int64_t x = origin[2]; x < endOf(2); ++x) function(Extents{z, y, x});
}

/// Counts pairs of a query on the grid and a key that it sees.
double livePairs(const Boxes& boxes, const plan::LaunchOperands::Grids& grids, int64_t b, int64_t h) {
  double live = 0;
  const std::array<int, 3> all = {int(grids.queries[0]), int(grids.queries[1]), int(grids.queries[2])};
  forEachToken({}, all, grids.queries, [&](const Extents& at) {
    if (const KeyRange keys = boxes.of(b, h, at); !keys.isEmpty()) live += keys.keys();
  });
  return live;
}

/// Adds the steps of a tile of keys, as templates/backward_grid_*.cu walk them.
void addKeyTile(GridCensus& census, const Boxes& boxes, const plan::LaunchOperands::Grids& grids, int64_t b, int64_t h,
                const Extents& origin) {
  double steps = 1, pairs = 1;
  for (size_t axis = 0; axis < 3; ++axis) {
    int64_t begin = grids.queries[axis], end = 0;
    for (int64_t x = 0; x < grids.queries[axis]; ++x) {
      Extents at{};
      at[axis] = x;
      const KeyRange keys = boxes.of(b, h, at);
      const bool sees = keys.begin[axis] < origin[axis] + census.keyBox[axis] &&
                        keys.end[axis] > std::max(origin[axis], keys.begin[axis]);
      if (sees) begin = std::min(begin, x), end = x + 1;
    }
    steps *= double((std::max(end - begin, int64_t(0)) + census.queryBox[axis] - 1) / census.queryBox[axis]);
    pairs *= census.keyBox[axis] * census.queryBox[axis];
  }
  ++census.tiles;
  census.steps += steps;
  census.visited += steps * pairs;
}

/// Adds the steps of a tile of queries, as templates/forward_grid_*.cu walk them.
void addQueryTile(GridCensus& census, const Boxes& boxes, const codegen::Config& config,
                  const plan::LaunchOperands::Grids& grids, int64_t b, int64_t h, const Extents& origin) {
  const std::array<int, 3> together = plan::togetherOf(*config.boxes);
  const KeyRange nothing{{INT64_MAX, INT64_MAX, INT64_MAX}, {0, 0, 0}};
  std::vector<KeyRange> seen; // per group of queries that go together
  KeyRange all = nothing;
  Extents first{};
  const auto endOf = [&](size_t i) { return origin[i] + census.queryBox[i]; };
  for (first[0] = origin[0]; first[0] < endOf(0); first[0] += together[0])
    for (first[1] = origin[1]; first[1] < endOf(1); first[1] += together[1])
      for (first[2] = origin[2]; first[2] < endOf(2); first[2] += together[2]) {
        KeyRange own = nothing;
        forEachToken(first, together, grids.queries, [&](const Extents& at) {
          const KeyRange keys = boxes.of(b, h, at);
          if (keys.isEmpty()) return;
          own.cover(keys);
          census.live += keys.keys();
        });
        seen.push_back(own);
        if (!own.isEmpty()) all.cover(own);
      }
  ++census.tiles;
  const bool hasConsumers = config.boxes->consumers > 1;
  const auto placeOf = [&](size_t i, int64_t key) { return (key - all.begin[i]) / census.keyBox[i]; };
  double steps = 1;
  for (size_t i = 0; i < 3 && !all.isEmpty(); ++i) steps *= double(placeOf(i, all.end[i] - 1) + 1);
  census.steps += steps;
  if (b == 0 && h == 0 && census.ofFirstHead.size() < kMostTiles)
    census.ofFirstHead.push_back(
        {origin, all.isEmpty() ? Extents{} : all.begin, all.isEmpty() ? Extents{} : all.end, int64_t(steps)});
  const double pairs = double(together[0] * together[1] * together[2]) * config.blockN;
  for (const KeyRange& own : seen) {
    double places = own.isEmpty() && !hasConsumers ? 0 : 1;
    for (size_t i = 0; i < 3 && !all.isEmpty(); ++i) {
      const bool splits = !hasConsumers || int(i) == config.boxes->splitAxis; // consumers walk places along one axis
      if (!splits)
        places *= double(placeOf(i, all.end[i] - 1) + 1);
      else if (!own.isEmpty()) // a consumer that sees nothing still works on the first steps
        places *= double(placeOf(i, own.end[i] - 1) - placeOf(i, own.begin[i]) + 1);
    }
    census.visited += pairs * places;
  }
}

/// Adds one head's off-grid tokens: the steps that they add to tiles on the grids, and the tiles of off-grid queries,
/// or of off-grid keys if CTAs own keys.
void addBeside(GridCensus& census, const analysis::BesideGrid& beside, const codegen::Config& config,
               const plan::LaunchOperands::Grids& grids, const ProblemShape& problem) {
  using analysis::Beside;
  const auto ceilDiv = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const std::array<int64_t, 2> queries = plan::queriesBeside(grids, problem), keys = plan::keysBeside(grids, problem);
  const double keysOn = double(grids.keys[0] * grids.keys[1] * grids.keys[2]), keysOff = double(keys[0] + keys[1]);
  const double queriesOn = double(grids.queries[0] * grids.queries[1] * grids.queries[2]);
  const double queriesOff = double(queries[0] + queries[1]);
  int64_t ofQueries = 1, ofKeys = 1; // boxes on the grids
  for (size_t i = 0; i < 3; ++i) {
    ofQueries *= ceilDiv(grids.queries[i], census.queryBox[i]);
    ofKeys *= ceilDiv(grids.keys[i], census.keyBox[i]);
  }
  const double queryTiles = double(ceilDiv(queries[0], config.blockM) + ceilDiv(queries[1], config.blockM));
  const double keyTiles = double(ceilDiv(keys[0], config.blockN) + ceilDiv(keys[1], config.blockN));
  const auto add = [&](Beside said, double queryCount, double keyCount, double pairs) {
    if (said == Beside::None) return;
    census.steps += queryCount * keyCount;
    census.visited += queryCount * keyCount * double(config.blockM) * double(config.blockN);
    census.live += pairs;
  };
  add(beside.key, double(ofQueries), keyTiles, queriesOn * keysOff);
  add(beside.query, queryTiles, double(ofKeys), queriesOff * keysOn);
  add(beside.both, queryTiles, keyTiles, queriesOff * keysOff);
  census.tiles += census.ownsKeys ? keyTiles : queryTiles;
  const bool goesWithout = beside.query == Beside::None && (beside.both == Beside::None || keyTiles == 0);
  if (!census.ownsKeys && goesWithout) add(Beside::All, queryTiles, 1, 0); // every tile of queries has a step
}

} // namespace

GridCensus takeGridCensus(const ir::Module& module, const ir::Bindings& bindings, const codegen::Config& config,
                          const plan::LaunchOperands::Grids& grids, const ProblemShape& problem) {
  const bool ownsKeys = config.boxes->ownsKeys;
  GridCensus census{.ownsKeys = ownsKeys,
                    .queryBox = ownsKeys ? config.boxes->queries : plan::queryBoxOf(config),
                    .keyBox = config.boxes->keys,
                    .queryGrid = grids.queries,
                    .keyGrid = grids.keys};
  const Boxes boxes(module, bindings, grids);
  const int64_t batch = boxes.differBy(ir::ParamKind::B) ? problem.batch : 1;
  const int64_t heads = boxes.differBy(ir::ParamKind::H) ? problem.qHeads : 1;
  if (problem.batch == 0 || problem.qHeads == 0 || problem.qLen == 0) return census;
  const double all = double(batch) * double(heads);
  const int64_t every = std::max<int64_t>(1, int64_t(all * double(problem.qLen) / kMostQueries));
  census.isEstimate = every > 1 && batch * heads > 1;
  census.mayLieBeside = boxes.beside.has_value();
  census.differsByHead = batch * heads > 1;
  double counted = 0;
  for (int64_t i = 0; i < batch * heads; i += every, ++counted) {
    const int64_t b = i / heads, h = i % heads;
    const Extents& extents = ownsKeys ? grids.keys : grids.queries;
    const std::array<int, 3>& box = ownsKeys ? census.keyBox : census.queryBox;
    Extents at{};
    for (at[0] = 0; at[0] < extents[0]; at[0] += box[0])
      for (at[1] = 0; at[1] < extents[1]; at[1] += box[1])
        for (at[2] = 0; at[2] < extents[2]; at[2] += box[2])
          if (ownsKeys)
            addKeyTile(census, boxes, grids, b, h, at);
          else
            addQueryTile(census, boxes, config, grids, b, h, at);
    if (ownsKeys) census.live += livePairs(boxes, grids, b, h);
    if (boxes.beside) addBeside(census, *boxes.beside, config, grids, problem);
  }
  int64_t tilesOfHead = 1;
  for (size_t i = 0; i < 3; ++i) tilesOfHead *= (grids.queries[i] + census.queryBox[i] - 1) / census.queryBox[i];
  if (tilesOfHead > int64_t(kMostTiles)) census.ofFirstHead.clear();
  const double copies = double(problem.batch) * double(problem.qHeads) / counted;
  for (double* count : {&census.tiles, &census.steps, &census.visited, &census.live}) *count *= copies;
  if (ownsKeys) census.tiles *= double(problem.kvHeads) / double(problem.qHeads); // one for all heads that share it
  return census;
}

} // namespace attnc
