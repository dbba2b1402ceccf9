// Copies between a tile in shared memory, whose rows are tokens of a box, and a tensor where these tokens are
// scattered.
#pragma once

#include "ptx/cp_async.cuh"
#include "ptx/math.cuh"
#include "tile/shared_tile.cuh"

namespace attnc {

/// Which of the box's `Count` tokens this thread copies, and their rows in the tensor. Computed once, used for all
/// tensors of one grid. Called together by `Threads` threads, numbered modulo that. `Box` has coordinate(token, axis).
/// `Columns`: of the widest tensor. kSide neighbouring threads share a token, in chunks of 16 bytes; a thread takes
/// every kApart'th token.
template <class Element, class Box, int Count, int Threads, int Columns> struct BoxTokens {
  static constexpr int kPerChunk = 16 / int(sizeof(Element));
  static constexpr int kWidest = computed_columns(Columns) / kPerChunk; // chunks of the widest row
  static constexpr int kSide = kWidest <= 2 ? 2 : kWidest <= 4 ? 4 : 8; // threads per token: 8 are 128 bytes
  static constexpr int kApart = Threads / kSide, kOwn = (Count + kApart - 1) / kApart;

  int index[kOwn]; ///< of tokens on their grid; -1: outside of it, or not one of these

  ATTNC_DEVICE static int thread() { return int(threadIdx.x) % Threads; }
  ATTNC_DEVICE static int row(int i) { return thread() / kSide + i * kApart; }

  /// `first`: the first token of a box at `origin` on a grid of `extent`. No coordinate of `origin` is negative.
  ATTNC_DEVICE void look(int first, const int (&origin)[3], const int (&extent)[3]) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int token =
          ptx::opaque(first + row(i)); // NOTE: otherwise coordinates stay in registers around the caller's loop
      bool exists = Count % kApart == 0 || row(i) < Count;
      int at = 0;
#pragma unroll
      for (int axis = 0; axis < 3; ++axis) {
        const int x = origin[axis] + Box::coordinate(token, axis);
        exists &= x < extent[axis];
        at = axis ? at * extent[axis] + x : x;
      }
      index[i] = exists ? at : -1;
    }
  }

  /// Copies tokens of a [tokens, Dim] matrix at `base` to the tile's rows; missing tokens and columns become 0.
  /// Asynchronous if `vectors`, which requires 16-byte aligned rows: the caller commits and waits.
  template <int Dim>
  ATTNC_DEVICE void copy_in(PaddedTile<Element, Count, Dim> tile, const Element* base, long long row_stride,
                            bool vectors) const {
    using Tile = PaddedTile<Element, Count, Dim>;
    constexpr int kChunks = Tile::kColumns / kPerChunk;
    const int side = thread() % kSide;
    if (vectors) {
      const unsigned shared = tile.chunk(row(0), side);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const Element* source = base + index[i] * row_stride + side * kPerChunk;
#pragma unroll
        for (int j = 0; j < (kChunks + kSide - 1) / kSide; ++j) {
          const int chunk = side + j * kSide;
          if (kChunks % kSide != 0 && chunk >= kChunks) continue;
          if (Count % kApart != 0 && row(i) >= Count) continue;
          const bool inside = index[i] >= 0 && (Tile::kColumns == Dim || chunk * kPerChunk < Dim);
          ptx::cp_async_16(shared + i * kApart * Tile::kRowBytes + j * kSide * 16, source + j * kSide * kPerChunk,
                           inside ? 16 : 0);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (Count % kApart != 0 && row(i) >= Count) continue;
        const Element* source = base + index[i] * row_stride;
        // NOTE: opaque, so that addresses of this rare path take no registers around the caller's loop.
#pragma unroll 1
        for (int d = ptx::opaque(side); d < Tile::kColumns; d += kSide)
          tile.elements(row(i))[d] = index[i] >= 0 && d < Dim ? source[d] : from_float<Element>(0.f);
      }
    }
  }

  /// Copies the tile's rows to a [tokens, Dim] matrix.
  template <int Dim>
  ATTNC_DEVICE void copy_out(PaddedTile<Element, Count, Dim> tile, Element* base, long long row_stride,
                             bool vectors) const {
    const int side = thread() % kSide;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (index[i] < 0) continue;
      Element* to = base + index[i] * row_stride;
      const Element* from = tile.elements(row(i));
      if (vectors) {
#pragma unroll
        for (int d = side * kPerChunk; d < Dim; d += kSide * kPerChunk) *(uint4*)(to + d) = *(const uint4*)(from + d);
      } else {
#pragma unroll 1
        for (int d = side; d < Dim; d += kSide) to[d] = from[d];
      }
    }
  }
};

} // namespace attnc
