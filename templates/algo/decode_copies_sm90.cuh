// How decode kernels of sm_90a bring rows of K and V into shared memory: TMA loads boxes of them, and threads write
// those that TMA cannot load.
#pragma once

#include "attnc_config.cuh"

#include "algo/append.cuh"
#include "algo/packed_rows.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/request_tile.cuh"

namespace attnc::decode {

/// Copies of `Columns` rows of K and V in a step. Without LoadsV, V is in the tile of K. `Threads`: of the team that
/// mends them.
template <class KTile, class VTile, int Columns, int Threads, bool LoadsV = true> struct KvBoxes {
  static constexpr int kRowsOfPage = kPageSize ? kPageSize : 1; // unused without pages
  static constexpr int kBoxRows = kPageSize && kPageSize < Columns ? kPageSize : Columns;
  static constexpr int kBoxes = Columns / kBoxRows, kSlabs = KTile::kSlabs + (LoadsV ? VTile::kSlabs : 0);
  static constexpr int kBytes = KTile::kBytes + (LoadsV ? VTile::kBytes : 0); ///< of a step
  static_assert(kBoxRows % 8 == 0, "boxes are whole, and so is their swizzle");

  /// Steps whose pages a warp holds, plus as many behind them: each lane has the page of one box of one step.
  static constexpr int kStepsKnown = 32 / kBoxes;

  int page = 0, page_after = 0;

  /// Returns the page of this lane's box in the steps from `first` on; -1, which loads zeros, if there is no page.
  template <class Work> ATTNC_DEVICE int page_of(const int* table, const Work& work, int first, int column) const {
    const int lane = int(threadIdx.x % 32), i = first + lane / kBoxes;
    if (i >= work.walk.count) return -1;
    const int position = work.walk.start_of(i) + column + lane % kBoxes * kBoxRows;
    return position < work.walk.length ? table[position / kRowsOfPage] : -1;
  }

  /// Requests the rows of K and V of step i of an item, from its column `column` on. Steps come in order. Called by
  /// `Callers` threads, of which the first warp works. `barriers`: of slots.
  // NOTE: the barrier of `slot` is computed here, which keeps ptxas's order of integer instructions.
  template <int Callers, class Params, class Work>
  ATTNC_DEVICE void load(const Params& p, const Work& work, int i, int column, KTile k, VTile v, unsigned barriers,
                         int slot = 0) {
    const unsigned thread = threadIdx.x % Callers;
    if (thread >= 32) return;
    const PackedTile& tile = work.tile;
    const int start = work.walk.start_of(i) + column;
    const unsigned full = barriers + 8 * slot, box = thread % kBoxes;
    int row = tile.start.kv() + start, k_batch = tile.b * p.k_batch_step, v_batch = tile.b * p.v_batch_step;
    if constexpr (kPageSize != 0) {
      if (i % kStepsKnown == 0) { // loaded well before their use, except for an item's first steps
        const int* table = pages_of(p, tile.b);
        page = i == 0 ? page_of(table, work, 0, column) : page_after;
        page_after = page_of(table, work, i + kStepsKnown, column);
      }
      row = (start + int(box) * kBoxRows) % kRowsOfPage;
      k_batch = v_batch = __shfl_sync(0xffffffffu, page, i % kStepsKnown * kBoxes + box);
    }
    if (start >= work.walk.length) { // no row
      if (thread == 0) ptx::mbarrier_arrive(full);
      return;
    }
    if constexpr (kBoxes == 1) {
      if (thread != 0) return;
      ptx::mbarrier_arrive_expect_tx(full, kBytes);
      request_tile(k, p.k, full, row, tile.kv_head, k_batch);
      if constexpr (LoadsV) request_tile(v, p.v, full, row, tile.kv_head, v_batch);
      return;
    }
    if (thread == 0) ptx::mbarrier_arrive_expect_tx(full, kBytes);
    __syncwarp();
    constexpr int kLanes = 32 / kBoxes * kBoxes; // a lane keeps its box
#pragma unroll
    for (int first = 0; first < kBoxes * kSlabs; first += kLanes) {
      const int slab = (first + int(thread)) / kBoxes;
      if (slab >= kSlabs || int(thread) >= kLanes) continue;
      const bool is_k = slab < KTile::kSlabs;
      const int of = is_k ? slab : slab - KTile::kSlabs;
      const unsigned to = (is_k ? k.slab(of) : v.slab(of)) + box * kBoxRows * KTile::kRowBytes;
      ptx::tma_load_4d(to, is_k ? p.k : p.v, full, of * KTile::kSlabColumns, row, tile.kv_head,
                       is_k ? k_batch : v_batch);
    }
  }

  /// Rows behind the length hold anything: those of V are zeroed, because a weight of 0 does not undo NaN. New rows of
  /// K and V come from the launch's inputs. Returns whether any row was written. Called by the team.
  template <class Params>
  ATTNC_DEVICE static bool mend(const Params& decode, const PackedTile& tile, int start, int length, KTile k, VTile v) {
    const ForwardParams& p = decode.forward;
    const int first = kAppends ? max(first_new(p, length), 0) : length;
    if (start + Columns <= first) return false;
    const CacheParams cache = cache_of(decode);
    if constexpr (LoadsV) mend_rows<kHeadDimV>(v, start, first, length, cache.new_v, cache.new_v_stride, tile, p);
    if constexpr (kAppends || !LoadsV)
      mend_rows<kHeadDimQk>(k, start, first, length, cache.new_k, cache.new_k_stride, tile, p);
    ptx::fence_proxy_async();
    return true;
  }

private:
  template <int Dim, class Tile>
  ATTNC_DEVICE static void mend_rows(Tile to, int start, int first, int length, const void* fresh,
                                     const Strides& strides, const PackedTile& tile, const ForwardParams& p) {
    constexpr int kChunks = Tile::kSlabs * 8;
    const Element* from = (const Element*)fresh + tile.b * strides.batch + tile.kv_head * strides.head;
    const int row_begin = max(first - start, 0);
#pragma unroll 1
    for (int i = threadIdx.x % Threads; i < (Columns - row_begin) * kChunks; i += Threads) {
      const int row = row_begin + i / kChunks, chunk = i % kChunks;
      int words[4] = {};
      if (kAppends && start + row < length) {
        const Element* source = from + (start + row - first_new(p, length)) * strides.row + chunk * 8;
        if (chunk * 8 < Dim) {
          if (p.vectors) {
            const int4 x = *(const int4*)source;
            words[0] = x.x, words[1] = x.y, words[2] = x.z, words[3] = x.w;
          } else {
            for (int e = 0; e < 8; ++e) ((Element*)words)[e] = source[e];
          }
        }
      }
      ptx::st_shared(to.chunk(row, chunk), words);
    }
  }
};

} // namespace attnc::decode
