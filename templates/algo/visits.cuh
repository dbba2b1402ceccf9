// Which blocks of KV columns visit a block of Q rows, as bits, from the lists by column that a backward pass walks.
// Lists by row may name other blocks: a CTA that counted its turn by those could wait for one that never comes.
//
// Each row of blocks, numbered as in lists by row, has words_of_visits() words. KV block n is bit n % 32 of word n /
// 32.
#pragma once

#include "algo/sequence.cuh"
#include "mod/contract.cuh"
#include "params.cuh"

namespace attnc {

/// Returns log2 of a block size, a power of two. A division would take registers of the backward kernel.
ATTNC_DEVICE int log2_of(int block) { return 31 - __clz(block); }

ATTNC_DEVICE int words_of_visits(int kv_len, const BlockLists& lists) {
  return (((kv_len + lists.kv_block - 1) >> log2_of(lists.kv_block)) + 31) / 32;
}

/// Sets the bits of column `block` of head `head` for all blocks of its lists. Called by a whole warp. Indices of no
/// block of rows are skipped.
template <class M> ATTNC_DEVICE void mark_visits(const BackwardParams& p, unsigned* visits, long long head, int block) {
  const ForwardParams& f = p.forward;
  const BlockLists& lists = lists_of<M>(f);
  const int q_blocks = (f.q_len + lists.q_block - 1) / lists.q_block;
  const int kv_blocks = (f.kv_len + lists.kv_block - 1) / lists.kv_block;
  const long long column = head * kv_blocks + block;
  const auto mark = [&](const int* index, int count) {
    for (int i = threadIdx.x % 32; i < count; i += 32)
      if (unsigned(index[i]) < unsigned(q_blocks))
        atomicOr(visits + (head * q_blocks + index[i]) * words_of_visits(f.kv_len, lists) + block / 32,
                 1u << block % 32);
  };
  mark(p.columns.partial_index + column * p.columns.index_stride, p.columns.partial_count[column]);
  if (p.columns.full_count) mark(p.columns.full_index + column * p.columns.index_stride, p.columns.full_count[column]);
}

} // namespace attnc
