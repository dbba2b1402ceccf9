// Block masks: which blocks of the score matrix are live, and which of those need mask_mod.
#pragma once

#include "attnc/captures.h"
#include "attnc/error.h"
#include "attnc/mod.h"
#include "attnc/problem.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnc {

/// Boxes of tokens on a grid, used as blocks. They form a lattice that begins at the first token; block i is the i-th
/// box, row-major. There are three axes, the slowest first. A grid with fewer axes has leading extents of 1.
struct BoxLattice {
  std::array<int64_t, 3> extents = {1, 1, 1}; ///< Extents of the grid in tokens, at least 1 each.
  std::array<int, 3> box = {1, 1, 1};         ///< Extents of a box in tokens, at least 1 each; at most 256 in all.

  /// Returns the number of boxes along an axis.
  int64_t along(size_t axis) const { return (extents[axis] + box[axis] - 1) / box[axis]; }
  /// Returns the number of boxes on the grid.
  int64_t boxes() const { return along(0) * along(1) * along(2); }
  /// Returns the number of tokens on the grid.
  int64_t tokens() const { return extents[0] * extents[1] * extents[2]; }
  /// Returns the number of tokens of a box that lies entirely on the grid.
  int64_t tokensOfBox() const { return int64_t(box[0]) * box[1] * box[2]; }
  /// Returns the index of the box that holds the token at this row-major position on the grid.
  int64_t boxOf(int64_t token) const {
    const int64_t x = token % extents[2], y = token / extents[2] % extents[1], z = token / extents[2] / extents[1];
    return (z / box[0] * along(1) + y / box[1]) * along(2) + x / box[2];
  }
  /// Returns the positions of a box's tokens that lie on the grid, in increasing order.
  std::vector<int64_t> tokensIn(int64_t index) const {
    const std::array<int64_t, 3> first = {index / along(2) / along(1) * box[0], index / along(2) % along(1) * box[1],
                                          index % along(2) * box[2]};
    const auto end = [&](size_t axis) {
      return first[axis] + box[axis] < extents[axis] ? first[axis] + box[axis] : extents[axis];
    };
    std::vector<int64_t> tokens;
    for (int64_t z = first[0]; z < end(0); ++z)
      for (int64_t y = first[1]; y < end(1); ++y)
        for (int64_t x = first[2]; x < end(2); ++x) tokens.push_back((z * extents[1] + y) * extents[2] + x);
    return tokens;
  }
  friend bool operator==(const BoxLattice&, const BoxLattice&) = default;
};

/// Size of a mask and of its blocks, in elements.
struct BlockMaskShape {
  /// Masks over batch and heads, at least 1 each; 1 means one mask for all. batch * heads is at most 2^31 - 1.
  int64_t batch = 1, heads = 1;
  /// Lengths, 0 .. 2^31 - 1; at most 2^24 for kernels. There are at most 2^59 blocks in all.
  int64_t qLen = 0, kvLen = 0;
  int qBlock = 128, kvBlock = 128; ///< Rows and columns of a block: 64, 128 or 256, not necessarily equal.
  /// Lattices of blocks that are boxes. They have qLen and kvLen tokens.
  struct Boxes {
    BoxLattice queries, keys; ///< Lattices of boxes of queries and of keys.
    friend bool operator==(const Boxes&, const Boxes&) = default;
  };
  std::optional<Boxes> boxes = {}; ///< Boxes used as blocks. If set, qBlock and kvBlock are not read.
  /// Returns the number of blocks along q.
  int64_t qBlocks() const { return boxes ? boxes->queries.boxes() : (qLen + qBlock - 1) / qBlock; }
  /// Returns the number of blocks along kv.
  int64_t kvBlocks() const { return boxes ? boxes->keys.boxes() : (kvLen + kvBlock - 1) / kvBlock; }
};

/// Returns the smallest mask that serves the problem: batch or heads are 1 if mask_mod does not depend on them.
BlockMaskShape smallestMask(const Mod& mod, const ProblemShape& problem, int qBlock = 128, int kvBlock = 128);

/// Borrowed lists by column: for each block of KV columns, its live blocks of Q rows. All are int32, dense:
///   partialCount, fullCount  [batch, heads, kvBlocks]
///   partialIndex, fullIndex  [batch, heads, kvBlocks, indexStride]
/// Otherwise as the lists of BlockMaskView. Backward kernels walk them in addition to the lists by row, since they sum
/// dk and dv along Q.
struct BlockMaskColumns {
  int32_t* partialCount = nullptr; ///< Null: no lists by column.
  int32_t* partialIndex = nullptr; ///< Indices of the partial blocks.
  int32_t* fullCount = nullptr;    ///< Number of full blocks. Null: every live block is partial.
  int32_t* fullIndex = nullptr;    ///< Indices of the full blocks.
  int64_t indexStride = 0; ///< Stride between columns of indices, in elements. Below qBlocks() if lists are compacted.
};

