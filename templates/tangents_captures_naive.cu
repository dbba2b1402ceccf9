// Tangents of gradients of captured tensors and scalars, short and obviously right: the GPU oracle. Any sm, fp32.
//
//   d_capture.[offset] += value(s, g, s., g.)    for each place where the mod reads a capture, and each round of it
//
// The value is the tangent of the place's gradient; algo/tangents.cuh has the rest. Runs after attnc_tangent_rows of
// tangents_naive.cu. A warp owns a row of q; a lane takes one of 32 columns at a time; each element of attention is a
// separate add to memory.
//
// No shared memory. Grid: rows / 8 in one dimension, 256 threads.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/capture_sums.cuh"
#include "algo/tangents.cuh"

namespace attnc::naive {

using namespace pairs;

extern "C" __global__ void __launch_bounds__(32 * kRowsOfCta, 1)
    attnc_tangent_captures(const __grid_constant__ TangentCaptureParams p, const __grid_constant__ ModArgs args) {
  const TangentParams& t = p.tangents;
  at_query_row(t.backward.forward, args, [&](const QueryRow& row) {
    at_each_chunk(t, args, row, [&](int, int kv_idx, const Moving& pair) {
      if (!pair.lives) return;
      const MovingGradient mine(t, args, row, kv_idx, pair);
      const Mod::Col col = Mod::col(args, row.head, row.b, row.h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
      const Coord at = {row.b, row.h, row.position, kv_idx};
      Mod::gradients([&](auto gradient) { // SEAM(gradients)
        using Gradient = decltype(gradient);
        for (int round = 0; round < Gradient::kRounds; ++round)
          add_to(
              p.sums[Gradient::kCapture], Gradient::offset(args, row.head, row.row, col, at, round),
              Gradient::value(args, row.head, row.row, col, at, pair.product, mine.g, pair.t_product, mine.t_g, round));
      });
    });
  });
}

} // namespace attnc::naive
