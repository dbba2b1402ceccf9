#include "families/grids/grid_plan.h"

#include "families/grids/grid_windows.h"
#include "support/ceil_div.h"
#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace attnc::plan {
namespace {

using Extents = std::array<int, 3>;

bool isPowerOfTwo(int x) { return (x & (x - 1)) == 0; }

/// Whether ColumnAxis of templates/algo/grid_box.cuh accepts the box.
bool isColumnBox(const Extents& box) {
  int pitch = 1;
  for (int axis = 2; axis >= 0; --axis) {
    const int span = pitch * box[size_t(axis)];
    if (pitch % 8 != 0 && !(span <= 8 && 8 % span == 0) && span % 8 != 0) return false;
    pitch = span;
  }
  return true;
}

/// Returns the queries of a CTA.
Extents ofCta(const codegen::Config::Boxes& boxes) {
  Extents box = boxes.queries;
  box[size_t(boxes.splitAxis)] *= boxes.consumers;
  return box;
}

/// Returns by which factor an extent grows when it is filled up to whole boxes: 1 if the extent is unknown.
double padding(int64_t extent, int box) { return extent ? double(ceilDiv(extent, box) * box) / double(extent) : 1; }

/// Returns how many boxes of keys meet what a CTA's queries see, including the waste at the ends of the grids. Only the
/// strides of the visible region are known. It is assumed to be equally long along all axes, and to lie anywhere on the
/// lattice of its strides.
double listedBoxes(const Windows& windows, const Extents& cta, const Extents& keys) {
  constexpr int64_t kLength = 16;
  double boxes = 1;
  for (size_t axis = size_t(3 - windows.axes); axis < 3; ++axis) {
    const int64_t length = windows.keys[axis] ? std::min(windows.keys[axis], kLength) : kLength;
    const auto shifts = [&](int box) { return windows.stride[axis] % box ? box - 1 : 0; };
    boxes *= double(length + shifts(cta[axis]) + shifts(keys[axis])) / keys[axis];
    boxes *= padding(windows.keys[axis], keys[axis]) * padding(windows.queries[axis], cta[axis]);
  }
  return boxes;
}

/// Returns the time per query in cycles of a multiprocessor, from what its CTA computes and reads.
double cyclesOf(const Windows& windows, const codegen::Config::Boxes& boxes, int headDim, int headDimV,
                const BoxModel& model) {
  const Extents cta = ofCta(boxes), together = togetherOf(boxes);
  double loaded = 1, computed = 1; // boxes of keys: of the CTA; of each part of its queries
  if (model.byLists) {
    loaded = listedBoxes(windows, cta, boxes.keys);
    computed = loaded * tokensOf(cta) / tokensOf(together);
  }
  for (size_t axis = 0; axis < 3 && !model.byLists; ++axis) {
    const int64_t key = boxes.keys[axis], part = together[axis];
    loaded *= double(ceilDiv(windows.seenBy(axis, cta[axis]), key));
    int64_t places = 0;
    for (int64_t first = 0; first < cta[axis]; first += part) {
      const int64_t moved = windows.stride[axis] % cta[axis] == 0 ? 0 : first;
      places += (moved + windows.seenBy(axis, part) - 1) / key - moved / key + 1;
    }
    computed *= double(places);
  }
  const double columns = tokensOf(boxes.keys), width = headDim + headDimV;
  const double compute =
      computed * (tokensOf(together) * columns * width * 2 / model.flopsPerCycle + model.cyclesOfStep);
  const double load = loaded * columns * width * model.elementBytes / model.bytesPerCycle;
  return (std::max(compute, load) + 0.25 * std::min(compute, load)) / tokensOf(cta);
}

/// Keeps the `count` entries with the least cycles, in order; among equals, the first. Boxes that differ only in the
/// split axis count once.
class LeastBoxes {
public:
  explicit LeastBoxes(size_t count) : count(count) {}

