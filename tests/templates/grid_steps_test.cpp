// Tiles of keys, and steps over queries that see some of them (templates/algo/grid_steps.cuh), run on the host with
// tokens outside the grids: each pair of a query and a key that it sees lies in one step of one tile. If steps are
// ordered, tiles from the last one on have turns 0, 1, 2, ... at each cell. The host's mod lets all tokens outside a
// grid see and be seen.
#include "templates/host_cta.h"

#include "algo/grid_steps.cuh"

#include "params_grid_sm90.cuh"

#include <catch2/catch.hpp>

#include <random>
#include <utility>
#include <vector>

using namespace attnc;

namespace {

using Params = BackwardGridBesideParamsSm90;

int tokensOf(const int (&extent)[3]) { return extent[0] * extent[1] * extent[2]; }

/// The token at a position.
Token tokenOf(int index, const int (&extent)[3], const int (&beside)[2]) {
  const int place = index - beside[0];
  if (place < 0) return token_beside(0, index, extent, beside[0]);
  if (place >= tokensOf(extent)) return token_beside(1, place - tokensOf(extent), extent, beside[0]);
  const int x[3] = {place / (extent[1] * extent[2]), place / extent[2] % extent[1], place % extent[2]};
  return token_at(x, extent, beside[0]);
}

/// As the host's mod has it.
bool sees(const ModArgs& args, const Token& q, const Token& kv, const Params& p) {
  if (!q.on_grid || !kv.on_grid) return true;
  const GridRange keys = keys_of(args, {}, 0, 0, q, p.kv_extent);
  bool all = true;
  for (int axis = 0; axis < 3; ++axis) all = all && keys.begin[axis] <= kv.at[axis] && kv.at[axis] < keys.end[axis];
  return all;
}

template <class Query, class Own, bool Ordered> void checkSteps(std::mt19937& random, bool isLong = false) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Params p{};
  p.base.kv_batch = p.base.forward.batch = 2;
  p.base.forward.q_heads = 2, p.base.forward.kv_heads = 1, p.base.forward.group = 2;
  int boxes = 1;
  for (int axis = 0; axis < 3; ++axis) {
    p.q_extent[axis] = draw(1, 9), p.kv_extent[axis] = draw(1, 9);
    if (isLong) p.q_extent[axis] = p.kv_extent[axis] = axis == 2 ? draw(140, 150) : 1;
    boxes *= p.kv_tiles[axis] = (p.kv_extent[axis] + Own::extent(axis) - 1) / Own::extent(axis);
  }
  for (int run = 0; run < 2; ++run)
    p.q_beside[run] = draw(0, 3) * draw(0, 60), p.kv_beside[run] = draw(0, 3) * draw(0, 60);
  const int queries = p.q_beside[0] + tokensOf(p.q_extent) + p.q_beside[1];
  const int keys = p.kv_beside[0] + tokensOf(p.kv_extent) + p.kv_beside[1];
  const int tiles = boxes + tiles_beside(p.kv_beside, Own::kTokens);
  std::vector<int> pairs(size_t(2 * queries * keys)), owned(static_cast<size_t>(keys));
  const ModArgs args{.jumps = draw(1, 3)};
  std::vector<int> turns(size_t(2 * queries)); // by head and the cell's first query
  std::vector<int> cells(size_t(2 * queries), -1);
  int foreign = 0, wrongTurns = 0, wrongCells = 0;
  for (int tile = tiles - 1; tile >= 0; --tile) {
    const OwnPlace<Own> own(p, 1, tile); // of batch entry 1
    REQUIRE(is_beside(own.origin) == (tile >= boxes));
    std::vector<Token> ownKeys;
    for (int i = 0; i < Own::kTokens; ++i) {
      bool exists;
      const Token kv = find_token(Own(), own.origin, i, p.kv_extent, p.kv_beside, exists);
      ownKeys.push_back(kv);
      if (exists) ++owned.at(size_t(kv.index));
    }
    const int there = is_beside(own.origin) ? left_of_run(own.origin, p.kv_beside) : Own::kTokens;
    HostCta::run(32, [&] {
      for_each_step<Query, Ordered>(p, args, own, [&](const Mod::Head& head, int b, int h, const int(&at)[3]) {
        const int turn = Ordered ? turn_of<Query>(p, args, head, b, h, own, at) : 0;
        bool isThere;
        const int cell = h * queries + find_token(Query(), at, 0, p.q_extent, p.q_beside, isThere).index;
        if (Ordered && threadIdx.x == 0 && turn >= 0) wrongTurns += !isThere || turn != turns.at(size_t(cell))++;
        for (int i = int(threadIdx.x); i < Query::kTokens; i += 32) {
          bool exists;
          const Token q = find_token(Query(), at, i, p.q_extent, p.q_beside, exists);
          if (!exists) continue;
          const int before = std::exchange(cells.at(size_t(h * queries + q.index)), cell);
          wrongCells += Ordered && before >= 0 && before != cell;
          const GridRange range = is_beside(at) ? whole_grid(p.kv_extent) : keys_of(args, head, b, h, q, p.kv_extent);
          const unsigned seen = KeyBits<Own>::within(range, own.origin);
          foreign += b != 1 || head.h != h;
          for (int key = 0; key < std::min(there, Own::kTokens); ++key) {
            bool isSeen = true;
            for (int axis = 0; axis < 3; ++axis)
              isSeen = isSeen && seen >> (KeyBits<Own>::first(axis) + Own::coordinate(key, axis)) & 1;
            pairs.at(size_t((h * queries + q.index) * keys + ownKeys[size_t(key)].index)) += isSeen;
            wrongTurns += isSeen && turn < 0;
          }
        }
      });
    });
  }
  CHECK(foreign == 0);
  CHECK(wrongTurns == 0);
  CHECK(wrongCells == 0);
  CHECK(owned == std::vector<int>(size_t(keys), 1));
  int wrong = 0;
  for (int i = 0; i < 2 * queries * keys; ++i) {
    const Token q = tokenOf(i / keys % queries, p.q_extent, p.q_beside),
                kv = tokenOf(i % keys, p.kv_extent, p.kv_beside);
    wrong += pairs[size_t(i)] != int(sees(args, q, kv, p));
  }
  CHECK(wrong == 0);
}

} // namespace

TEST_CASE("each pair of a query and a key that it sees lies in one step of one tile of keys", "[grid]") {
  std::mt19937 random{3};
  for (int round = 0; round < 4; ++round) {
    checkSteps<BoxShape<1, 8, 8>, BoxShape<1, 8, 16>, false>(random);
    checkSteps<BoxShape<4, 4, 8>, BoxShape<8, 4, 4>, false>(random);
    checkSteps<BoxShape<1, 8, 8>, BoxShape<1, 8, 16>, true>(random);
    checkSteps<BoxShape<4, 4, 8>, BoxShape<8, 4, 4>, true>(random);
    checkSteps<BoxShape<2, 2, 2>, BoxShape<2, 2, 4>, true>(random);
    checkSteps<BoxShape<1, 1, 64>, BoxShape<2, 2, 4>, true>(random, /*isLong=*/true); // more than 32 tiles
  }
}
