// Rows of Q as f16, for products with K that was fp8: each is divided by a power of two that brings its largest element
// into [1, 2), so that bf16 fits, too. What is lost is below 2^-25 of that element.
#pragma once

#include "algo/packed_rows.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/gemm_e4m3.cuh"

namespace attnc {

/// The power of two, 1 for a row of zeros or with infinities. `largest`: the greatest magnitude.
ATTNC_DEVICE float power_below(float largest) {
  const unsigned exponent = __float_as_uint(largest) & 0x7f800000u;
  return exponent == 0 || exponent == 0x7f800000u ? 1.f : __uint_as_float(exponent);
}

/// The tile's rows of Q, zero past their end, and by row in `factors` what they were divided by. Columns are in the order
/// of e4m3::q_offset(). Whole CTA; there when it has synchronised.
template <int Threads, class Tile, class RowOf>
ATTNC_DEVICE void load_scaled_q(Tile to, float* factors, int rows, bool vectors, RowOf row_of) {
  constexpr int kQuads = kHeadDimQk / 4, kRounds = (Tile::kColumns / 4 + 31) / 32;
  const int lane = threadIdx.x % 32;
  for (int row = threadIdx.x / 32; row < Tile::kRows; row += Threads / 32) {
    const Element* from = row_of(row);
    float x[kRounds][4] = {}, largest = 0.f;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int quad = round * 32 + lane;
      if (row >= rows || quad >= kQuads) continue;
      if (vectors) {
        const uint2 words = *(const uint2*)(from + 4 * quad);
        unpack2<Element>(words.x, x[round][0], x[round][1]);
        unpack2<Element>(words.y, x[round][2], x[round][3]);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) x[round][i] = to_float(from[4 * quad + i]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) largest = fmaxf(largest, fabsf(x[round][i]));
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    const float power = power_below(largest), inverse = 1.f / power;
    if (lane == 0) factors[row] = power;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int quad = round * 32 + lane;
      if (quad >= Tile::kColumns / 4) continue;
      const int2 at = e4m3::q_offset(quad);
      ptx::st_shared(to.row(row) + at.x, int(pack2<F16>(x[round][0] * inverse, x[round][1] * inverse)));
      ptx::st_shared(to.row(row) + at.y, int(pack2<F16>(x[round][2] * inverse, x[round][3] * inverse)));
    }
  }
}

} // namespace attnc
