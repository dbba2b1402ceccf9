// Draws random elements of large tensors in host memory, on all cores.
#pragma once

#include "support/parallel.h"

#include <algorithm>
#include <cstdint>
#include <random>

namespace attnc::device {

/// Calls `write(i, number)` once for each i in [0, count) with numbers that a copy of `distribution` draws. Up to one
/// block of them comes from `random` itself. More come from several threads at once, each block from its own generator,
/// so that a seed gives the same numbers for any number of threads.
template <class Distribution, class Write>
void drawOnAllCores(std::mt19937_64& random, int64_t count, const Distribution& distribution, const Write& write,
                    int64_t blockSize = int64_t(1) << 23) {
  if (count <= blockSize) {
    Distribution draw = distribution;
    for (int64_t i = 0; i < count; ++i) write(i, draw(random));
    return;
  }
  const uint64_t seed = random();
  parallelFor((count + blockSize - 1) / blockSize, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      std::seed_seq seeds{uint32_t(seed), uint32_t(seed >> 32), uint32_t(block), uint32_t(block >> 32)};
      std::mt19937_64 bits(seeds);
      Distribution draw = distribution;
      const int64_t last = std::min(count, (block + 1) * blockSize);
      for (int64_t i = block * blockSize; i < last; ++i) write(i, draw(bits));
    }
  });
}

} // namespace attnc::device
