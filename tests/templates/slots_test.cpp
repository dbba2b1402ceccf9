// Slots of tiles of ragged batches (templates/algo/sequence.cuh), run on the host against the rows that they must
// cover.
#include "templates/host_cta.h"

#include "algo/sequence.cuh"

#include <catch2/catch.hpp>

#include <random>
#include <set>
#include <vector>

using namespace attnc;

namespace {

struct Starts {
  std::vector<int> q, kv; ///< of each sequence, and the end of the last one
};

struct RaggedMod {
  static constexpr bool kIsRagged = true, kHasLengths = true;
  struct Head {
    int b;
  };
  static Head head(const Starts&, int b, int) { return {b}; }
  /// As the pass `sequences` computes it: wrapped around, then not below 0.
  static int lengthOf(const std::vector<int>& starts, Head head) {
    return std::max(int(unsigned(starts[size_t(head.b) + 1]) - unsigned(starts[size_t(head.b)])), 0);
  }
  static int q_start(const Starts& starts, Head head) { return starts.q[size_t(head.b)]; }
  static int q_length(const Starts& starts, Head head) { return lengthOf(starts.q, head); }
  static int kv_start(const Starts& starts, Head head) { return starts.kv[size_t(head.b)]; }
  static int kv_length(const Starts& starts, Head head) { return lengthOf(starts.kv, head); }
};

constexpr int kSize = 16, kHeads = 3;

/// Draws the starts of 1 to 20 sequences, some of them empty. There may be rows before the first.
std::vector<int> drawStarts(std::mt19937& random, int count) {
  std::vector<int> starts = {int(random() % 40)};
  for (int b = 0; b < count; ++b)
    starts.push_back(starts.back() + (random() % 3 ? int(random() % (random() % 2 ? 5 : 100)) : 0));
  return starts;
}

} // namespace

TEST_CASE("slots of a ragged batch cover each row of each sequence once", "[slots]") {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const int count = 1 + int(random() % 20);
    const Starts starts{drawStarts(random, count), drawStarts(random, count)};
    ForwardParams p{};
    p.batch = count;
    p.q_heads = kHeads;
    p.kv_heads = 1;
    p.q_len = p.kv_len = 1 << 20;
    p.rows = {starts.q.back() + int(random() % 30), starts.kv.back() + int(random() % 30)};
    std::vector<int> seen(size_t(p.rows.q), 0), seenKv(size_t(p.rows.kv), 0);
    std::set<int> places;
    const int tiles = kHeads * q_tiles_of<RaggedMod, kSize>(p);
    for (int index = 0; index < tiles; ++index) {
      const HeadTile tile = q_tile_at<RaggedMod, kSize>(p, starts, index);
      const int length = q_length_of<RaggedMod>(p, starts, tile.b);
      if (!has_rows<RaggedMod>(tile.start, length)) continue;
      REQUIRE(tile.start % kSize == 0);
      const int place = head_tile_of<RaggedMod, kSize>(p, starts, tile.b, tile.h, tile.start);
      CHECK(place == index);
      CHECK(places.insert(place).second);
      for (int row = tile.start; row < std::min(tile.start + kSize, length); ++row)
        ++seen[size_t(q_row_of<RaggedMod>(starts, tile.b, row))];
    }
    for (int index = 0; index < slots_of<kSize>(p.rows.kv, count); ++index) {
      const HeadTile tile = kv_tile_at<RaggedMod, kSize>(p, starts, index);
      const int length = kv_length_of<RaggedMod>(p, starts, tile.b, 0);
      for (int row = tile.start; has_rows<RaggedMod>(tile.start, length) && row < std::min(tile.start + kSize, length);
           ++row)
        ++seenKv[size_t(kv_row_of<RaggedMod>(starts, tile.b, row))];
    }
    for (int row = 0; row < p.rows.q; ++row)
      REQUIRE(seen[size_t(row)] == (row >= starts.q.front() && row < starts.q.back() ? kHeads : 0));
    for (int row = 0; row < p.rows.kv; ++row)
      REQUIRE(seenKv[size_t(row)] == (row >= starts.kv.front() && row < starts.kv.back() ? 1 : 0));
    for (int row = 0; row < p.rows.q; ++row) {
      const RaggedRow at = ragged_q_row<RaggedMod>(p, starts, 2ll * p.rows.q + row);
      REQUIRE(at.exists == (seen[size_t(row)] > 0));
      if (at.exists) REQUIRE(q_row_of<RaggedMod>(starts, at.b, at.row) == row);
      CHECK(at.h == 2);
    }
  }
}

TEST_CASE("tiles of a batch are counted head by head; from the end, the last rows of a head come first", "[slots]") {
  struct DenseMod {};
  ForwardParams p{};
  p.batch = 2, p.q_heads = 3, p.kv_heads = 2, p.q_len = 2 * kSize + 1, p.kv_len = kSize;
  int index = 0;
  for (int b = 0; b < p.batch; ++b)
    for (int h = 0; h < p.q_heads; ++h)
      for (int start = 0; start < p.q_len; start += kSize, ++index) {
        const auto is = [&](HeadTile tile, int at) { return tile.b == b && tile.h == h && tile.start == at; };
        CHECK(is(q_tile_at<DenseMod, kSize>(p, 0, index), start));
        CHECK(is(q_tile_from_end<DenseMod, kSize>(p, 0, index), 2 * kSize - start));
        CHECK(head_tile_of<DenseMod, kSize>(p, 0, b, h, start) == index);
      }
  CHECK(index == q_tiles_of<DenseMod, kSize>(p) * p.batch * p.q_heads);
  for (int i = 0; i < p.batch * p.kv_heads; ++i) {
    const HeadTile tile = kv_tile_at<DenseMod, kSize>(p, 0, i);
    CHECK((tile.b == i / 2 && tile.h == i % 2 && tile.start == 0));
  }
}

TEST_CASE("rows and tiles of cumulative lengths that lie are those of the tensors", "[slots]") {
  std::mt19937 random(5);
  const auto drawLies = [&](int count) {
    std::vector<int> lies;
    for (int b = 0; b <= count; ++b) lies.push_back(int(random() % 600) - 200);
    lies[size_t(random() % lies.size())] = random() % 2 ? INT32_MAX : INT32_MIN;
    return lies;
  };
  for (int round = 0; round < 2000; ++round) {
    const int count = 1 + int(random() % 8);
    const Starts lies{drawLies(count), drawLies(count)};
    ForwardParams p{};
    p.batch = count, p.q_heads = kHeads, p.kv_heads = 1;
    p.rows = {int(random() % 200), int(random() % 200)};
    p.q_len = p.rows.q, p.kv_len = p.rows.kv;
    p.q_stride.row = p.k_stride.row = 1;
    const char memory[200] = {};
    p.q = p.k = memory;
    const int tiles = kHeads * q_tiles_of<RaggedMod, kSize>(p);
    for (int b = 0; b < count; ++b) {
      const ForwardParams own = params_of<RaggedMod, char>(p, lies, b);
      const auto first = int((const char*)own.q - (const char*)p.q),
                 firstKv = int((const char*)own.k - (const char*)p.k);
      REQUIRE((first >= 0 && firstKv >= 0));
      REQUIRE((first + std::max(own.q_len, 0) <= p.rows.q && firstKv + std::max(own.kv_len, 0) <= p.rows.kv));
      for (int start = 0; start < own.q_len; start += kSize) {
        const int place = head_tile_of<RaggedMod, kSize>(p, lies, b, kHeads - 1, start);
        REQUIRE((place >= 0 && place < tiles));
      }
    }
  }
}