  void add(double cycles, const codegen::Config::Boxes& boxes) {
    if (all.size() == count && cycles >= all.back().first) return;
    const auto like = std::find_if(all.begin(), all.end(), [&](const Entry& entry) {
      return entry.second.queries == boxes.queries && entry.second.keys == boxes.keys;
    });
    if (like != all.end() && like->first <= cycles) return;
    if (like != all.end()) all.erase(like);
    const auto place = std::find_if(all.begin(), all.end(), [&](const Entry& entry) { return entry.first > cycles; });
    all.insert(place, {cycles, boxes});
    if (all.size() > count) all.pop_back();
  }

  std::vector<codegen::Config::Boxes> boxes() const {
    std::vector<codegen::Config::Boxes> result;
    for (const Entry& entry : all) result.push_back(entry.second);
    return result;
  }

private:
  using Entry = std::pair<double, codegen::Config::Boxes>;
  size_t count;
  std::vector<Entry> all;
};

} // namespace

std::string boxesText(const codegen::Config::Boxes& boxes) {
  const std::string text = fmt::format("q{} kv{}", fmt::join(boxes.queries, "x"), fmt::join(boxes.keys, "x"));
  return boxes.consumers > 1 ? fmt::format("{} split{}", text, boxes.splitAxis) : text;
}

std::array<int, 3> togetherOf(const codegen::Config::Boxes& boxes) {
  Extents part;
  int rest = boxes.together;
  for (size_t axis = 3; axis-- > 0; rest /= part[axis]) part[axis] = std::min(boxes.queries[axis], rest);
  return part;
}

std::vector<codegen::Config::Boxes> rankBoxes(const passes::GridKernel& grid, int headDim, int headDimV,
                                              const BoxModel& model, size_t count) {
  const Windows windows(grid);
  const auto isUsed = [&](int axis, int extent) { return axis >= 3 - windows.axes || extent == 1; };
  LeastBoxes best(count);
  std::vector<Extents> keyBoxes;
  for (int a = 1; a <= model.mostKeys; ++a)
    for (int b = 1; a * b <= model.mostKeys; ++b)
      for (int c = 1; a * b * c <= model.mostKeys; ++c) {
        const Extents box = {a, b, c};
        if (tokensOf(box) < model.leastKeys || tokensOf(box) % 16 != 0 || !isColumnBox(box)) continue;
        // Masks by tiles have powers of two; boxes that divide them meet the fewest tiles.
        if (model.byLists && !(isPowerOfTwo(a) && isPowerOfTwo(b) && isPowerOfTwo(c))) continue;
        if (isUsed(0, a) && isUsed(1, b) && isUsed(2, c)) keyBoxes.push_back(box);
      }
  for (int tokens : model.queries)
    for (int a = 1; a <= tokens; a *= 2)
      for (int b = 1; a * b <= tokens; b *= 2) {
        const Extents queries = {a, b, tokens / (a * b)};
        if (!isUsed(0, a) || !isUsed(1, b)) continue;
        for (int split = model.consumers > 1 ? 3 - windows.axes : 2; split < 3; ++split)
          for (const Extents& keys : keyBoxes) {
            const codegen::Config::Boxes boxes{queries, keys, split, model.consumers, model.together};
            const double burden = model.burden ? model.burden(boxes) : 1;
            if (burden > 0) best.add(burden * cyclesOf(windows, boxes, headDim, headDimV, model), boxes);
          }
      }
  return best.boxes();
}

std::array<int, 3> queryBoxOf(const codegen::Config& config) { return ofCta(*config.boxes); }

std::array<int64_t, 3> queryBoxesAlong(const Stage& stage, const LaunchOperands& operands) {
  const std::array<int, 3> box = queryBoxOf(stage.config);
  std::array<int64_t, 3> along;
  for (size_t axis = 0; axis < 3; ++axis) along[axis] = ceilDiv(operands.grids->queries[axis], box[axis]);
  return along;
}

static std::array<int64_t, 2> tokensBeside(const std::array<int64_t, 3>& extents, std::optional<int64_t> before,
                                           int64_t rows) {
  if (!before) return {0, 0};
  return {*before, rows - *before - extents[0] * extents[1] * extents[2]};
}

std::array<int64_t, 2> queriesBeside(const LaunchOperands::Grids& grids, const ProblemShape& problem) {
  return tokensBeside(grids.queries, grids.before ? std::optional(grids.before->queries) : std::nullopt, problem.qLen);
}

