#include "families/grids/backward_boxes.h"

#include "families/grids/grid_windows.h"
#include "support/ceil_div.h"

#include <algorithm>

namespace attnc::plan {

std::string unservedByBackwardBoxes(const Request& request) {
  const KernelOptions& options = request.options;
  if (!request.mod->grid || !request.mod->grid->isBounded || !request.mod->onGrid)
    return "takes mods whose mask is a box of keys on a grid";
  if (request.mod->grid->axes.size() < 2) return "takes grids of two or three axes";
  if (!request.mod->grid->isSeparable) return "takes boxes that each axis of the query decides by itself";
  const bool isAsked = options.family == Family::Grid;
  if (!isAsked && options.noBoxes) return "is not asked for";
  // A CTA's box of keys has this many remainders, of which a query sees one: KeyBits leaves no room for fewer.
  const int64_t remainders = options.dtype == DType::F32 ? 2 : 16;
  if (!isAsked && request.mod->grid->step > 1 && request.mod->grid->step <= remainders)
    return "gains nothing where a query sees each of few keys";
  if (!isAsked && request.mod->facts.kvEdges) return "gains nothing where each query sees the keys from one to another";
  return {};
}

bool readsQueries(const KernelMod& mod) {
  const passes::GridKernel& grid = *mod.grid;
  return mod.onGrid->form == analysis::ScoreForm::General || !grid.boxIsMask || (grid.beside && grid.beside->asks());
}

std::vector<codegen::Config::Boxes> rankBackwardBoxes(const Request& request, int queries, int keys, size_t count) {
  const Windows windows(*request.mod->grid);
  const bool areCells = request.options.features.has(Feature::Deterministic);
  const auto shapesOf = [&](int tokens) {
    std::vector<std::array<int, 3>> shapes;
    for (int a = 1; a <= tokens; a *= 2)
      for (int b = 1; a * b <= tokens; b *= 2)
        if ((windows.axes > 2 || a == 1) && (windows.axes > 1 || b == 1)) shapes.push_back({a, b, tokens / (a * b)});
    return shapes;
  };
  std::vector<std::pair<double, codegen::Config::Boxes>> ranked;
  for (const std::array<int, 3>& own : shapesOf(keys)) {
    if (own[0] + own[1] + own[2] > 32) continue; // limit of KeyBits in templates/algo/grid_queries.cuh
    for (const std::array<int, 3>& box : shapesOf(queries)) {
      double steps = 1;
      for (size_t axis = 0; axis < 3; ++axis) {
        const int64_t seeing = windows.seeing(axis, own[axis]);
        steps *= areCells ? 1 + double(seeing - 1) / double(box[axis]) : double(ceilDiv(seeing, box[axis]));
        if (const int64_t extent = windows.keys[axis])
          steps *= double(ceilDiv(extent, own[axis]) * own[axis]) / double(extent);
      }
      ranked.push_back({steps, codegen::Config::Boxes{.queries = box, .keys = own, .ownsKeys = true}});
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<codegen::Config::Boxes> boxes;
  for (const auto& [steps, shape] : ranked)
    if (boxes.size() < count) boxes.push_back(shape);
  return boxes;
}

} // namespace attnc::plan
