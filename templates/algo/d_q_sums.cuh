// Sums of dQ in fp32, in the order of fragments (BackwardParamsSm90::d_q_sums): a tile of kBlockM rows of Q is dealt to two
// warpgroups, by rows where it has 128, else by columns.
#pragma once

#include "attnc_config.cuh"

#include "tile/fragment.cuh"
#include "tile/shared_tile.cuh"

namespace attnc {

struct DqSums {
  static constexpr bool kByRows = kBlockM == 128;
  static_assert(kBlockM == 64 || kBlockM == 128, "a warpgroup holds 64 rows");
  static_assert(!kByRows || kHeadDimQk <= 64, "a warpgroup holds 64 columns");
  static constexpr int kColumns = kByRows ? computed_columns(kHeadDimQk) : 32 * ((kHeadDimQk + 63) / 64); // of a warpgroup
  using Part = Fragment<1, kColumns>;
  static constexpr int kPartFloats = 64 * kColumns, kPartBytes = 4 * kPartFloats;

  /// Where a warpgroup's part of a tile begins. Thread t of it holds floats 4 t .. 4 t + 3 of each 512: a group of 8 columns.
  ATTNC_DEVICE static float* part(float* sums, long long tile, int group) {
    return sums + (2 * tile + group) * kPartFloats;
  }
};

} // namespace attnc