std::array<int64_t, 2> keysBeside(const LaunchOperands::Grids& grids, const ProblemShape& problem) {
  return tokensBeside(grids.keys, grids.before ? std::optional(grids.before->keys) : std::nullopt, problem.kvLen);
}

int64_t queryBoxesOf(const Stage& stage, const LaunchOperands& operands) {
  if (operands.problem.qLen == 0) return 0;
  const std::array<int64_t, 3> along = queryBoxesAlong(stage, operands);
  int64_t tiles = along[0] * along[1] * along[2];
  for (int64_t tokens : queriesBeside(*operands.grids, operands.problem))
    tiles += ceilDiv(tokens, tokensOf(queryBoxOf(stage.config)));
  return tiles;
}

std::array<int64_t, 3> keyBoxesAlong(const Stage& stage, const LaunchOperands& operands) {
  std::array<int64_t, 3> along;
  for (size_t axis = 0; axis < 3; ++axis)
    along[axis] = ceilDiv(operands.grids->keys[axis], stage.config.boxes->keys[axis]);
  return along;
}

int64_t keyBoxesOf(const Stage& stage, const LaunchOperands& operands) {
  if (operands.problem.kvLen == 0) return 0;
  const std::array<int64_t, 3> along = keyBoxesAlong(stage, operands);
  int64_t tiles = along[0] * along[1] * along[2];
  for (int64_t tokens : keysBeside(*operands.grids, operands.problem))
    tiles += ceilDiv(tokens, tokensOf(stage.config.boxes->keys));
  return tiles;
}

BlockMaskShape::Boxes latticesOf(const codegen::Config& config, const LaunchOperands::Grids& grids) {
  return {{grids.queries, queryBoxOf(config)}, {grids.keys, config.boxes->keys}};
}

static std::string latticeText(const BoxLattice& lattice) {
  return fmt::format("{} of {}", fmt::join(lattice.box, "x"), fmt::join(lattice.extents, "x"));
}

Status checkListedBoxes(const codegen::Config& config, const LaunchOperands& operands) {
  if (!operands.lists || !operands.lists->shape.boxes) return {};
  const BlockMaskShape::Boxes &given = *operands.lists->shape.boxes, expected = latticesOf(config, *operands.grids);
  if (given == expected) return {};
  return Error::environment(fmt::format("block mask: its boxes are {} and {}, those of the launch {} and {}",
                                        latticeText(given.queries), latticeText(given.keys),
                                        latticeText(expected.queries), latticeText(expected.keys)),
                            "lists are of a kernel's tile, and of the extents of a launch");
}

LaunchOperands::Grids gridsOf(const passes::GridKernel& grid, const ir::Bindings& bindings) {
  const auto extentsOf = [&](const ir::Grid& of) {
    std::array<int64_t, 3> extents = {1, 1, 1};
    const llvm::SmallVector<int64_t, 3> given = bindings.extentsOf(of);
    std::copy(given.begin(), given.end(), extents.end() - int64_t(given.size()));
    return extents;
  };
  const auto sliceOf = [&](const ir::Grid& of) -> std::optional<int64_t> {
    if (!of.hasRest()) return std::nullopt;
    const llvm::SmallVector<int64_t, 3> extents = bindings.extentsOf(of);
    return std::accumulate(extents.begin() + 1, extents.end(), int64_t(1), std::multiplies<>());
  };
  LaunchOperands::Grids grids{extentsOf(grid.ofQueries), extentsOf(grid.ofKeys), sliceOf(grid.ofQueries),
                              sliceOf(grid.ofKeys), grid.module.hasNearScalars ? bindings.farScalar() : std::nullopt};
  if (grid.beside) grids.before = {bindings.of(grid.ofQueries.before), bindings.of(grid.ofKeys.before)};
  return grids;
}

std::optional<LaunchOperands::Grids> gridsOf(const passes::GridKernel& grid, const ProblemShape& problem) {
  using Kind = ir::Grid::Number::Kind;
  for (const ir::Grid* of : {&grid.ofQueries, &grid.ofKeys}) {
    if (of->before.kind != Kind::Constant) return std::nullopt;
    for (const ir::Grid::Number& extent : of->extents)
      if (extent.kind != Kind::Constant && extent.kind != Kind::Rest) return std::nullopt;
  }
  ir::Bindings bindings;
  bindings.dims = {problem.batch, problem.qHeads, problem.kvHeads, problem.qLen, problem.kvLen};
  return gridsOf(grid, bindings);
}

