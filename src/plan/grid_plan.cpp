#include "plan/grid_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace attnc::plan {
namespace {

using Extents = std::array<int, 3>;

int tokensOf(const Extents& box) { return box[0] * box[1] * box[2]; }

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// A window of which nothing is known is taken to be long.
constexpr int64_t kLongWindow = 64;

struct Windows {
  std::array<int64_t, 3> span = {1, 1, 1};   ///< of the keys that a query sees
  std::array<int64_t, 3> stride = {1, 1, 1}; ///< queries that see the same
  int axes;

  explicit Windows(const passes::GridKernel& grid) : axes(int(grid.axes.size())) {
    for (int i = 0; i < axes; ++i) {
      const ir::Grid::Number& extent = grid.ofKeys.extents[size_t(i)];
      const bool isKnown = extent.kind == ir::Grid::Number::Kind::Constant;
      span[size_t(3 - axes + i)] =
          std::min(grid.axes[size_t(i)].span.value_or(kLongWindow), isKnown ? extent.value : ir::kMaxExtent);
      stride[size_t(3 - axes + i)] = grid.axes[size_t(i)].stride;
    }
  }
  /// Keys that queries from a coordinate of a multiple of `queries` on see.
  int64_t seenBy(size_t axis, int64_t queries) const {
    const int64_t moves = stride[axis] % queries == 0 ? 0 : ceilDiv(queries, stride[axis]) * stride[axis];
    return span[axis] + (moves ? moves - stride[axis] : 0);
  }
};

/// Whether ColumnAxis of templates/algo/grid_box.cuh takes the box.
bool isColumnBox(const Extents& box) {
  int pitch = 1;
  for (int axis = 2; axis >= 0; --axis) {
    const int span = pitch * box[size_t(axis)];
    if (pitch % 8 != 0 && !(span <= 8 && 8 % span == 0) && span % 8 != 0) return false;
    pitch = span;
  }
  return true;
}

/// The queries of a CTA.
Extents ofCta(const codegen::Config::Boxes& boxes) {
  Extents box = boxes.queries;
  box[size_t(boxes.splitAxis)] *= boxes.consumers;
  return box;
}

/// Time of a query in cycles of a multiprocessor, by what its CTA computes and what it reads.
double cyclesOf(const Windows& windows, const codegen::Config::Boxes& boxes, int headDim, int headDimV,
                const BoxModel& model) {
  const Extents cta = ofCta(boxes), together = togetherOf(boxes);
  int64_t loaded = 1, computed = 1; // boxes of keys; those of each part of the queries
  for (size_t axis = 0; axis < 3; ++axis) {
    const int64_t key = boxes.keys[axis], part = together[axis];
    loaded *= ceilDiv(windows.seenBy(axis, cta[axis]), key);
    int64_t places = 0;
    for (int64_t first = 0; first < cta[axis]; first += part) {
      const int64_t moved = windows.stride[axis] % cta[axis] == 0 ? 0 : first;
      places += (moved + windows.seenBy(axis, part) - 1) / key - moved / key + 1;
    }
    computed *= places;
  }
  const double columns = tokensOf(boxes.keys), width = headDim + headDimV;
  const double compute =
      double(computed) * (tokensOf(together) * columns * width * 2 / model.flopsPerCycle + model.cyclesOfStep);
  const double load = double(loaded) * columns * width * 2 / model.bytesPerCycle;
  return (std::max(compute, load) + 0.25 * std::min(compute, load)) / tokensOf(cta);
}

/// The least of what is added, in order; of equal ones the first. Boxes that differ in the axis that is split alone count once.
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

int64_t queryBoxesOf(const Stage& stage, const LaunchOperands& operands) {
  if (operands.problem.qLen == 0) return 0;
  const std::array<int64_t, 3> along = queryBoxesAlong(stage, operands);
  return along[0] * along[1] * along[2];
}

LaunchOperands::Grids gridsOf(const passes::GridKernel& grid, const ir::Bindings& bindings) {
  const auto extentsOf = [&](const ir::Grid& of) {
    std::array<int64_t, 3> extents = {1, 1, 1};
    for (size_t i = 0; i < of.extents.size(); ++i) extents[3 - of.extents.size() + i] = bindings.of(of.extents[i]);
    return extents;
  };
  return {extentsOf(grid.ofQueries), extentsOf(grid.ofKeys)};
}

std::optional<LaunchOperands::Grids> gridsOf(const passes::GridKernel& grid) {
  for (const ir::Grid* of : {&grid.ofQueries, &grid.ofKeys})
    for (const ir::Grid::Number& extent : of->extents)
      if (extent.kind != ir::Grid::Number::Kind::Constant) return std::nullopt;
  return gridsOf(grid, {});
}

Status checkGrids(const LaunchOperands& operands) {
  if (!operands.grids)
    return Error::environment("which tokens lie on the grid is not known without captures",
                              "give the operands the extents of the grid as captures");
  const auto tokens = [](const std::array<int64_t, 3>& extents) { return extents[0] * extents[1] * extents[2]; };
  for (auto [name, extents, rows] : {std::tuple("Q_LEN", operands.grids->queries, operands.problem.qLen),
                                     {"KV_LEN", operands.grids->keys, operands.problem.kvLen}})
    if (tokens(extents) != rows)
      return Error::environment(
          fmt::format(
              "a grid of {} has {} token{}, {} is {}",
              fmt::join(std::find_if(extents.begin(), extents.end() - 1, [](int64_t extent) { return extent != 1; }),
                        extents.end(), " x "),
              tokens(extents), tokens(extents) == 1 ? "" : "s", name, rows),
          "kernels of the grid family take tokens on a grid alone; families sm80 and sm90 take others beside it");
  return {};
}

} // namespace attnc::plan
