// Which KV tiles a tile of Q rows visits: all of them, or those of the block lists.
//
// A walk visits first the blocks whose mask is partial, then the full ones, each block in its kv_block / BlockN tiles. A
// tile may reach past kv_len, or even begin there: kernels mask by kv_len. Thread-uniform over a CTA; no synchronisation.
#pragma once

#include "params.cuh"
#include "mod/contract.cuh"

namespace attnc {

struct KvTile {
  int kv_start;
  bool masked; // mask_mod must be evaluated
};

/// The tiles of one tile of Q rows, as a sequence: tile(i) for i in [0, count).
template <int BlockN, bool BlockSparse, bool HasMaskMod>
struct BlockWalk {
  const int* partial_index;
  const int* full_index;
  int log2_tiles, partial_tiles, count; // tiles of a block: a power of two

  ATTNC_DEVICE BlockWalk(const BlockLists& lists, int b, int h, int q_start, int kv_len) {
    if constexpr (BlockSparse) {
      const long long row = b * lists.batch_stride + h * lists.head_stride + q_start / lists.q_block;
      log2_tiles = 31 - __clz(lists.kv_block / BlockN);
      partial_index = lists.partial_index + row * lists.index_stride;
      partial_tiles = lists.partial_count[row] << log2_tiles;
      count = partial_tiles;
      if (lists.full_count) {
        full_index = lists.full_index + row * lists.index_stride;
        count += lists.full_count[row] << log2_tiles;
      }
    } else {
      count = (kv_len + BlockN - 1) / BlockN;
    }
  }

  ATTNC_DEVICE KvTile tile(int i) const {
    if constexpr (!BlockSparse) return {i * BlockN, HasMaskMod};
    const bool masked = i < partial_tiles;
    const int j = masked ? i : i - partial_tiles;
    const int block = (masked ? partial_index : full_index)[j >> log2_tiles];
    return {((block << log2_tiles) + (j & ((1 << log2_tiles) - 1))) * BlockN, HasMaskMod && masked};
  }
};

} // namespace attnc
