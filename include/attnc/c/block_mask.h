/// Block masks: which blocks of the score matrix are live, and which of those need mask_mod (block_mask.h).
#pragma once

#include "attnc/c/mod.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Size of a mask and of its blocks, in elements (BlockMaskShape).
typedef struct attnc_block_mask_shape {
  int64_t batch, heads;      ///< Masks over batch and heads. 1 means one mask for all. Default: 1.
  int64_t q_len, kv_len;     ///< Lengths; at most 2^24 for kernels.
  int32_t q_block, kv_block; ///< Rows and columns of a block: 64, 128 or 256. Default: 128.
} attnc_block_mask_shape;

/// Lists along one axis: by row or by column, all dense (BlockMaskView, BlockMaskColumns).
typedef struct attnc_block_lists {
  int32_t* partial_count; ///< [batch, heads, blocks]. All four pointers are NULL if these lists do not exist.
  int32_t* partial_index; ///< [batch, heads, blocks, index_stride]. Entries past a count are undefined.
  int32_t* full_count;    ///< As partial_count, for full blocks. NULL with full_index if every live block is partial.
  int32_t* full_index;    ///< As partial_index, for full blocks.
  int64_t index_stride;   ///< Stride between rows of indices, in elements.
} attnc_block_lists;

/// Borrowed lists, in host or device memory (BlockMaskView).
typedef struct attnc_block_mask_view {
  size_t struct_size;           ///< sizeof(attnc_block_mask_view).
  attnc_block_mask_shape shape; ///< Size of the mask and of its blocks.
  attnc_block_lists rows;       ///< For each block of q rows, its live kv blocks.
  attnc_block_lists columns;    ///< For each block of kv columns, its live q blocks. Only backward kernels read them.
  int32_t of_whole_mod;         ///< 0 or 1: whether full blocks are also free of masks by score_mod (ofWholeMod).
  int32_t reserved;             ///< Must be 0.
} attnc_block_mask_view;

/// A block mask in host memory that owns its lists. It is immutable.
typedef struct attnc_block_mask attnc_block_mask;

/// Builds a mask by evaluating mask_mod on the CPU (BlockMask::build). Captures are in host memory.
ATTNC_API attnc_status attnc_block_mask_build(const attnc_mod* mod, const attnc_capture* captures, size_t capture_count,
                                              const attnc_problem* problem, const attnc_block_mask_shape* shape,
                                              attnc_block_mask** mask);
/// Copies lists from host memory, and checks them (BlockMask::fromLists).
ATTNC_API attnc_status attnc_block_mask_from_lists(const attnc_block_mask_view* lists, attnc_block_mask** mask);
/// Creates a copy that also has lists by column (BlockMask::withColumns).
ATTNC_API attnc_status attnc_block_mask_with_columns(const attnc_block_mask* mask, attnc_block_mask** copy);
/// Destroys a mask, and with it the lists of its views.
ATTNC_API void attnc_block_mask_destroy(attnc_block_mask* mask);

/// Fills a view of the lists in host memory. They live as long as the mask, and must not be written.
ATTNC_API attnc_status attnc_block_mask_get_view(const attnc_block_mask* mask, attnc_block_mask_view* view);

/// Counts of a mask's blocks.
typedef struct attnc_block_mask_info {
  size_t struct_size;  ///< sizeof(attnc_block_mask_info).
  int64_t live_blocks; ///< Number of partial and full blocks, over all batches and heads of the shape.
  int64_t full_blocks; ///< Number of full blocks, over all batches and heads of the shape.
  double sparsity;     ///< Fraction of blocks that are empty, in percent.
} attnc_block_mask_info;
/// Fills the counts of a mask's blocks.
ATTNC_API attnc_status attnc_block_mask_get_info(const attnc_block_mask* mask, attnc_block_mask_info* info);

/// Writes a picture in UTF-8 text of one (batch, head), of at most `limit` rows and columns (BlockMask::toString). The
/// text goes to `buffer` with a final 0, truncated to `capacity` bytes. The length of the whole text, without the 0,
/// goes to `*length`. A `capacity` of 0 allows `buffer` to be NULL.
ATTNC_API attnc_status attnc_block_mask_text(const attnc_block_mask* mask, int64_t batch, int64_t head, int64_t limit,
                                             char* buffer, size_t capacity, size_t* length);

/// Computes the bytes of one allocation for the lists of this shape (BlockMask::storageBytes). `with_columns` is 1 to
/// include lists by column.
ATTNC_API attnc_status attnc_block_mask_storage_bytes(const attnc_block_mask_shape* shape, int32_t with_columns,
                                                      size_t* bytes);
/// Fills a view of lists in `storage`: host or device memory, aligned to 4 bytes, that the caller owns. Does not touch
/// the memory. It sets of_whole_mod to 0, which the caller may change (BlockMask::viewInto).
ATTNC_API attnc_status attnc_block_mask_view_into(void* storage, const attnc_block_mask_shape* shape,
                                                  int32_t with_columns, attnc_block_mask_view* view);

/// Writes the lists into host memory of the caller, so that one copy brings them to a device. The layout is that of
/// attnc_block_mask_view_into() for the mask's shape. Entries past a count are 0. Errors: fewer `bytes` than
/// attnc_block_mask_storage_bytes(); columns asked of a mask without lists by column.
ATTNC_API attnc_status attnc_block_mask_write(const attnc_block_mask* mask, int32_t with_columns, void* storage,
                                              size_t bytes);

#ifdef __cplusplus
}
#endif
