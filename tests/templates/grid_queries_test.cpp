// Boxes of keys from the side of the queries (templates/algo/grid_queries.cuh), run on the host against loops over all
// tokens.
#include "templates/host_cta.h"

#include "algo/grid_steps.cuh"

#include <catch2/catch.hpp>

#include <array>
#include <random>

using namespace attnc;

namespace {

struct Grid {
  int queries[3], keys[3];
};

/// Calls function(x) for all coordinates of a grid.
template <class Function> void forEachToken(const int (&extent)[3], Function function) {
  int x[3];
  for (x[0] = 0; x[0] < extent[0]; ++x[0])
    for (x[1] = 0; x[1] < extent[1]; ++x[1])
      for (x[2] = 0; x[2] < extent[2]; ++x[2]) function(x);
}

GridRange seenFrom(const int (&query)[3], const Grid& grid) {
  return keys_of({}, {}, 0, 0, token_at(query, grid.queries, 0), grid.keys);
}

bool sees(const int (&query)[3], const int (&key)[3], const Grid& grid) {
  const GridRange keys = seenFrom(query, grid);
  bool all = true;
  for (int axis = 0; axis < 3; ++axis) all = all && keys.begin[axis] <= key[axis] && key[axis] < keys.end[axis];
  return all;
}

constexpr Grid kGrids[] = {
    {{4, 9, 11}, {4, 9, 11}}, {{1, 1, 1}, {5, 7, 9}}, {{6, 12, 20}, {2, 5, 18}}, {{3, 40, 2}, {3, 40, 2}}};

} // namespace

TEST_CASE("the queries that see some of a box of keys are those that a kernel walks", "[grid]") {
  const auto check = [&](auto box) {
    using Box = decltype(box);
    for (const Grid& grid : kGrids)
      for (int y = 0; y < grid.keys[1]; y += Box::extent(1))
        for (int x = 0; x < grid.keys[2]; x += Box::extent(2)) {
          const int origin[3] = {0, y, x};
          GridRange found;
          HostCta::run(32, [&] {
            const GridRange own = queries_of(box, {}, {}, 0, 0, origin, grid.queries, grid.keys, 0);
            if (threadIdx.x == 0) found = own;
          });
          GridRange want = {{kMaxExtent, kMaxExtent, kMaxExtent}, {0, 0, 0}};
          forEachToken(grid.queries, [&](const int(&query)[3]) {
            const GridRange keys = seenFrom(query, grid);
            bool reaches = !keys.is_empty();
            for (int axis = 0; axis < 3; ++axis)
              reaches = reaches && keys.begin[axis] < origin[axis] + Box::extent(axis) && keys.end[axis] > origin[axis];
            for (int axis = 0; axis < 3 && reaches; ++axis) {
              want.begin[axis] = std::min(want.begin[axis], query[axis]);
              want.end[axis] = std::max(want.end[axis], query[axis] + 1);
            }
          });
          INFO(y << " " << x);
          CHECK(found.is_empty() == want.is_empty());
          for (int axis = 0; axis < 3 && !want.is_empty(); ++axis) {
            CHECK(found.begin[axis] == want.begin[axis]);
            CHECK(found.end[axis] == want.end[axis]);
          }
        }
  };
  check(BoxShape<1, 8, 16>());
  check(BoxShape<8, 4, 4>());
  check(BoxShape<1, 16, 8>());
}

TEST_CASE("steps behind one another are all boxes of a range of queries, each once", "[grid]") {
  using Box = BoxShape<2, 1, 8>;
  for (const GridRange& range : {GridRange{{0, 0, 0}, {1, 1, 1}}, {{1, 2, 3}, {6, 5, 20}}, {{3, 0, 8}, {5, 4, 16}}}) {
    std::vector<std::array<int, 3>> want;
    for (int z = range.begin[0]; z < range.end[0]; z += 2)
      for (int y = range.begin[1]; y < range.end[1]; ++y)
        for (int x = range.begin[2]; x < range.end[2]; x += 8) want.push_back({z, y, x});
    CHECK(steps_over<Box>(range) == int(want.size()));
    int at[3] = {range.begin[0], range.begin[1], range.begin[2]};
    for (const std::array<int, 3>& box : want) {
      CHECK(std::array<int, 3>{at[0], at[1], at[2]} == box);
      int next[3];
      step_behind<Box>(at, range, next);
      std::copy_n(next, 3, at);
    }
    CHECK(std::equal(at, at + 3, range.begin));
  }
  CHECK(steps_over<Box>({{0, 4, 0}, {9, 4, 9}}) == 0);
  CHECK(steps_over<Box>({{kMaxExtent, 0, 0}, {0, 9, 9}}) == 0);
}

