// Writes the new rows of K and V, those of q's tokens, into K and V at the end of each sequence.
#pragma once

#include "attnc_config.cuh"

#include "algo/pages.cuh"
#include "ptx/cvt_e4m3.cuh"
#include "tile/element.cuh"

namespace attnc {

/// Returns the position of q's token 0 in a sequence whose `length` counts the new rows. Tokens at negative positions
/// have no row.
ATTNC_DEVICE int first_new(const ForwardParams& p, int length) { return length - p.q_len; }

/// Writes rows [first, end) of (b, kv_head). Called by `Threads` threads, numbered from 0. `pages`: the sequence's row
/// of the page table, or null if K and V are not paged. A row whose page is none of the pool is dropped. If K and V are
/// e4m3 (To) and the new rows are not, these are multiplied by the inverse factors and rounded.
template <int Threads, class From = Element, class To = Element>
ATTNC_DEVICE void append_rows(const ForwardParams& p, const CacheParams& cache, const int* pages, int length, int b,
                              int kv_head, int first, int end, int thread, float inverse_k = 1.f,
                              float inverse_v = 1.f) {
  const auto write = [&](const void* to, const Strides& strides, const void* from, const Strides& new_strides,
                         float inverse, int token, int column, int count) {
    const int position = first_new(p, length) + token;
    if (position < 0) return;
    if (kPageSize && unsigned(pages[position / (kPageSize ? kPageSize : 1)]) >= unsigned(cache.pages)) return;
    const From* source =
        (const From*)from + b * new_strides.batch + kv_head * new_strides.head + token * new_strides.row + column;
    long long offset = kv_head * strides.head + column;
    if constexpr (kPageSize == 0)
      offset += b * strides.batch + position * strides.row;
    else
      offset += paged_offset<(kPageSize ? kPageSize : 1)>(pages, strides, position);
    To* target = (To*)to + offset;
    if constexpr (!Same<From, To>::value)
      for (int i = 0; i < count; ++i)
        target[i] = {(unsigned char)ptx::cvt_rn_satfinite_e4m3x2(0.f, to_float(source[i]) * inverse)};
    else if (count == 1)
      *target = *source;
    else
      *(uint4*)target = *(const uint4*)source;
  };
  const auto write_all = [&](int per_chunk) {
    const int chunks_k = kHeadDimQk / per_chunk, chunks = chunks_k + kHeadDimV / per_chunk;
    for (int i = thread; i < (end - first) * chunks; i += Threads) {
      const int token = first + i / chunks, chunk = i % chunks;
      if (chunk < chunks_k)
        write(p.k, p.k_stride, cache.new_k, cache.new_k_stride, inverse_k, token, chunk * per_chunk, per_chunk);
      else
        write(p.v, p.v_stride, cache.new_v, cache.new_v_stride, inverse_v, token, (chunk - chunks_k) * per_chunk,
              per_chunk);
    }
  };
  constexpr int kPerChunk = 16 / int(sizeof(From));
  if (p.vectors && kHeadDimQk % kPerChunk == 0 && kHeadDimV % kPerChunk == 0)
    write_all(kPerChunk);
  else
    write_all(1);
}

} // namespace attnc
