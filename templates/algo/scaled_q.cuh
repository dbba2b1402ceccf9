// Rows of Q as f16, for products with fp8 K. Each row is divided by a power of two that brings its largest element into
// [1, 2), so that bf16 values fit as well. The loss is below 2^-25 of that element.
#pragma once

#include "algo/scaled.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/gemm_e4m3.cuh"

namespace attnc {

/// Converts a tile of Q in shared memory to f16 in place, with columns in the order of e4m3::q_offset(). `factors`, in
/// shared memory, gets each row's divisor. Called by a whole CTA of `Threads`; the result is ready after its next
/// barrier.
template <int Threads, class E, int Rows, int Columns>
ATTNC_DEVICE void scale_q(PaddedTile<E, Rows, Columns> tile, float* factors) {
  constexpr int kQuads = PaddedTile<E, Rows, Columns>::kColumns / 4, kRounds = (kQuads + 31) / 32;
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int row = threadIdx.x / 32; row < Rows; row += Threads / 32) { // one row per warp
    float x[kRounds][4] = {}, largest = 0.f;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      if (round * 32 + lane >= kQuads) continue;
      int words[2];
      ptx::ld_shared(words, tile.row(row) + (round * 32 + lane) * 8);
      unpack2<E>(unsigned(words[0]), x[round][0], x[round][1]);
      unpack2<E>(unsigned(words[1]), x[round][2], x[round][3]);
#pragma unroll
      for (int i = 0; i < 4; ++i) largest = fmaxf(largest, fabsf(x[round][i]));
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) // after this, all lanes have read
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    const float power = power_below(largest), inverse = 1.f / power;
    if (lane == 0) factors[row] = power;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      if (round * 32 + lane >= kQuads) continue;
      const int2 at = e4m3::q_offset(round * 32 + lane);
      ptx::st_shared(tile.row(row) + at.x, int(pack2<F16>(x[round][0] * inverse, x[round][1] * inverse)));
      ptx::st_shared(tile.row(row) + at.y, int(pack2<F16>(x[round][2] * inverse, x[round][3] * inverse)));
    }
  }
}

} // namespace attnc
