// Boxes of tokens as columns of a tile (templates/algo/grid_box.cuh), run on the host against loops over all their
// tokens.
#include "templates/host_cta.h"

#include "algo/grid_box.cuh"
#include "tile/copy_box.cuh"

#include <catch2/catch.hpp>

#include <array>
#include <random>
#include <utility>

using namespace attnc;

namespace {

constexpr int kMostTokens = 128;

/// Boxes that ColumnAxis takes, as isColumnBox() of src/families/grids/grid_plan.cpp says.
constexpr bool isColumnBox(int a, int b, int c) {
  int pitch = 1;
  for (int extent : {c, b, a}) {
    const int span = pitch * extent;
    const bool byLane = span <= 8 && 8 % span == 0, byGroup = pitch % 8 == 0;
    if (!byLane && !byGroup && span % 8 != 0) return false;
    pitch = span;
  }
  return pitch % 16 == 0 && pitch <= kMostTokens;
}

struct Extents {
  int a, b, c;
};

/// Returns all boxes; their number is `Count`. With Count 0, returns only that number.
template <size_t Count> constexpr auto allBoxes() {
  std::array<Extents, Count ? Count : 1> boxes{};
  size_t count = 0;
  for (int a = 1; a <= kMostTokens; ++a)
    for (int b = 1; a * b <= kMostTokens; ++b)
      for (int c = 1; a * b * c <= kMostTokens; ++c) {
        if (!isColumnBox(a, b, c)) continue;
        if constexpr (Count != 0) boxes[count] = {a, b, c};
        ++count;
      }
  if constexpr (Count == 0)
    return count;
  else
    return boxes;
}
constexpr size_t kBoxes = allBoxes<0>();

/// Calls visit(BoxShape<a, b, c>()) for all of them.
template <class Visit> void forEachBox(Visit visit) {
  static constexpr auto kAll = allBoxes<kBoxes>();
  [&]<size_t... I>(std::index_sequence<I...>) { (visit(BoxShape<kAll[I].a, kAll[I].b, kAll[I].c>()), ...); }
  (std::make_index_sequence<kBoxes>());
}

template <class Box, int Axis> void checkAxis() {
  using Column = ColumnAxis<Box, Axis>;
  constexpr int kGroups = Box::kTokens / 8;
  int wrong = 0;
  for (int l = 0; l < 8; ++l) {
    for (int n = 0; n < kGroups; ++n)
      wrong += Column::of_lane(l) + Column::of_group(n) != Box::coordinate(8 * n + l, Axis);
    for (int begin = -3; begin <= Box::extent(Axis) + 3; ++begin)
      for (int end = -3; end <= Box::extent(Axis) + 3; ++end) {
        unsigned want = 0;
        for (int n = 0; n < kGroups; ++n) {
          const int at = (8 * n + l) / Box::pitch(Axis) % Box::extent(Axis);
          if (begin <= at && at < end) want |= 1u << n;
        }
        const unsigned got = Column::template inside<kGroups>(begin, end, l);
        wrong += ((got ^ want) << (32 - kGroups)) != 0; // bits of groups that there are
      }
  }
  CHECK(wrong == 0);
}

} // namespace

TEST_CASE("which columns lie in a range of keys: all boxes of tokens that kernels take", "[grid]") {
  CHECK(kBoxes > 150);
  forEachBox([&](auto box) {
    using Box = decltype(box);
    INFO(Box::extent(0) << " x " << Box::extent(1) << " x " << Box::extent(2));
    checkAxis<Box, 0>();
    checkAxis<Box, 1>();
    checkAxis<Box, 2>();
  });
}

