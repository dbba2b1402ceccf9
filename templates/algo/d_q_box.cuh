// dQ of a step on its way to sums that lie as q does. TMA adds it box by box, from slabs of 32 columns in shared memory
// with the 128-byte swizzle.
#pragma once

#include "algo/d_q_sums.cuh"

namespace attnc {

/// A warpgroup's part of a step's dQ (DqSums): 64 rows of all columns, or all rows of half of the columns.
template <class QueryBox> struct DqBox : DqSums {
  static constexpr int kSlabs = (kColumns + 31) / 32, kSlabBytes = 64 * 128, kPartBytes = kSlabs * kSlabBytes,
                       kAlign = 1024;
  /// The axis along which the rows of the two warpgroups lie side by side.
  static constexpr int kRowsAxis = QueryBox::extent(0) > 1 ? 0 : QueryBox::extent(1) > 1 ? 1 : 2;
  static_assert(!kByRows || QueryBox::extent(kRowsAxis) % 2 == 0, "half of the rows are a box, too");

  ATTNC_DEVICE static void write(unsigned to, const Part& x) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      const int chunk = (n % 4 * 2 + lane % 4 / 2) ^ lane / 4; // of 16 bytes; row lane / 4 + 8 has the same swizzle
      const unsigned at = to + n / 4 * kSlabBytes + (16 * warp + lane / 4) * 128 + chunk * 16 + lane % 2 * 8;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float pair[2] = {x.at(r, n, 0), x.at(r, n, 1)};
        ptx::st_shared(at + r * 8 * 128, pair);
      }
    }
  }
};

} // namespace attnc
