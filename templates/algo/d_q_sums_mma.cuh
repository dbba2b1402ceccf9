// fp32 sums of dQ in fragment order. The warps of a CTA share a tile of kBlockM rows of Q; each has a part of 32 rows
// and kColumns columns, and parts are numbered row by row.
#pragma once

#include "attnc_config.cuh"

#include "ptx/red.cuh"
#include "tile/fragment.cuh"
#include "tile/shared_tile.cuh"

namespace attnc::mma {

struct DqSums {
  static constexpr int kRows = 32; // of a warp
  static_assert(kBlockM % kRows == 0 && kWarps % (kBlockM / kRows) == 0, "warps share a tile evenly");
  static constexpr int kSplit = kWarps / (kBlockM / kRows); // warps that share rows
  static constexpr int kColumns = round_up((computed_columns(kHeadDimQk) + kSplit - 1) / kSplit, 16);
  using Part = Fragment<kRows / 16, kColumns>;
  static constexpr int kTileFloats = kWarps * kRows * kColumns;

  int warp;
  ATTNC_DEVICE int first_row() const { return warp / kSplit * kRows; }
  ATTNC_DEVICE int first_column() const { return warp % kSplit * kColumns; }

  /// Distance between the four floats of fragment (m, n) that a lane holds. Chosen so that a warp adds to neighbouring
  /// addresses: four floats per lane if one instruction adds them (sm_90), else one.
#if __CUDA_ARCH__ >= 900
  static constexpr int kApart = 1;
#else
  static constexpr int kApart = 32;
#endif
  ATTNC_DEVICE float* at(float* sums, long long tile, int m, int n) const {
    const int part = (warp * Part::kRowGroups + m) * Part::kGroups + n;
    return sums + tile * kTileFloats + part * 128 + int(threadIdx.x) % 32 * (kApart == 1 ? 4 : 1);
  }

  ATTNC_DEVICE void add(float* sums, long long tile, const Part& x) const {
#pragma unroll
    for (int m = 0; m < Part::kRowGroups; ++m)
#pragma unroll
      for (int n = 0; n < Part::kGroups; ++n) {
        float* to = at(sums, tile, m, n);
        if constexpr (kApart == 1) {
          ptx::red_add4(to, x.x[m][n][0], x.x[m][n][1], x.x[m][n][2], x.x[m][n][3]);
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) ptx::red_add(to + kApart * i, x.x[m][n][i]);
        }
      }
  }

  ATTNC_DEVICE void load(Part& x, float* sums, long long tile) const {
#pragma unroll
    for (int m = 0; m < Part::kRowGroups; ++m)
#pragma unroll
      for (int n = 0; n < Part::kGroups; ++n) {
        const float* from = at(sums, tile, m, n);
        if constexpr (kApart == 1) {
          const float4 four = *(const float4*)from;
          x.x[m][n][0] = four.x, x.x[m][n][1] = four.y, x.x[m][n][2] = four.z, x.x[m][n][3] = four.w;
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) x.x[m][n][i] = from[kApart * i];
        }
      }
  }
};

} // namespace attnc::mma
