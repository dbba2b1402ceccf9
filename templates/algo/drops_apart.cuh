// Dropout by warps of their own: one role finds which weights of a step are kept, and leaves a bit of each in shared
// memory; another one, which holds the weights, sets others to 0.
#pragma once

#include "algo/drops.cuh"
#include "ptx/shared_memory.cuh"

namespace attnc {

/// Stores which weights of a tile are kept, 16 rows after 16: 4 words for each pair of lanes that share counters, and
/// in a word the bits of 16 columns, and 4 lower those of the next 16. `thread`: of 64. Rows and columns begin at a
/// multiple of 16.
template <int Rows, int Columns, class M>
ATTNC_DEVICE void store_kept(const Drops<M>& drops, unsigned shared, int thread, unsigned q_first, unsigned kv_first) {
  static_assert(Columns == 128, "a thread has one word of 16 rows");
  const unsigned pair = thread / 4, q = q_first + pair / 4 * 2, kv = kv_first + thread % 4 * 32 + pair % 4 * 2;
#pragma unroll(Drops <M>::kHasRest ? 1 : 2)
  for (int row = 0; row < Rows; row += 16) {
    const unsigned high = drops.kept_at(q + row, kv), low = drops.kept_at(q + row, kv + 16);
    ptx::st_shared(shared + 16 * row + 4 * thread, int(high & 0xf0f0f0f0u | low >> 4 & 0x0f0f0f0fu));
  }
}

/// Sets weights to 0 by what store_kept() stored of the warp's 16 rows, at `shared`.
template <class Element, int Columns>
ATTNC_DEVICE void drop(PackedFragment<Element, 1, Columns>& weights, unsigned shared) {
  const int lane = threadIdx.x % 32;
  int words[4];
  ptx::ld_shared(words, shared + lane / 8 * 64 + lane % 4 * 16);
#pragma unroll
  for (int j = 0; j < Columns / 16; ++j) {
    const unsigned bits = unsigned(words[j / 2]) << (lane / 4 % 2 + j % 2 * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) weights.a[0][j][i] &= ptx::prmt(bits << 2 * (i % 2), 0, i < 2 ? 0x9988 : 0xbbaa);
  }
}

} // namespace attnc
