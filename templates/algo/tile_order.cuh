// The tile scheduler: which tile of Q rows a persistent CTA works on next.
#pragma once

#include "mod/contract.cuh"
#include "params_sm90.cuh"

namespace attnc {

struct TilePlace {
  int head;   // b * q_heads + h
  int q_tile; // index of the tile among the head's
};

/// Returns the tile at an index of the order that params_sm90.cuh describes.
ATTNC_DEVICE TilePlace tile_at(const TileOrder& order, int index) {
  const int per_section = order.q_tiles * order.section;
  const int first = index / per_section * order.section, within = index % per_section;
  const int heads = min(order.section, order.heads - first);
  return {first + within % heads, order.q_tiles - 1 - within / heads};
}

/// Deals tile indices to CTAs. With counters, first come, first served, which evens out unequal tiles.
struct TileScheduler {
  const TileOrder& order;
  int index = int(blockIdx.x);

  ATTNC_DEVICE bool valid() const { return index < order.q_tiles * order.heads; }

  /// `Threads`: how many threads of a warp call together: 1 (lane 0), or 32.
  template <int Threads> ATTNC_DEVICE void advance() {
    if (!order.counters) {
      index += int(gridDim.x);
      return;
    }
    unsigned dealt = 0;
    if (threadIdx.x % 32 == 0) dealt = atomicAdd(order.counters, 1u);
    if (Threads > 1) dealt = __shfl_sync(0xffffffffu, dealt, 0);
    index = int(gridDim.x + dealt);
  }

  /// Called by one lane once a CTA has seen the end. The last CTA resets the counters to zero for the next launch.
  ATTNC_DEVICE void finish() const {
    if (order.counters && atomicAdd(order.counters + 1, 1u) == gridDim.x - 1) {
      order.counters[0] = 0;
      order.counters[1] = 0;
    }
  }
};

/// Deals indices to clusters of `Ctas` CTAs, round robin. Each second round goes backwards: tiles tend to get shorter,
/// so a cluster that had the longest of a round has the shortest of the next.
template <int Ctas> struct ClusterScheduler {
  const TileOrder& order;
  int index = int(blockIdx.x) / Ctas;

  ATTNC_DEVICE bool valid() const { return index < order.q_tiles * order.heads; }
  template <int Threads> ATTNC_DEVICE void advance() {
    const int clusters = int(gridDim.x) / Ctas;
    index = 2 * (index / clusters + 1) * clusters - 1 - index;
  }
  ATTNC_DEVICE void finish() const {}
};

} // namespace attnc