TEST_CASE("elements outside their rows' boxes of keys are dead, and no others, step after step", "[grid]") {
  std::mt19937 random{3};
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const auto check = [&](auto box) {
    using Box = decltype(box);
    for (int tile = 0; tile < 40; ++tile) {
      GridRange keys[2];
      int first[3], wrong = 0;
      for (int axis = 0; axis < 3; ++axis) {
        first[axis] = draw(0, 20);
        for (GridRange& of : keys) {
          of.begin[axis] = first[axis] + draw(-4, 2 * Box::extent(axis) + 3);
          of.end[axis] = of.begin[axis] + draw(-2, 2 * Box::extent(axis) + 4);
        }
      }
      for (int lane = 0; lane < 32; ++lane) {
        threadIdx.x = unsigned(lane);
        LiveKeys<Box> live;
        for (int step = 0; step < 8; ++step) { // one axis stays where it is, and then another
          const int origin[3] = {first[0] + step / 4 * Box::extent(0), first[1] + step / 2 % 2 * Box::extent(1),
                                 first[2] + step % 2 * Box::extent(2)};
          Fragment<1, Box::kTokens> x;
          for (int n = 0; n < Box::kTokens / 8; ++n)
            for (int e = 0; e < 2; ++e) x.at(0, n, e) = x.at(1, n, e) = 1.f;
          live.keep(x, keys, origin, -1.f);
          for (int r = 0; r < 2; ++r)
            for (int n = 0; n < Box::kTokens / 8; ++n)
              for (int e = 0; e < 2; ++e) {
                bool lives = true;
                for (int axis = 0; axis < 3; ++axis) {
                  const int at = origin[axis] + Box::coordinate(8 * n + lane % 4 * 2 + e, axis);
                  lives = lives && keys[r].begin[axis] <= at && at < keys[r].end[axis];
                }
                wrong += x.at(r, n, e) != (lives ? 1.f : -1.f);
              }
        }
      }
      threadIdx.x = 0;
      CHECK(wrong == 0);
    }
  };
  check(BoxShape<1, 8, 16>());
  check(BoxShape<4, 4, 4>());
  check(BoxShape<2, 14, 4>());
  check(BoxShape<1, 1, 112>());
  check(BoxShape<3, 4, 8>());
  check(BoxShape<1, 10, 8>());
  check(BoxShape<16, 4, 1>());
  check(BoxShape<40, 2, 1>());
}

TEST_CASE("threads copy each token of a box once, those of its grid alone", "[grid]") {
  std::mt19937 random{5};
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const auto check = [&](auto box, auto tokensOf, int first, int count, int threads, int side) {
    using Box = decltype(box);
    for (int round = 0; round < 20; ++round) {
      int origin[3], extent[3];
      for (int axis = 0; axis < 3; ++axis) {
        extent[axis] = draw(1, 2 * Box::extent(axis));
        origin[axis] = draw(0, extent[axis]);
      }
      std::vector<int> seen(size_t(count), 0), copies(size_t(count), 0);
      for (int thread = 0; thread < threads; ++thread) {
        threadIdx.x = unsigned(thread);
        auto tokens = tokensOf;
        tokens.look(first, origin, extent);
        for (int i = 0; i < tokens.kOwn; ++i) {
          if (tokens.row(i) >= count) {
            CHECK(tokens.index[i] == -1);
            continue;
          }
          seen[size_t(tokens.row(i))] = tokens.index[i];
          ++copies[size_t(tokens.row(i))];
        }
      }
      for (int row = 0; row < count; ++row) {
        int x[3];
        bool exists = true;
        for (int axis = 0; axis < 3; ++axis) {
          x[axis] = origin[axis] + Box::coordinate(first + row, axis);
          exists = exists && x[axis] < extent[axis];
        }
        REQUIRE(copies[size_t(row)] == side);
        REQUIRE(seen[size_t(row)] == (exists ? (x[0] * extent[1] + x[1]) * extent[2] + x[2] : -1));
      }
    }
  };
  check(BoxShape<1, 8, 8>(), BoxTokens<F16, BoxShape<1, 8, 8>, 64, 128, 128>(), 0, 64, 128, 8);
  check(BoxShape<5, 4, 4>(), BoxTokens<F16, BoxShape<5, 4, 4>, 80, 256, 64>(), 0, 80, 256,
        8); // 80 is no multiple of 32
  check(BoxShape<1, 3, 16>(), BoxTokens<F16, BoxShape<1, 3, 16>, 48, 128, 32>(), 0, 48, 128, 4);
  check(BoxShape<2, 4, 16>(), BoxTokens<F16, BoxShape<2, 4, 16>, 16, 32, 8>(), 48, 16, 32, 2); // of a warp
}
