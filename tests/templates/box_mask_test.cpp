// The kernel that builds lists of boxes (templates/box_mask.cu), run on the host against loops over all pairs.
#include "templates/host_cta.h"

#define __global__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static

#include "box_mask.cu"

#include <catch2/catch.hpp>

#include <array>
#include <random>
#include <vector>

using namespace attnc;

namespace {

using Place = std::array<int, 3>;

/// The boxes of a grid in their order, and of each the tokens that lie on the grid, by position.
std::vector<std::vector<int>> boxesOf(const int (&extent)[3], const int (&box)[3]) {
  std::vector<std::vector<int>> all;
  const auto each = [](const Place& first, const Place& end, const Place& step, auto visit) {
    for (int z = first[0]; z < end[0]; z += step[0])
      for (int y = first[1]; y < end[1]; y += step[1])
        for (int x = first[2]; x < end[2]; x += step[2]) visit(Place{z, y, x});
  };
  each({0, 0, 0}, {extent[0], extent[1], extent[2]}, {box[0], box[1], box[2]}, [&](const Place& at) {
    Place end;
    for (size_t i = 0; i < 3; ++i) end[i] = std::min(at[i] + box[i], extent[i]);
    all.emplace_back();
    each(at, end, {1, 1, 1},
         [&](const Place& x) { all.back().push_back((x[0] * extent[1] + x[1]) * extent[2] + x[2]); });
  });
  return all;
}

} // namespace

TEST_CASE("the builder lists the boxes that live, and which of them whole", "[templates][grid]") {
  std::mt19937 random{31};
  const auto upTo = [&](int most) { return 1 + int(random() % unsigned(most)); };
  const ModArgs args{0, 0, /*is_sparse=*/true};
  int partial = 0, full = 0, empty = 0;
  for (int round = 0; round < 12; ++round) {
    const int batch = upTo(2), heads = upTo(2);
    BoxMaskParams p{.batch = batch,
                    .heads = heads,
                    .q_extent = {upTo(3), Mod::kRows, Mod::kColumns},
                    .kv_extent = {upTo(3), Mod::kRows, Mod::kColumns},
                    .q_box = {upTo(2), upTo(3), upTo(5)},
                    .kv_box = {upTo(2), upTo(3), upTo(4)}};
    const auto queries = boxesOf(p.q_extent, p.q_box), keys = boxesOf(p.kv_extent, p.kv_box);
    const size_t rows = size_t(batch * heads) * queries.size(), most = keys.size();
    std::vector<int> partialCount(rows, -1), fullCount(rows, -1), partialIndex(rows * most), fullIndex(rows * most);
    p.partial_count = partialCount.data(), p.partial_index = partialIndex.data();
    p.full_count = fullCount.data(), p.full_index = fullIndex.data();
    for (size_t row = 0; row < rows; ++row) {
      HostCta::run(box_mask::kThreads, [&] {
        blockIdx.x = unsigned(row);
        box_mask::attnc_box_mask(p, args);
      });
      const int head = int(row / queries.size());
      const std::vector<int>& own = queries[row % queries.size()];
      std::vector<int> expected[2]; // partial, full
      for (size_t box = 0; box < most; ++box) {
        size_t live = 0;
        for (int q : own)
          for (int kv : keys[box])
            live += Mod::mask(args, {head / heads, head % heads}, {q}, {kv}, {head / heads, head % heads, q, kv});
        const bool isFull =
            live == size_t(p.q_box[0] * p.q_box[1] * p.q_box[2] * p.kv_box[0] * p.kv_box[1] * p.kv_box[2]);
        if (live) expected[isFull].push_back(int(box));
        ++(isFull ? full : live ? partial : empty);
      }
      const auto listed = [&](const std::vector<int>& counts, const std::vector<int>& indices) {
        const auto first = indices.begin() + std::ptrdiff_t(row * most);
        return std::vector<int>(first, first + counts[row]);
      };
      CHECK(listed(partialCount, partialIndex) == expected[0]);
      CHECK(listed(fullCount, fullIndex) == expected[1]);
    }
  }
  CHECK((partial > 50 && full > 10 && empty > 50)); // else the test holds little
}
