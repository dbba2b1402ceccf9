// Turns of tiles of KV at a tile of Q (templates/algo/turns.cuh), run on the host against the walks that they number. A
// turn that disagrees with the walks would make a kernel wait for ever.
#include "templates/host_cta.h"

#include "algo/exponents.cuh"
#include "algo/turns.cuh"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>

using namespace attnc;

namespace {

/// Live columns of each row.
struct Edges {
  std::vector<int> begin, end;
};

template <bool BeginFalls, bool EndFalls> struct EdgeMod {
  static constexpr bool kHasMaskMod = true, kHasBounds = true;
  static constexpr bool kBeginFalls = BeginFalls, kEndFalls = EndFalls;
  struct Head {};
  static Head head(const Edges&, int, int) { return {}; }
  /// Returns the bounds of one row.
  static TileBounds bounds(const Edges& edges, const Head&, int, int, int q_idx, int) {
    const int begin = edges.begin[size_t(q_idx)], end = edges.end[size_t(q_idx)];
    return {begin, begin, end, end};
  }
};

class Draw {
public:
  int operator()(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

  /// An edge that moves in one direction, in small steps or in jumps, and may lie outside of [0, kv_len].
  std::vector<int> edge(int q_len, int kv_len, bool falls) {
    std::vector<int> edge;
    const int every = (*this)(1, 60), most = (*this)(0, 2) * every;
    int at = falls ? (*this)(0, kv_len + 200) : (*this)(-200, kv_len);
    for (int i = 0; i < q_len; ++i) {
      if ((*this)(1, every) == 1) at += falls ? -(*this)(0, most) : (*this)(0, most);
      edge.push_back(at);
    }
    if ((*this)(0, 4) == 0) // some first or last rows have no columns, or all
      for (int i = (*this)(0, q_len); i < q_len; ++i) edge[size_t(i)] = falls ? -2000000000 : 2000000000;
    return edge;
  }

private:
  std::mt19937 random{5};
};

/// Each tile of KV takes the turn behind those that were there before, at each tile of Q that its walk leads to.
template <class M, int Size, bool Lists, class Args>
void checkTurns(const BackwardParams& p, const Args& args, int b = 0, int h = 0, const unsigned* visits = nullptr) {
  struct Visit {
    int q_start, kv_start, turn;
  };
  std::vector<Visit> all;
  const int q_len = p.forward.q_len, kv_len = p.forward.kv_len;
  HostCta::run(32, [&] {
    for (int start = 0; start < kv_len; start += kBlockN) {
      const auto walk = walk_q<M, Size, Lists>(p, args, b, h, start, std::min(start + kBlockN, kv_len));
      if (threadIdx.x == 13)
        for (int i = 0; i < walk.count; ++i) all.push_back({walk.at(i).start, start, -1});
    }
    __syncwarp();
    for (size_t i = 0; i < all.size(); ++i) { // all lanes together
      if (all[i].q_start >= q_len) continue;
      const int turn = turn_of<M, Size, Lists>(p, p, visits, args, {}, b, h, all[i].q_start, all[i].kv_start);
      if (threadIdx.x == 0) all[i].turn = turn;
    }
  });
  std::vector<int> taken(size_t((q_len + Size - 1) / Size), 0);
  for (const Visit& visit : all) {
    if (Lists && visit.q_start >= q_len) continue; // a listed block may reach past the end
    REQUIRE(visit.q_start < q_len);
    REQUIRE(visit.turn == taken[size_t(visit.q_start / Size)]++);
  }
}

/// All lanes find the rows that the edges themselves say.
template <class M> void checkRows(const Edges& edges, int q_len, int kv_begin, int kv_end) {
  TileBounds found[32];
  HostCta::run(32, [&] { found[threadIdx.x] = q_bounds<M>(edges, {}, 0, 0, kv_begin, kv_end, q_len); });
  int live = 0, full = 0, first_live = 0, first_full = 0; // rows are intervals
  for (int row = q_len; row-- > 0;) {
    const int begin = edges.begin[size_t(row)], end = edges.end[size_t(row)];
    if (end > kv_begin && begin < kv_end) ++live, first_live = row;
    if (end >= kv_end && begin <= kv_begin) ++full, first_full = row;
  }
  for (const TileBounds& of : found) {
    REQUIRE(std::max(of.end - of.begin, 0) == live);
    REQUIRE(std::max(of.full_end - of.full_begin, 0) == full);
    if (live) REQUIRE(of.begin == first_live);
    if (full) REQUIRE(of.full_begin == first_full);
  }
}

template <bool BeginFalls, bool EndFalls> void checkBounds(Draw& draw) {
  for (int trial = 0; trial < 25; ++trial) {
    BackwardParams p{};
    p.forward.q_len = draw(1, 400);
    p.forward.kv_len = draw(1, 700);
    const Edges edges{draw.edge(p.forward.q_len, p.forward.kv_len, BeginFalls),
                      draw.edge(p.forward.q_len, p.forward.kv_len, EndFalls)};
    INFO(BeginFalls << EndFalls << ", " << p.forward.q_len << " x " << p.forward.kv_len);
    checkTurns<EdgeMod<BeginFalls, EndFalls>, 32, false>(p, edges);
    checkTurns<EdgeMod<BeginFalls, EndFalls>, 64, false>(p, edges);
    const int kv_begin = draw(0, p.forward.kv_len - 1), kv_end = draw(kv_begin + 1, p.forward.kv_len);
    checkRows<EdgeMod<BeginFalls, EndFalls>>(edges, p.forward.q_len, kv_begin, kv_end);
  }
}

} // namespace

TEST_CASE("a warp finds the rows that see a range of columns", "[walk]") {
  Draw draw;
  for (int q_len : {0, 1, 2, 8, 9, 10, 71, 72, 73, 8192, 100'000})
    for (int trial = 0; trial < 6; ++trial) {
      const int kv_len = draw(1, 3000), kv_begin = draw(0, kv_len - 1), kv_end = draw(kv_begin + 1, kv_len);
      INFO(q_len << " rows, columns " << kv_begin << " to " << kv_end);
      const Edges rising{draw.edge(q_len, kv_len, false), draw.edge(q_len, kv_len, false)};
      const Edges falling{draw.edge(q_len, kv_len, true), draw.edge(q_len, kv_len, true)};
      checkRows<EdgeMod<false, false>>(rising, q_len, kv_begin, kv_end);
      checkRows<EdgeMod<true, true>>(falling, q_len, kv_begin, kv_end);
      checkRows<EdgeMod<false, true>>({rising.begin, falling.end}, q_len, kv_begin, kv_end);
      checkRows<EdgeMod<true, false>>({falling.begin, rising.end}, q_len, kv_begin, kv_end);
    }
}

TEST_CASE("tiles of KV take their turns at a tile of Q as bounds lead them there", "[walk]") {
  Draw draw;
  checkBounds<false, false>(draw);
  checkBounds<false, true>(draw);
  checkBounds<true, false>(draw);
  checkBounds<true, true>(draw);
}

TEST_CASE("tiles of KV take their turns at a tile of Q as lists by column lead them there", "[walk]") {
  Draw draw;
  constexpr int kTrials = 12;
  for (int trial = 0; trial < kTrials; ++trial) {
    BackwardParams p{};
    // More blocks of KV than a warp has words of bits, and more blocks of Q than a warp has lanes.
    const bool manyKeys = trial == kTrials - 1, manyQueries = trial == kTrials - 2;
    const int more = manyKeys || manyQueries ? 0 : 2, q_block = 64 << draw(0, more), kv_block = 64 << draw(0, more);
    p.forward.q_len = manyQueries ? 64 * 120 : draw(1, manyKeys ? 64 : 700);
    p.forward.kv_len = manyKeys ? 64 * 1100 : manyQueries ? 128 : draw(1, 700);
    const int rows = (p.forward.q_len + q_block - 1) / q_block, columns = (p.forward.kv_len + kv_block - 1) / kv_block;
    const int most = manyKeys ? 1 : 2, batches = draw(1, most), heads = draw(1, most), lists = batches * heads;
    // [partial or full][block], for each row and column of blocks; from the last block on: the order is free.
    std::vector<int> rowCount[2], rowIndex[2], columnCount[2], columnIndex[2];
    const int longest = rows + 2; // of lists by column, with what names no block
    for (int kind : {0, 1}) {
      rowCount[kind].resize(size_t(lists * rows));
      rowIndex[kind].resize(size_t(lists * rows * columns));
      columnCount[kind].resize(size_t(lists * columns));
      columnIndex[kind].resize(size_t(lists * columns * longest));
    }
    for (int list = 0; list < lists; ++list)
      for (int column = columns; column-- > 0;) {
        const auto add = [&](int kind, int row) {
          const size_t at = size_t(list * columns + column);
          columnIndex[kind][at * size_t(longest) + size_t(columnCount[kind][at]++)] = row;
        };
        for (int kind : {0, 1})
          if (draw(0, 9) == 0) add(kind, rows + draw(0, 3));
        for (int row = rows; row-- > 0;) {
          const int kind = draw(0, 2);
          if (kind == 2) continue;
          add(kind, row);
          const size_t at = size_t(list * rows + row);
          if (draw(0, 9)) // lists by row may lack some
            rowIndex[kind][at * size_t(columns) + size_t(rowCount[kind][at]++)] = column;
        }
      }
    p.forward.lists = {rowCount[0].data(),
                       rowIndex[0].data(),
                       rowCount[1].data(),
                       rowIndex[1].data(),
                       0,
                       0,
                       columns,
                       q_block,
                       kv_block};
    p.columns = {columnCount[0].data(),
                 columnIndex[0].data(),
                 columnCount[1].data(),
                 columnIndex[1].data(),
                 0,
                 0,
                 longest,
                 q_block,
                 kv_block};
    for (auto [of, own] : {std::pair(&p.forward.lists, rows), {&p.columns, columns}}) {
      if (heads > 1) of->head_stride = own;
      if (batches > 1) of->batch_stride = heads * own;
    }
    INFO(p.forward.q_len << " x " << p.forward.kv_len << ", blocks " << q_block << " x " << kv_block << ", lists "
                         << batches << " x " << heads);
    const size_t words = size_t(lists * rows * words_of_visits(p.forward.kv_len, p.forward.lists));
    std::vector<unsigned> visits(words + size_t(4 * words_of_visits(p.forward.kv_len, p.forward.lists)));
    HostCta::run(32, [&] {
      for (int list = 0; list < lists; ++list)
        for (int block = 0; block < columns; ++block) mark_visits<EdgeMod<false, false>>(p, visits.data(), list, block);
    });
    REQUIRE(std::count(visits.begin() + std::ptrdiff_t(words), visits.end(), 0u) ==
            4 * words_of_visits(p.forward.kv_len, p.forward.lists));
    for (int b = 0; b < batches; ++b)
      for (int h = 0; h < heads; ++h) checkTurns<EdgeMod<false, false>, 64, true>(p, Edges{}, b, h, visits.data());
  }
}