TEST_CASE("each key of a box knows the queries of a step that see it", "[grid]") {
  std::mt19937 random{5};
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const auto check = [&](auto queries, auto box) {
    using Queries = decltype(queries);
    using Box = decltype(box);
    constexpr int kWords = Queries::kTokens / 32;
    for (int round = 0; round < 12; ++round) {
      const Grid& grid = kGrids[round % 4];
      int own[3], at[3];
      for (int axis = 0; axis < 3; ++axis) {
        own[axis] = draw(0, grid.keys[axis] - 1) / Box::extent(axis) * Box::extent(axis);
        at[axis] = draw(0, grid.queries[axis] - 1);
      }
      const int there = draw(1, 2 * Box::kTokens); // as at the end of a run
      int found[Box::kTokens][kWords];
      HostCta::run(32, [&] {
        unsigned seen[kWords];
        for (int i = 0; i < kWords; ++i) {
          int x[3];
          bool exists = true;
          for (int axis = 0; axis < 3; ++axis) {
            x[axis] = at[axis] + Queries::coordinate(int(threadIdx.x) + 32 * i, axis);
            exists = exists && x[axis] < grid.queries[axis];
          }
          seen[i] = exists ? KeyBits<Box>::within(seenFrom(x, grid), own) : 0;
        }
        const SeenBy<Box, 3, kWords> by(seen, there);
        for (int key = int(threadIdx.x); key < Box::kTokens; key += 32) by.find(found[key], key);
      });
      int wrong = 0;
      for (int key = 0; key < Box::kTokens; ++key)
        for (int query = 0; query < Queries::kTokens; ++query) {
          int q[3], k[3];
          bool exists = key < there;
          for (int axis = 0; axis < 3; ++axis) {
            q[axis] = at[axis] + Queries::coordinate(query, axis);
            k[axis] = own[axis] + Box::coordinate(key, axis);
            exists = exists && q[axis] < grid.queries[axis];
          }
          wrong += (unsigned(found[key][query / 32]) >> query % 32 & 1) != (exists && sees(q, k, grid));
        }
      CHECK(wrong == 0);
    }
  };
  check(BoxShape<1, 8, 8>(), BoxShape<1, 8, 16>());
  check(BoxShape<2, 4, 16>(), BoxShape<8, 4, 4>());
  check(BoxShape<1, 2, 32>(), BoxShape<2, 8, 8>());
}

TEST_CASE("a query sees a key of a box where it has all bits of the key, and none where it has no such key", "[grid]") {
  const auto check = [&](auto box) {
    using Box = decltype(box);
    int wrong = 0, seesNone = 0;
    for (const Grid& grid : kGrids)
      for (int y = 0; y < grid.keys[1]; y += Box::extent(1))
        for (int x = 0; x < grid.keys[2]; x += Box::extent(2)) {
          const int own[3] = {0, y, x};
          forEachToken(grid.queries, [&](const int(&query)[3]) {
            const unsigned seen = KeyBits<Box>::within(seenFrom(query, grid), own);
            bool some = false;
            for (int token = 0; token < Box::kTokens; ++token) {
              int key[3];
              for (int axis = 0; axis < 3; ++axis) key[axis] = own[axis] + Box::coordinate(token, axis);
              bool exists;
              find_token(box, own, token, grid.keys, {0, 0}, exists);
              const bool wants = exists && sees(query, key, grid);
              wrong += !(KeyBits<Box>::of(token) & ~seen) != wants;
              some = some || wants;
            }
            wrong += KeyBits<Box>::has_some(seen) != some;
            seesNone += !some;
          });
        }
    CHECK(wrong == 0);
    CHECK(seesNone > 0);
  };
  check(BoxShape<1, 8, 16>());
  check(BoxShape<8, 4, 4>());
  check(BoxShape<2, 4, 8>());
}
