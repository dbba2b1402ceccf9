// The role between a producer and consumers that turns tiles of V of E4M3: tile/transposed_v.cuh.
#pragma once

#include "ptx/tma.cuh"
#include "tile/ring.cuh"
#include "tile/transposed_v.cuh"

namespace attnc {

/// Two warps, each with an object. Loaded: a ring with messages of how many rows of V live, and whether there is a V.
/// Warps fill a slot of Turned for each slot of Loaded. MayEnd: whether some rows may not live.
template <class Memory, class Loaded, class Turned, bool MayEnd> struct Transposer {
  unsigned shared;
  int warp; // 0 or 1
  Ring<Memory, Loaded> loaded = {shared};
  Ring<Memory, Turned> turned = {shared};

  ATTNC_DEVICE void run() {
    while (true) {
      loaded.wait();
      int message[2];
      loaded.read_message(message);
      const auto [live, valid] = message;
      if (!valid) break;
      turned.acquire();
      if (MayEnd && live < Loaded::Tile::kRows)
        wgmma::transpose_v<true>(turned.tile(), loaded.tile(), live, warp);
      else
        wgmma::transpose_v<false>(turned.tile(), loaded.tile(), live, warp);
      ptx::fence_proxy_async();
      loaded.release();
      turned.commit();
      loaded.advance();
      turned.advance();
    }
  }
};

} // namespace attnc
