/// Block masks: which blocks of a score matrix live, and which of them need mask_mod (block_mask.h).
#pragma once

#include "attnc/c/mod.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Size of a mask and of its blocks, in elements.
typedef struct attnc_block_mask_shape {
  int64_t batch, heads;      ///< 0: 1, one mask for all
  int64_t q_len, kv_len;     ///< up to 2^24 for kernels
  int32_t q_block, kv_block; ///< 64, 128 or 256; 0: 128
} attnc_block_mask_shape;

/// Lists along one axis (BlockMaskView, BlockMaskColumns).
typedef struct attnc_block_lists {
  int32_t* partial_count; ///< all of them NULL: there are no such lists
  int32_t* partial_index;
  int32_t* full_count; ///< with full_index NULL: every live block is partial
  int32_t* full_index;
  int64_t index_stride; ///< in elements
} attnc_block_lists;

/// Borrowed lists, in host or device memory.
typedef struct attnc_block_mask_view {
  size_t struct_size;
  attnc_block_mask_shape shape;
  attnc_block_lists rows;    ///< for each block of q rows, the kv blocks that live
  attnc_block_lists columns; ///< the same blocks for each block of kv columns (BlockMaskView): for backward kernels
  int32_t of_whole_mod;      ///< 0 or 1: full blocks hold no masks of score_mod either (BlockMaskView::ofWholeMod)
  int32_t reserved;          ///< 0
} attnc_block_mask_view;

/// A block mask in host memory that owns its lists. Immutable.
typedef struct attnc_block_mask attnc_block_mask;

/// Evaluates mask_mod on the CPU. Captures in host memory.
ATTNC_API attnc_status attnc_block_mask_build(const attnc_mod* mod, const attnc_capture* captures, size_t capture_count,
                                              const attnc_problem* problem, const attnc_block_mask_shape* shape,
                                              attnc_block_mask** mask);
/// Copies lists in host memory, and checks them.
ATTNC_API attnc_status attnc_block_mask_from_lists(const attnc_block_mask_view* lists, attnc_block_mask** mask);
/// A copy that has lists by column, too.
ATTNC_API attnc_status attnc_block_mask_with_columns(const attnc_block_mask* mask, attnc_block_mask** copy);
/// The part [begin[0], end[0]) x [begin[1], end[1]) x [begin[2], end[2]) of batches, heads and blocks of q rows.
ATTNC_API attnc_status attnc_block_mask_slice(const attnc_block_mask* mask, const int64_t begin[3],
                                              const int64_t end[3], attnc_block_mask** part);
ATTNC_API void attnc_block_mask_destroy(attnc_block_mask* mask);

/// The lists, which are not to be written.
ATTNC_API attnc_status attnc_block_mask_get_view(const attnc_block_mask* mask, attnc_block_mask_view* view);

typedef struct attnc_block_mask_info {
  size_t struct_size;
  int64_t live_blocks; ///< partial and full ones, over all batches and heads of the shape
  int64_t full_blocks; ///< of these, the full ones
  double sparsity;     ///< fraction of blocks that are empty, in percent
} attnc_block_mask_info;
ATTNC_API attnc_status attnc_block_mask_get_info(const attnc_block_mask* mask, attnc_block_mask_info* info);

/// A picture in text of one (batch, head) (BlockMask::toString), at most `limit` rows and columns. Writes it with a 0
/// at its end into `buffer`, as far as `capacity` bytes hold it; `*length`: of all of it, without the 0. `buffer` may
/// be NULL if `capacity` is 0.
ATTNC_API attnc_status attnc_block_mask_text(const attnc_block_mask* mask, int64_t batch, int64_t head, int64_t limit,
                                             char* buffer, size_t capacity, size_t* length);

/// Bytes that the lists of a mask of this shape take in one allocation, and views into such an allocation, in host or
/// device memory, which begins at a multiple of 4 bytes. `with_columns`: by column, too. Nothing is touched there;
/// of_whole_mod is 0, and the caller's to set.
ATTNC_API attnc_status attnc_block_mask_storage_bytes(const attnc_block_mask_shape* shape, int32_t with_columns,
                                                      size_t* bytes);
ATTNC_API attnc_status attnc_block_mask_view_into(void* storage, const attnc_block_mask_shape* shape,
                                                  int32_t with_columns, attnc_block_mask_view* view);

/// Writes the lists into host memory of the caller's, laid out as attnc_block_mask_view_into() says for the mask's
/// shape, so that one copy brings them to a device. Entries past a count are 0. Errors: `bytes` fewer than
/// storage_bytes() says; columns of a mask that has none.
ATTNC_API attnc_status attnc_block_mask_write(const attnc_block_mask* mask, int32_t with_columns, void* storage,
                                              size_t bytes);

#ifdef __cplusplus
}
#endif
