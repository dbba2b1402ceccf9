// fp32 sums of dQ in fragment order (BackwardParamsSm90::d_q_sums). Two warpgroups share a tile of kBlockM rows of Q:
// by rows if kBlockM is 128, else by columns.
#pragma once

#include "attnc_config.cuh"

#include "ptx/shared_memory.cuh"
#include "tile/fragment.cuh"
#include "tile/shared_tile.cuh"

namespace attnc {

struct DqSums {
  static constexpr bool kByRows = kBlockM == 128;
  static_assert(kBlockM == 64 || kBlockM == 128, "a warpgroup holds 64 rows");
  static_assert(!kByRows || kHeadDimQk <= 64, "a warpgroup holds 64 columns");
  static constexpr int kColumns = kByRows ? computed_columns(kHeadDimQk) : 32 * ((kHeadDimQk + 63) / 64); // of a group
  using Part = Fragment<1, kColumns>;
  static constexpr int kPartFloats = 64 * kColumns, kPartBytes = 4 * kPartFloats, kAlign = 128;

  /// Returns where a warpgroup's part of a tile begins. Thread t holds floats 4 t .. 4 t + 3 of each 512, which are a
  /// group of 8 columns.
  ATTNC_DEVICE static float* part(float* sums, long long tile, int group) {
    return sums + (2 * tile + group) * kPartFloats;
  }
  /// Writes a warpgroup's part, or some of its columns, to shared memory, in this order.
  template <int Columns> ATTNC_DEVICE static void write(unsigned to, const Fragment<1, Columns>& x) {
#pragma unroll
    for (int n = 0; n < Columns / 8; ++n) ptx::st_shared(to + threadIdx.x % 128 * 16 + 2048 * n, x.x[0][n]);
  }
};

} // namespace attnc
