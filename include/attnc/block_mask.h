// Block masks: which blocks of a score matrix live, and which of them need mask_mod.
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

/// Blocks that are boxes of tokens on a grid: those of a lattice that begins at its first token. Block i is the i-th of
/// them, row-major. Axes are three, the slowest first; a grid of fewer has extents of 1 before them.
struct BoxLattice {
  std::array<int64_t, 3> extents = {1, 1, 1}; ///< of the grid, at least 1
  std::array<int, 3> box = {1, 1, 1};         ///< likewise, at most 256 tokens in all

  int64_t along(size_t axis) const { return (extents[axis] + box[axis] - 1) / box[axis]; }
  int64_t boxes() const { return along(0) * along(1) * along(2); }
  int64_t tokens() const { return extents[0] * extents[1] * extents[2]; }
  int64_t tokensOfBox() const { return int64_t(box[0]) * box[1] * box[2]; } ///< of one that lies on the grid whole
  /// The box that a token lies in, by its position on the grid.
  int64_t boxOf(int64_t token) const {
    const int64_t x = token % extents[2], y = token / extents[2] % extents[1], z = token / extents[2] / extents[1];
    return (z / box[0] * along(1) + y / box[1]) * along(2) + x / box[2];
  }
  /// The positions of a box's tokens, as far as these lie on the grid, in increasing order.
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
  int64_t batch = 1, heads = 1;    ///< at least 1; 1: one mask for all. batch * heads up to 2^31 - 1
  int64_t qLen = 0, kvLen = 0;     ///< 0 .. 2^31 - 1, for kernels up to 2^24; at most 2^59 blocks in all
  int qBlock = 128, kvBlock = 128; ///< 64, 128 or 256, not necessarily equal
  /// Set: blocks are boxes, and qBlock and kvBlock are not read. The lattices have qLen and kvLen tokens.
  struct Boxes {
    BoxLattice queries, keys;
    friend bool operator==(const Boxes&, const Boxes&) = default;
  };
  std::optional<Boxes> boxes = {};
  int64_t qBlocks() const { return boxes ? boxes->queries.boxes() : (qLen + qBlock - 1) / qBlock; }
  int64_t kvBlocks() const { return boxes ? boxes->keys.boxes() : (kvLen + kvBlock - 1) / kvBlock; }
};

/// Borrowed lists of the same blocks by column: for each block of KV columns the blocks of Q rows that live there. All
/// int32, dense:
///   partialCount, fullCount [batch, heads, kvBlocks]; partialIndex, fullIndex [batch, heads, kvBlocks, indexStride].
/// Else as the lists of BlockMaskView. Backward kernels walk these beside those by row, for they sum up dK and dV along
/// Q.
struct BlockMaskColumns {
  int32_t* partialCount = nullptr; ///< null: there are no lists by column
  int32_t* partialIndex = nullptr;
  int32_t* fullCount = nullptr;
  int32_t* fullIndex = nullptr;
  int64_t indexStride = 0; ///< of columns of indices, in elements; smaller than qBlocks(): compacted lists
};

/// Borrowed lists, in host or device memory. All int32, dense:
///   partialCount, fullCount [batch, heads, qBlocks]; partialIndex, fullIndex [batch, heads, qBlocks, indexStride].
/// Entries past a count are undefined. The full pair may be null: every live block is partial. Those that are read are
/// not written.
///
/// FlexAttention's BlockMask has the same lists by other names: kv_num_blocks, kv_indices, full_kv_num_blocks and
/// full_kv_indices are partialCount, partialIndex, fullCount and fullIndex; q_num_blocks, q_indices and so on are those
/// of `columns`.
struct BlockMaskView {
  BlockMaskShape shape;
  int32_t* partialCount = nullptr;
  int32_t* partialIndex = nullptr;
  int32_t* fullCount = nullptr;
  int32_t* fullIndex = nullptr;
  int64_t indexStride = 0; ///< of rows of indices, in elements; smaller than kvBlocks(): compacted lists
  /// The same blocks by column; only backward kernels read them. BlockMask::fromLists() checks that they agree with the
  /// lists by row. A launch does not: gradients are wrong where they disagree, and every launch ends.
  BlockMaskColumns columns = {};
  /// Whether the lists are of all that the mod masks: full blocks hold no masks of score_mod either (-inf by a
  /// condition: dsl/SPEC.md §2), as BlockMask::build() and BlockMaskKernel make them of a mod with such. Kernels then
  /// ask for these in partial blocks only. False: the lists are of mask_mod, as in FlexAttention, and score_mod is
  /// called for every score of a live block.
  bool ofWholeMod = false;
};

