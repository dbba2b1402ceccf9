// Sums along diagonals of a tile in shared memory (templates/algo/diagonal_sums.cuh), run on the host beside plain sums.
#include "templates/host_cta.h"

#include "algo/diagonal_sums.cuh"

#include <catch2/catch.hpp>

#include <cstring>
#include <map>

using namespace attnc;

namespace {

std::vector<unsigned char> sharedBytes; // addresses count from its begin

/// As templates/ptx has them.
struct SharedOnHost {
  static void load_matrices(unsigned (&pairs)[4], unsigned from) {
    static unsigned rows[32];
    const unsigned lane = threadIdx.x;
    rows[lane] = from % 16 == 0 && from + 16 <= sharedBytes.size() ? from : 0; // 0: NaN
    HostCta::cta().wait();
    for (unsigned m = 0; m < 4; ++m) std::memcpy(&pairs[m], &sharedBytes[rows[8 * m + lane / 4] + lane % 4 * 4], 4);
    HostCta::cta().wait();
  }
  static float load(unsigned from) {
    float x;
    std::memcpy(&x, &sharedBytes.at(from), 4);
    return x;
  }
  template <int N> static void store(unsigned to, const float (&x)[N]) { std::memcpy(&sharedBytes.at(to), x, sizeof x); }
};

/// A small integer, which bf16 holds.
float tileElement(int row, int column, int round) {
  return float((row * 7 + column * 13 + row * column % 11 + round) % 31 - 15);
}

template <class Tile> void checkDiagonals() {
  using Sums = DiagonalSums<Tile, SharedOnHost>;
  constexpr unsigned kTile = 2048, kScratch = kTile + Tile::kBytes;
  sharedBytes.assign(kScratch + Sums::kScratchBytes, 0xff); // NaN
  for (int round = 0; round < 2; ++round) { // the second finds what the first left in scratch
    for (int row = 0; row < Tile::kRows; ++row)
      for (int column = 0; column < Tile::kColumns; ++column) {
        const int chunk = column / 8 % 8 ^ row % 8;
        const unsigned short bits = (unsigned short)(__float_as_uint(tileElement(row, column, round)) >> 16);
        const int at = column / 64 * Tile::kSlabBytes + row * 128 + chunk * 16 + column % 8 * 2;
        std::memcpy(&sharedBytes[kTile + unsigned(at)], &bits, 2);
      }
    std::map<int, float> got, want;
    HostCta::run(32, [&] {
      const Sums sums{kScratch, int(threadIdx.x)};
      if (round == 0) sums.initialise();
      __syncwarp();
      for (int part = 0; part < Sums::kParts; ++part) {
        sums.gather(Tile{kTile}, part);
        __syncwarp();
        sums.sum([&](int y, float sum) {
          std::lock_guard lock(HostCta::cta().mutex);
          got[64 * part + y - Sums::kFirst] += sum;
        });
        __syncwarp();
      }
    });
    for (int row = 0; row < Tile::kRows; ++row)
      for (int column = 0; column < Tile::kColumns; ++column) want[column - row] += tileElement(row, column, round);
    want[Tile::kColumns] = 0; // that of the last lane
    CHECK(got == want);
  }
}

} // namespace

TEST_CASE("a warp adds up a tile along its diagonals, each element once", "[captures]") {
  checkDiagonals<SwizzledTile<Bf16, 128, 64>>();
  checkDiagonals<SwizzledTile<Bf16, 128, 128>>();
}
