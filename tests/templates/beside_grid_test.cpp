// Tiles and steps outside a grid (templates/algo/beside_grid.cuh, grid_tiles.cuh), run on the host: which queries and
// keys they hold. The host's mod lets all tokens outside a grid see and be seen.
#include "templates/host_cta.h"

#include "algo/grid_tiles.cuh"

#include "params_grid_sm90.cuh"

#include <catch2/catch.hpp>

#include <random>
#include <vector>

using namespace attnc;

namespace {

constexpr int kConsumers = 2;

int tokensOf(const int (&extent)[3]) { return extent[0] * extent[1] * extent[2]; }

int floorDiv(int a, int b) { return a / b - (a % b < 0); }

/// Token `index` of as many before a grid, as dsl/SPEC.md has it.
void checkToken(const Token& token, int index, const int (&extent)[3], int before) {
  const int distance = index - before;
  CHECK(token.index == index);
  CHECK(token.on_grid == (distance >= 0 && distance < tokensOf(extent)));
  CHECK(token.at[0] == floorDiv(distance, extent[1] * extent[2]));
  CHECK(token.at[1] == floorDiv(distance, extent[2]) - floorDiv(distance, extent[1] * extent[2]) * extent[1]);
  CHECK(token.at[2] == distance - floorDiv(distance, extent[2]) * extent[2]);
}

template <class Query, class Key, int Split> void checkTiles(std::mt19937& random) {
  using Tiles = GridTiles<Query, Key, Split, kConsumers>;
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  ForwardGridBesideParamsSm90 p{};
  p.base.q_heads = 1;
  int boxes = 1;
  for (int axis = 0; axis < 3; ++axis) {
    p.q_extent[axis] = draw(1, 9), p.kv_extent[axis] = draw(1, 9);
    const int cta = Query::extent(axis) * (axis == Split ? kConsumers : 1);
    boxes *= p.q_tiles[axis] = (p.q_extent[axis] + cta - 1) / cta;
  }
  for (int run = 0; run < 2; ++run)
    p.q_beside[run] = draw(0, 3) * draw(0, 100), p.kv_beside[run] = draw(0, 3) * draw(0, 100);
  const int rows = kConsumers * 64;
  const int tiles = boxes + (p.q_beside[0] + rows - 1) / rows + (p.q_beside[1] + rows - 1) / rows;
  std::vector<int> queries(size_t(p.q_beside[0] + tokensOf(p.q_extent) + p.q_beside[1]), 0);
  for (int tile = 0; tile < tiles; ++tile) {
    typename Tiles::Plan plan{};
    HostCta::run(32, [&] {
      const auto mine = Tiles::plan(p, ModArgs{}, TilePlace{0, tile});
      if (threadIdx.x == 0) plan = mine;
    });
    REQUIRE(is_beside(plan.origin) == (tile >= boxes));
    for (int i = 0; i < kConsumers; ++i) {
      int origin[3] = {plan.origin[0], plan.origin[1], plan.origin[2]};
      Tiles::move_to(origin, i);
      for (int row = 0; row < 64; ++row) {
        if (is_beside(origin)) {
          const int run = run_of(origin), place = origin[2] + row;
          if (place >= p.q_beside[run]) continue;
          const Token q = token_beside(run, place, p.q_extent, p.q_beside[0]);
          checkToken(q, q.index, p.q_extent, p.q_beside[0]);
          ++queries.at(size_t(q.index));
        } else {
          int x[3];
          bool exists = true;
          for (int axis = 0; axis < 3; ++axis)
            x[axis] = origin[axis] + Query::coordinate(row, axis), exists = exists && x[axis] < p.q_extent[axis];
          if (!exists) continue;
          const Token q = token_at(x, p.q_extent, p.q_beside[0]);
          checkToken(q, q.index, p.q_extent, p.q_beside[0]);
          ++queries.at(size_t(q.index));
        }
      }
    }
    // Keys of the steps outside the grid: each once, in order.
    std::vector<int> keys;
    for (int step = 0; step < Tiles::steps_beside(p, plan.origin); ++step) {
      int origin[3];
      Tiles::step_beside(p, step, origin);
      REQUIRE(is_beside(origin));
      for (int column = 0; column < Key::kTokens; ++column) {
        if (origin[2] + column >= p.kv_beside[run_of(origin)]) continue;
        const Token kv = key_at(KeysOfRun(), p, origin, column / 8, column % 8);
        checkToken(kv, kv.index, p.kv_extent, p.kv_beside[0]);
        keys.push_back(kv.index);
      }
    }
    std::vector<int> want;
    for (int kv = 0; kv < p.kv_beside[0] + tokensOf(p.kv_extent) + p.kv_beside[1]; ++kv)
      if (kv < p.kv_beside[0] || kv >= p.kv_beside[0] + tokensOf(p.kv_extent)) want.push_back(kv);
    CHECK(keys == want);
    if (tile < boxes) continue;
    // And all boxes, for all consumers.
    for (int axis = 0; axis < 3; ++axis) {
      CHECK(plan.begin[axis] == 0);
      CHECK(plan.count[axis] == (p.kv_extent[axis] + Key::extent(axis) - 1) / Key::extent(axis));
    }
    for (int i = 0; i < kConsumers; ++i) {
      CHECK(plan.first[i] == 0);
      CHECK(plan.last[i] == plan.count[Split] - 1);
    }
  }
  CHECK(queries == std::vector<int>(queries.size(), 1)); // each query is a row of one tile
}

} // namespace

TEST_CASE("tiles and steps hold each token beside a grid once, and its coordinates are those of the language",
          "[grid]") {
  std::mt19937 random{5};
  for (int round = 0; round < 6; ++round) {
    checkTiles<BoxShape<1, 8, 8>, BoxShape<1, 8, 16>, 1>(random);
    checkTiles<BoxShape<4, 4, 4>, BoxShape<4, 4, 4>, 0>(random);
    checkTiles<BoxShape<1, 1, 64>, BoxShape<1, 1, 96>, 2>(random);
  }
}

TEST_CASE("elements behind the end of a run are dead, and no others", "[grid]") {
  ForwardGridBesideParamsSm90 p{};
  p.kv_extent[0] = p.kv_extent[1] = p.kv_extent[2] = 1;
  const int tokens[] = {77, 130};
  p.kv_beside[0] = tokens[0], p.kv_beside[1] = tokens[1];
  for (int run = 0; run < 2; ++run)
    for (int first = 0; first < tokens[run]; first += 64)
      for (int lane = 0; lane < 32; ++lane) {
        threadIdx.x = unsigned(lane);
        GridPlace place{};
        place.b = place.h = 0;
        place.head = {0, 0};
        place.exponents = Mod::Exponents(1.f, {1.f, 1.f, 0.f});
        for (Token& q : place.q) q = token_beside(0, 0, p.kv_extent, 0);
        Fragment<1, 64> x;
        for (int n = 0; n < 8; ++n)
          for (int e = 0; e < 2; ++e) x.at(0, n, e) = x.at(1, n, e) = 1.f;
        const float bias[2] = {};
        StepBias<Mod::Exponents, 2> step_bias(bias);
        apply_mod_beside_grid(x, p, ModArgs{}, place, {-1 - run, 0, first}, step_bias);
        int wrong = 0;
        for (int n = 0; n < 8; ++n)
          for (int e = 0; e < 2; ++e)
            for (int r = 0; r < 2; ++r)
              wrong += std::isinf(x.at(r, n, e)) != (first + 8 * n + lane % 4 * 2 + e >= tokens[run]);
        CHECK(wrong == 0);
      }
  threadIdx.x = 0;
}