/// A block mask in host memory that owns its lists. Any thread may read it.
class BlockMask {
public:
  /// Which lists there are.
  enum class Lists {
    ByRow,          ///< what forward kernels walk
    ByRowAndColumn, ///< and what backward kernels walk beside
  };

  /// Evaluates mask_mod tile by tile on the CPU: O(blocks) memory, never a dense [q, kv] matrix. `problem` gives the
  /// mod its B, H, HKV, Q_LEN, KV_LEN; captures are host memory. A mod without mask_mod gives all blocks full. Masks of
  /// its score_mod count, and the view then is BlockMaskView::ofWholeMod: it serves kernels of this mod.
  /// A block that runs past qLen or kvLen, or past the end of a grid, is judged by its elements inside, and is full
  /// only if it lies inside whole. Errors (Blame::Environment): captures that do not fit; a shape beyond the limits of
  /// BlockMaskShape, whose lengths are not the problem's, whose batch or heads are neither the problem's nor 1, or are
  /// 1 though mask_mod tells them apart. Uses all cores, and returns when it is done; no disk, no GPU.
  static Expected<BlockMask> build(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                   const BlockMaskShape& shape);

  /// Takes user-supplied lists in host memory (copied); those by column as well, if there are any. Errors
  /// (Blame::Environment): a shape beyond the limits of BlockMaskShape; partial lists that are null, or one of the full
  /// pair that is; a count or an index out of range; a block that is listed twice in a row of blocks; lists by column
  /// that name other blocks than those by row.
  static Expected<BlockMask> fromLists(const BlockMaskView& lists);

  /// A copy that has lists by column, too: view().columns, each in increasing order. For backward kernels.
  BlockMask withColumns() const;

  const BlockMaskShape& shape() const { return extents; }
  /// The lists, borrowed: valid as long as this object lives unchanged.
  BlockMaskView view() const;

  /// Fraction of blocks that are empty, in percent, as FlexAttention's `sparsity()` counts.
  double sparsity() const;
  int64_t liveBlocks() const; ///< partial and full ones, over all batches and heads of the shape
  int64_t fullBlocks() const; ///< of these, the full ones

  /// The part [batchBegin, batchEnd) x [headBegin, headEnd) x [qBlockBegin, qBlockEnd), in blocks. The mask_mod of the
  /// slice sees its own q_idx, so a caller who slices q must offset the mod. Copies; has lists by column if this
  /// mask has. Errors (Blame::Environment): a part that is empty or reaches outside; blocks that are boxes.
  Expected<BlockMask> slice(int64_t batchBegin, int64_t batchEnd, int64_t headBegin, int64_t headEnd,
                            int64_t qBlockBegin, int64_t qBlockEnd) const;

  /// A picture in text (UTF-8) of one (batch, head), a line a row of blocks: ' ' empty, '░' partial, '█' full; at most
  /// `limit` rows and columns. Empty for a (batch, head) that there is not.
  std::string toString(int64_t batch = 0, int64_t head = 0, int64_t limit = 64) const;

  /// Bytes that the lists of this shape take in one allocation, and views into such an allocation, which begins at a
  /// multiple of 4 bytes (device memory for BlockMaskKernel): the caller allocates, attnc only writes. Nothing is
  /// touched here; ofWholeMod is the caller's to set. With b = batch * heads, the lists by row take 8 b qBlocks (1 +
  /// kvBlocks) bytes, and those by column, behind them, 8 b kvBlocks (1 + qBlocks) more. Precondition: a shape within
  /// its limits.
  static size_t storageBytes(const BlockMaskShape& shape, Lists lists = Lists::ByRow);
  static BlockMaskView viewInto(void* storage, const BlockMaskShape& shape, Lists lists = Lists::ByRow);

private:
  /// Lists along one axis, that of rows or that of columns.
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
