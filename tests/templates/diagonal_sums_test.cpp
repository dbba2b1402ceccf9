// Sums along diagonals of a fragment (templates/algo/diagonal_sums.cuh), run on the host against plain sums.
#include "templates/host_cta.h"

#include "algo/diagonal_sums.cuh"

#include <catch2/catch.hpp>

#include <map>

using namespace attnc;

namespace {

/// A small integer, which bf16 holds.
float elementAt(int row, int column) { return float((row * 7 + column * 13 + row * column % 11) % 31 - 15); }

template <int Columns> void checkDiagonals() {
  std::map<int, float> got, want;
  HostCta::run(32, [&] {
    const int lane = int(threadIdx.x);
    PackedFragment<Bf16, 1, Columns> x;
    for (int n = 0; n < Columns / 8; ++n)
      for (int r = 0; r < 2; ++r) {
        unsigned& pair = x.a[0][n / 2][n % 2 * 2 + r];
        pair = 0;
        for (int e = 0; e < 2; ++e)
          pair |= __float_as_uint(elementAt(lane / 4 + 8 * r, 8 * n + lane % 4 * 2 + e)) >> 16 << 16 * e;
      }
    for (int part = 0; part < Columns / 64; ++part)
      sum_diagonals(x, part, [&](int d, float sum) {
        if (sum != 0) got[64 * part + d] += sum;
      });
  });
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < Columns; ++column) want[column - row] += elementAt(row, column);
  std::erase_if(got, [](const auto& sum) { return sum.second == 0; });
  std::erase_if(want, [](const auto& sum) { return sum.second == 0; });
  CHECK(got == want);
}

} // namespace

TEST_CASE("a warp adds up a fragment along its diagonals, each element once", "[captures]") {
  checkDiagonals<64>();
  checkDiagonals<128>();
}
