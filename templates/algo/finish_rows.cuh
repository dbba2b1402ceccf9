// Converts dQ from fp32 sums that lie row by row, times the softmax scale. A CTA takes kBlockM rows of Q of a head; a
// thread takes some columns of a row at a time.
//
// Sums says how a row lies:
//   kFloats, kGroup   floats of a row; columns that a thread takes, a multiple of 8
//   place(c)          where column c of a group lies in it
//   kAligned          rows of dQ are aligned to 16 bytes; otherwise ForwardParams::vectors says so
#pragma once

#include "attnc_mod.cuh"

#include "algo/sequence.cuh"
#include "tile/element.cuh"

namespace attnc {

template <class Sums, int Threads> ATTNC_DEVICE void finish_rows(const BackwardParams& p, const float* d_q_sums) {
  constexpr int kGroups = (kHeadDimQk + Sums::kGroup - 1) / Sums::kGroup;
  const ForwardParams& f = p.forward;
  const int q_tiles = (f.q_len + kBlockM - 1) / kBlockM, head = blockIdx.x / q_tiles; // over all batches
  const int q_start = blockIdx.x % q_tiles * kBlockM, rows = min(kBlockM, f.q_len - q_start);
  const Strides& stride = p.d_q_stride;
  Element* const to = (Element*)p.d_q + head / f.q_heads * stride.batch + head % f.q_heads * stride.head;
  for (int i = threadIdx.x; i < rows * kGroups; i += Threads) {
    const int row = q_start + i / kGroups, column = i % kGroups * Sums::kGroup;
    const float4* const from = (const float4*)(d_q_sums + ((long long)head * f.q_len + row) * Sums::kFloats + column);
    float sums[Sums::kGroup];
#pragma unroll
    for (int four = 0; four < Sums::kGroup / 4; ++four) {
      const float4 x = from[four];
      sums[4 * four] = x.x, sums[4 * four + 1] = x.y, sums[4 * four + 2] = x.z, sums[4 * four + 3] = x.w;
    }
    const auto at = [&](int c) { return sums[Sums::place(c)] * f.scale; };
    Element* const line = to + row * stride.row + column;
#pragma unroll
    for (int c = 0; c < Sums::kGroup; c += 8) {
      if (kHeadDimQk % Sums::kGroup != 0 && column + c >= kHeadDimQk) continue;
      if (Sums::kAligned || f.vectors) {
        *(uint4*)(line + c) = {pack2<Element>(at(c), at(c + 1)), pack2<Element>(at(c + 2), at(c + 3)),
                               pack2<Element>(at(c + 4), at(c + 5)), pack2<Element>(at(c + 6), at(c + 7))};
      } else {
#pragma unroll
        for (int d = 0; d < 8; ++d) line[c + d] = from_float<Element>(at(c + d));
      }
    }
  }
}

} // namespace attnc
