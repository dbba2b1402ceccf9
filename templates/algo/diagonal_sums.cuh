// Sums along the diagonals, column - row, of 16 x 64 elements of a transposed fragment: rows along KV, columns along Q,
// packed as in PackedFragment. One warp, in registers; 16 shuffles.
//
// Lane 4 i + c holds rows i and i + 8; of each group n of 8 columns it holds columns 8 n + 2 c + e. Elements with the
// same i - 8 n lie on one diagonal, so groups are added up first:
//
//   V_i[8 k + 2 c + e], k = -1 .. 7:  rows i of group k and i + 8 of group k + 1
//   sum of diagonal d = sum over i of V_i[d + i]
//
// Then lanes whose i differs in one bit add up. Each keeps half of the sums, so every bit halves the number left:
//
//   bit 0   W[j] = V_even[j] + V_odd[j + 1]   even i keeps even j, odd i odd j
//   bit 1   X[j] = W_even[j] + W_odd[j + 2]   by the parity of k
//   bit 2   left to the caller
#pragma once

#include "tile/fragment.cuh"

namespace attnc {

/// Calls take(d, sum) for 6 sums per lane, from all lanes together. A diagonal's sum is the total over all calls with
/// its d, from both halves of a warp. Some d lie beyond the elements; their sums are 0. `part`: which 64 of the
/// fragment's columns.
template <class Element, int Columns, class Take>
ATTNC_DEVICE void sum_diagonals(const PackedFragment<Element, 1, Columns>& x, int part, Take take) {
  constexpr unsigned kAll = 0xffffffffu;
  constexpr int kGroups = 8, kBlocks = kGroups + 1;
  const int lane = threadIdx.x % 32, c = lane % 4;
  const bool odd = lane & 4, odd2 = lane & 8;
  float v[kBlocks + 1][2] = {}; // [k + 1][e]
#pragma unroll
  for (int n = 0; n < kGroups; ++n)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float y[2];
      unpack2<Element>(x.a[0][part * 4 + n / 2][n % 2 * 2 + r], y[0], y[1]);
#pragma unroll
      for (int e = 0; e < 2; ++e) v[n + 1 - r][e] += y[e];
    }

  // Odd i has V[j + 1] of the j that it keeps. For e = 0 the even lane has that j in the column before, perhaps of
  // block k - 1.
  float w[kBlocks + 1]; // for odd i: at 8 k + 2 c - 1
  const int from = odd ? (c > 0 ? lane - 5 : lane - 1) : lane + 4;
#pragma unroll
  for (int i = 0; i <= kBlocks; ++i) {
    const float before = i > 0 ? v[i - 1][1] : 0.f;
    w[i] = v[i][0] + __shfl_sync(kAll, !odd && c == 3 ? before : v[i][1], from);
  }

  // The lanes that add keep c of the even lane. W_odd[j + 2] lies one c further, perhaps in block k + 1.
  const auto at = [&](int i) { return i >= 0 && i <= kBlocks ? w[i] : 0.f; };
  const int from2 = lane / 4 * 4 + (odd2 ? (c + 3) % 4 - 8 : (c + 1) % 4 + 8);
  const int first = 2 * (odd2 ? (c + 3) % 4 : c) - odd - (lane & 16 ? 4 : 0);
#pragma unroll
  for (int k = -2; k <= kGroups; k += 2) { // also k + 1
    const float low = odd2 && c == 0 ? at(k + 2) : at(k + 1), high = odd2 && c == 0 ? at(k + 3) : at(k + 2);
    const float sum = (odd2 ? high : low) + __shfl_sync(kAll, odd2 ? low : high, from2);
    take(8 * (k + odd2) + first, sum);
  }
}

} // namespace attnc