/// Borrowed lists by row, in host or device memory: for each block of Q rows, its live blocks of KV columns. All are
/// int32, dense:
///   partialCount, fullCount  [batch, heads, qBlocks]
///   partialIndex, fullIndex  [batch, heads, qBlocks, indexStride]
/// Entries past a count are undefined. If the full pair is null, every live block is partial. Functions that read lists
/// never write them.
///
/// FlexAttention's `BlockMask` has the same lists under other names. Its kv_num_blocks, kv_indices, full_kv_num_blocks
/// and full_kv_indices are partialCount, partialIndex, fullCount and fullIndex. Its q_num_blocks, q_indices and so on
/// are those of `columns`.
struct BlockMaskView {
  BlockMaskShape shape = {};       ///< Size of the mask and of its blocks.
  int32_t* partialCount = nullptr; ///< Number of partial blocks.
  int32_t* partialIndex = nullptr; ///< Indices of the partial blocks.
  int32_t* fullCount = nullptr;    ///< Number of full blocks. Null: every live block is partial.
  int32_t* fullIndex = nullptr;    ///< Indices of the full blocks.
  int64_t indexStride = 0; ///< Stride between rows of indices, in elements. Below kvBlocks() if lists are compacted.
  /// The same blocks by column; only backward kernels read them. BlockMask::fromLists() checks that they agree with the
  /// lists by row. A launch does not check it: gradients are wrong if they disagree, but every launch ends.
  BlockMaskColumns columns = {};
  /// Whether full blocks are also free of masks by score_mod (-inf by a condition: dsl/SPEC.md §2). BlockMask::build()
  /// and BlockMaskKernel build these lists for mods that have them. Kernels then evaluate these masks only in partial
  /// blocks. If false, the lists are only of mask_mod, as in FlexAttention; every score of a live block calls
  /// score_mod.
  bool ofWholeMod = false;
};

/// A block mask in host memory that owns its lists. Any thread may read it.
class BlockMask {
public:
  /// Which lists exist.
  enum class Lists {
    ByRow,          ///< Lists by row, which forward kernels walk.
    ByRowAndColumn, ///< Lists by row and by column, which backward kernels walk.
  };

  /// Builds a mask by evaluating mask_mod tile by tile on the CPU. Memory is O(blocks); it never forms a dense [q, kv]
  /// matrix. Uses all cores, and returns when it is done. Needs no disk and no GPU.
  ///
  /// `problem` gives the mod its B, H, HKV, Q_LEN and KV_LEN. Captures are in host memory. Without mask_mod, all blocks
  /// are full. Masks by score_mod count; the view then has BlockMaskView::ofWholeMod set, and serves only kernels of
  /// this mod. A block that crosses qLen, kvLen or the end of a grid is judged by its elements inside. It is full only
  /// if it lies entirely inside.
  ///
  /// Errors (environment): captures that do not fit; a shape beyond the limits of BlockMaskShape; lengths that differ
  /// from the problem's. Also a batch or a head count that is neither the problem's nor 1, or is 1 although mask_mod
  /// tells them apart.
  static Expected<BlockMask> build(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                   const BlockMaskShape& shape);

  /// Copies lists from host memory, including lists by column if they are given.
  ///
  /// Errors (environment): a shape beyond the limits of BlockMaskShape; null partial lists; a full pair with one null.
  /// Also a count or an index out of range; a block listed twice in one row of blocks. Also lists by column that
  /// disagree with those by row.
  static Expected<BlockMask> fromLists(const BlockMaskView& lists);

  /// Returns a copy that also has lists by column (view().columns), each in increasing order. For backward kernels.
  BlockMask withColumns() const;

  /// Returns the size of the mask and of its blocks.
  const BlockMaskShape& shape() const { return extents; }
  /// Returns a view of the lists in host memory, valid while this object lives unchanged.
  BlockMaskView view() const;

  /// Returns the fraction of blocks that are empty, in percent, as FlexAttention's `sparsity()` counts.
  double sparsity() const;
  /// Returns the number of partial and full blocks, over all batches and heads of the shape.
  int64_t liveBlocks() const;
  /// Returns the number of full blocks, over all batches and heads of the shape.
  int64_t fullBlocks() const;

  /// Returns a picture in UTF-8 text of one (batch, head), one line per row of blocks. ' ' is empty, '░' partial, '█'
  /// full. It has at most `limit` rows and columns. Empty if the mask has no (batch, head) at these indices.
  std::string toString(int64_t batch = 0, int64_t head = 0, int64_t limit = 64) const;

  /// Returns the bytes of one allocation for the lists of this shape. With b = batch * heads, lists by row take 8 b
  /// qBlocks (1 + kvBlocks) bytes. Lists by column, behind them, take 8 b kvBlocks (1 + qBlocks) more. Precondition: a
  /// shape within its limits.
  static size_t storageBytes(const BlockMaskShape& shape, Lists lists = Lists::ByRow);
  /// Returns a view of lists in `storage`: storageBytes() of host or device memory, aligned to 4 bytes, that the caller
  /// owns. BlockMaskKernel fills device memory. Does not touch the memory; the caller sets ofWholeMod. Precondition: a
  /// shape within its limits.
  static BlockMaskView viewInto(void* storage, const BlockMaskShape& shape, Lists lists = Lists::ByRow);

private:
  /// Lists along one axis: by row or by column.
  struct Owned {
    int64_t indexStride = 0;
    std::vector<int32_t> partialCount, partialIndex, fullCount, fullIndex;
  };
  Owned transposed() const;

  BlockMaskShape extents;
  bool ofWholeMod = false;
  Owned rows;
  std::optional<Owned> columns;
};

} // namespace attnc
