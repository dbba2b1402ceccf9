// Paged K and V: where the rows of a block of positions lie. Kernels only know positions. The table is read once per
// page and block, and never behind a sequence's length.
#pragma once

#include "mod/contract.cuh"
#include "params.cuh"

namespace attnc {

/// A kernel's parameters: with a CacheParams if IsCached.
template <class Params, bool IsCached> struct ParametersOf { using Type = Params; };
template <class Params> struct ParametersOf<Params, true> { using Type = Cached<Params>; };

template <class Params> ATTNC_DEVICE const CacheParams& cache_of(const Cached<Params>& p) { return p.cache; }
template <class Params> ATTNC_DEVICE CacheParams cache_of(const Params&) { return {}; }

/// Returns a sequence's row of the page table; null if there is no cache.
template <class Params> ATTNC_DEVICE const int* pages_of(const Cached<Params>& p, int b) {
  return p.cache.page_table + b * p.cache.table_stride;
}
template <class Params> ATTNC_DEVICE const int* pages_of(const Params&, int) { return nullptr; }

/// Length of a sequence's K and V, if these are paged.
template <bool IsPaged> struct PagedLength {
  ATTNC_DEVICE void set_length(int) {}
  ATTNC_DEVICE int rows() const { return 0; }
};
template <> struct PagedLength<true> {
  int length;
  ATTNC_DEVICE void set_length(int rows) { length = rows; }
  ATTNC_DEVICE int rows() const { return length; }
};

/// Returns the elements from the beginning of a pool to a position of a sequence, in KV head 0.
template <int PageSize> ATTNC_DEVICE long long paged_offset(const int* table, const Strides& strides, int position) {
  return table[position / PageSize] * strides.batch + position % PageSize * strides.row;
}

/// The pages of a block of `Rows` positions. The lanes of a warp hold them together; all functions are called by whole
/// warps.
template <int PageSize, int Rows> struct PageBlock {
  static constexpr int kPages = Rows > PageSize ? Rows / PageSize : 1;
  static constexpr int kHeld = (kPages + 31) / 32; ///< pages per lane
  static_assert(Rows % PageSize == 0 || PageSize % Rows == 0, "pages of a block are whole, or it lies in one");
  static_assert(kHeld <= 2, "blocks of 64 positions at most");

  unsigned start = 0; ///< the first position, a multiple of Rows
  int page[kHeld];

  ATTNC_DEVICE void look_up(const int* table, int first, int length) {
    start = first;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const unsigned index = kPages == 1 ? 0 : 32 * i + threadIdx.x % 32, position = start + index * PageSize;
      page[i] = index < kPages && int(position) < length ? table[position / PageSize] : 0;
    }
  }

  /// Returns the elements from the beginning of a pool to a row of the block, in KV head 0.
  ATTNC_DEVICE long long offset(const Strides& strides, unsigned row) const {
    if constexpr (kPages == 1) {
      return page[0] * strides.batch + (start % PageSize + row) * strides.row;
    } else {
      const unsigned index = row / PageSize;
      int at = __shfl_sync(0xffffffffu, page[0], index % 32);
      if constexpr (kHeld == 2) {
        const int of_second = __shfl_sync(0xffffffffu, page[1], index % 32);
        if (index >= 32) at = of_second;
      }
      return at * strides.batch + row % PageSize * strides.row;
    }
  }
};
/// The same for unpaged K and V: elements from the beginning of K or V of the (batch, KV head).
template <int Rows> struct PageBlock<0, Rows> {
  static constexpr int kPages = 1;
  unsigned start = 0;
  ATTNC_DEVICE void look_up(const int*, int first, int) { start = first; }
  ATTNC_DEVICE long long offset(const Strides& strides, unsigned row) const { return (start + row) * strides.row; }
};

} // namespace attnc
