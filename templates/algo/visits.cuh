// Which blocks of KV columns visit a block of Q rows, as bits, from the lists by column that a backward pass walks.
// Lists by row may name other blocks: a CTA that counted its turn by those could wait for one that never comes.
//
// By row of blocks, numbered as lists by row are: words_of_visits() words, of KV block n bit n % 32 of word n / 32.
#pragma once

#include "mod/contract.cuh"
#include "params.cuh"

namespace attnc {

/// Of a block size, a power of two: divisions would take registers of the backward kernel.
ATTNC_DEVICE int log2_of(int block) { return 31 - __clz(block); }

ATTNC_DEVICE int words_of_visits(const ForwardParams& f) {
  return (((f.kv_len + f.lists.kv_block - 1) >> log2_of(f.lists.kv_block)) + 31) / 32;
}

/// Sets the bits of column `block` of head `head` of all that the lists have. By a whole warp. What names no block of
/// rows is passed over.
ATTNC_DEVICE void mark_visits(const BackwardParams& p, unsigned* visits, long long head, int block) {
  const ForwardParams& f = p.forward;
  const int q_blocks = (f.q_len + f.lists.q_block - 1) / f.lists.q_block;
  const int kv_blocks = (f.kv_len + f.lists.kv_block - 1) / f.lists.kv_block;
  const long long column = head * kv_blocks + block;
  const auto mark = [&](const int* index, int count) {
    for (int i = threadIdx.x % 32; i < count; i += 32)
      if (unsigned(index[i]) < unsigned(q_blocks))
        atomicOr(visits + (head * q_blocks + index[i]) * words_of_visits(f) + block / 32, 1u << block % 32);
  };
  mark(p.columns.partial_index + column * p.columns.index_stride, p.columns.partial_count[column]);
  if (p.columns.full_count) mark(p.columns.full_index + column * p.columns.index_stride, p.columns.full_count[column]);
}

} // namespace attnc
