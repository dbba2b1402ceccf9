// Steps over listed boxes of keys (templates/algo/listed_grid_tiles.cuh), run on the host against the lattices of a
// mask.
#include "templates/host_cta.h"

#include "algo/listed_grid_tiles.cuh"

#include <catch2/catch.hpp>

#include <array>
#include <random>
#include <vector>

using namespace attnc;

namespace {

struct Params { // what is asked of a kernel's
  ForwardParams base;
  int q_extent[3], kv_extent[3], q_tiles[3];
};

/// The boxes of a grid, in their order.
struct Lattice {
  std::array<int, 3> extents, box;

  std::vector<std::array<int, 3>> origins() const {
    std::vector<std::array<int, 3>> all;
    for (int z = 0; z < extents[0]; z += box[0])
      for (int y = 0; y < extents[1]; y += box[1])
        for (int x = 0; x < extents[2]; x += box[2]) all.push_back({z, y, x});
    return all;
  }
};

} // namespace

TEST_CASE("kernels walk the boxes that lists name, partial ones first", "[templates][grid]") {
  using Queries = BoxShape<1, 4, 8>;
  using Keys = BoxShape<2, 4, 8>;
  using Tiles = ListedGridTiles<Queries, Keys, 1, 2>; // 1 x 8 x 8 queries of a CTA
  std::mt19937 random{23};
  const auto below = [&](int end) { return int(random() % unsigned(end)); };
  for (int round = 0; round < 50; ++round) {
    const Lattice queries{{1 + below(3), 1 + below(20), 1 + below(20)}, {1, 8, 8}},
        keys{{1 + below(5), 1 + below(20), 1 + below(20)}, {2, 4, 8}};
    const auto queryBoxes = queries.origins(), keyBoxes = keys.origins();
    Params p{};
    for (size_t axis = 0; axis < 3; ++axis) {
      p.q_extent[axis] = queries.extents[axis], p.kv_extent[axis] = keys.extents[axis];
      p.q_tiles[axis] = (queries.extents[axis] + queries.box[axis] - 1) / queries.box[axis];
    }
    const int heads = 3, batch = 2, tiles = int(queryBoxes.size()), rows = batch * heads * tiles;
    const int most = int(keyBoxes.size());
    std::vector<int> partialCount, fullCount, partialIndex(size_t(rows * most)), fullIndex(size_t(rows * most));
    for (int row = 0; row < rows; ++row) {
      int partial = 0, full = 0;
      for (int box = 0; box < most; ++box) {
        const int kind = below(row % 4 ? 3 : 1); // none live in every fourth row
        if (kind == 1) partialIndex[size_t(row * most + partial++)] = box;
        if (kind == 2) fullIndex[size_t(row * most + full++)] = box;
      }
      partialCount.push_back(partial), fullCount.push_back(full);
    }
    p.base.q_heads = heads;
    p.base.lists = {partialCount.data(),
                    partialIndex.data(),
                    fullCount.data(),
                    fullIndex.data(),
                    heads * tiles,
                    tiles,
                    most,
                    64,
                    64};
    for (int row = 0; row < rows; ++row) {
      const int head = row / tiles, tile = row % tiles;
      const Tiles::Plan plan = Tiles::plan(p, {}, {head, tile});
      CHECK(plan.head == head);
      for (size_t axis = 0; axis < 3; ++axis) CHECK(plan.origin[axis] == queryBoxes[size_t(tile)][axis]);
      const ListedBoxes<Keys> boxes(p, head / heads, head % heads, plan.tile);
      const int partial = partialCount[size_t(row)], full = fullCount[size_t(row)];
      REQUIRE(boxes.steps() == std::max(partial + full, 1));
      for (int step = 0; step < boxes.steps(); ++step) {
        const bool isFull = step >= partial && full > 0;
        CHECK(boxes.is_full(step) == isFull);
        int origin[3];
        boxes.origin_of(p, step, origin);
        if (partial + full == 0) { // behind the end
          for (size_t axis = 0; axis < 3; ++axis) CHECK(origin[axis] == keys.extents[axis]);
          continue;
        }
        const int box =
            isFull ? fullIndex[size_t(row * most + step - partial)] : partialIndex[size_t(row * most + step)];
        for (size_t axis = 0; axis < 3; ++axis) CHECK(origin[axis] == keyBoxes[size_t(box)][axis]);
      }
    }
  }
}