static Status checkTokens(const char* length, const std::array<int64_t, 3>& extents, int64_t before, int64_t rows,
                          std::optional<int64_t> slice, bool takesBeside) {
  const int64_t tokens = extents[0] * extents[1] * extents[2];
  const bool isGrid = std::all_of(extents.begin(), extents.end(), [](int64_t extent) { return extent >= 1; });
  const int64_t behindGrid = rows - before - tokens; // 0 for a found grid, which ends with the length
  const bool fits =
      takesBeside ? before >= 0 && behindGrid >= 0 && (!slice || behindGrid == 0) : before == 0 && behindGrid == 0;
  if (fits && isGrid) return {}; // bind() checks extents only of declared grids
  const char* const hint =
      takesBeside ? "give rows for all tokens of the grid; family sm90 takes less"
                  : "kernels of the grid family take tokens on a grid alone, unless the mod asks which are "
                    "on it or has some before it; family sm90 takes others beside it";
  if (slice && rows > 0 && (*slice < 1 || (rows > before && (rows - before) % *slice != 0))) {
    const std::string from = before ? fmt::format(", counted from {}", before) : "";
    return Error::environment(fmt::format("{} is {}{}, no multiple of {}, by which the mod takes positions apart",
                                          length, rows, from, *slice),
                              hint);
  }
  const auto first = std::find_if(extents.begin(), extents.end() - 1, [](int64_t extent) { return extent != 1; });
  const std::string grid = fmt::format("a grid of {}", fmt::join(first, extents.end(), " x "));
  if (!isGrid) return Error::environment(grid + " has an extent below 1", hint);
  const std::string behind = before ? fmt::format(", the first behind {} others", before) : "";
  return Error::environment(
      fmt::format("{} has {} token{}{}, {} is {}", grid, tokens, tokens == 1 ? "" : "s", behind, length, rows), hint);
}

int64_t perQueryBox(const Stage& stage, const LaunchOperands& operands, const Device&) {
  return operands.problem.batch * operands.problem.qHeads * queryBoxesOf(stage, operands);
}

int64_t perKeyBox(const Stage& stage, const LaunchOperands& operands, const Device&) {
  return operands.k.shape[0] * operands.problem.kvHeads * keyBoxesOf(stage, operands);
}

uint64_t queryBoxTiles(const Stage& stage, const LaunchOperands& operands) {
  return operands.grids ? uint64_t(perQueryBox(stage, operands, {})) : 0;
}

uint64_t keyBoxTiles(const Stage& stage, const LaunchOperands& operands) {
  return operands.grids ? uint64_t(perKeyBox(stage, operands, {})) : 0;
}

Status checkGrids(const LaunchOperands& operands, bool takesBeside) {
  if (!operands.grids)
    return Error::environment("which tokens lie on the grid is not known without captures",
                              "give the operands the extents of the grid as captures");
  const LaunchOperands::Grids& grids = *operands.grids;
  if (grids.farScalar)
    return Error::environment(
        fmt::format("a capture is {}; with grids that the mod does not declare they lie in -{}..{}", *grids.farScalar,
                    ir::kMaxExtent, ir::kMaxExtent),
        "family sm90 takes others");
  const auto before = grids.before.value_or(LaunchOperands::Grids::Before{0, 0});
  for (auto [name, extents, first, rows, slice] :
       {std::tuple("Q_LEN", grids.queries, before.queries, operands.problem.qLen, grids.sliceOfQueries),
        {"KV_LEN", grids.keys, before.keys, operands.problem.kvLen, grids.sliceOfKeys}})
    ATTNC_TRY(checkTokens(name, extents, first, rows, slice, takesBeside && grids.before));
  return {};
}

Status takesAnyLayoutOnGrids(const LaunchOperands& operands) { return checkGrids(operands); }

} // namespace attnc::plan
