// Kernel parameters, one definition for kernels and host. Plain types only, because the host includes this file.
//
// Strides are in elements. Index -> address arithmetic is 64-bit. A batch-broadcast K/V has kv batch stride 0.
#pragma once

namespace attnc {

/// Strides of a [batch, heads, rows, head_dim] tensor whose last stride is 1.
struct Strides {
  long long batch, head, row;
};

/// Lists of live KV blocks per block of Q rows, FlexAttention's BlockMask. All int32, device memory.
///   partial_count, full_count: [mask_batch, mask_heads, q_blocks]
///   partial_index, full_index: [mask_batch, mask_heads, q_blocks, index_stride]; entries past the count are undefined
/// batch_stride and head_stride count rows of q_blocks (0 to broadcast). full_* may be null: no full blocks.
struct BlockLists {
  const int* partial_count;
  const int* partial_index;
  const int* full_count;
  const int* full_index;
  long long batch_stride, head_stride; // elements of the count arrays
  long long index_stride;              // elements of the index arrays per q block
  int q_block, kv_block;               // rows and columns of a block: multiples of the kernel's tile by a power of two
};

/// Factors of elements, in device memory: one per head and batch entry, one for each kRowsOfScale rows of it, or one
/// for each row. Null: 1.
struct Scales {
  const float* first;
  long long batch, head, block; // strides; block 0: one for all rows
  long long row;                // stride, if by_row
  long long by_row;             // bool: one for each row, or for each page, which takes the place of b
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
  static constexpr int kRowsOfScale = 128;
  __device__ __forceinline__ float of(int b, int head_of_tensor, int row = 0) const {
    return first ? first[b * batch + head_of_tensor * head + row / kRowsOfScale * block] : 1.f;
  }
  __device__ __forceinline__ float of_row(int b_or_page, int head_of_tensor, int i) const {
    return first[b_or_page * batch + head_of_tensor * head + i * row];
  }
#endif
};

/// What only a ragged batch has: total rows of its tensors, over all sequences, and lists of its block mask. These are
/// BlockLists, by sequence, of blocks of the sequence's own rows and columns. They are packed because launches of other
/// batches pass no byte more.
struct RaggedRows {
  int q, kv;
  const int* partial_count;
  const int* partial_index;
  const int* full_count;
  const int* full_index;
  long long batch_stride, index_stride;
  int head_stride;
  short q_block, kv_block;
};
static_assert(sizeof(RaggedRows) == sizeof(BlockLists), "kernels of other batches have parameters of the same size");

/// Forward pass: out = softmax(mod(scale * q k^T)) v.
///
/// For a ragged batch the tensors have batch 1 and `rows` rows; batch is the number of sequences, and q_len and kv_len
/// are their maximum lengths. algo/sequence.cuh finds them.
struct ForwardParams {
  const void* q;  // [batch, q_heads, q_len, head_dim_qk]
  const void* k;  // [batch or 1, kv_heads, kv_len, head_dim_qk]
  const void* v;  // [batch or 1, kv_heads, kv_len, head_dim_v]
  void* out;      // [batch, q_heads, q_len, head_dim_v]
  float* lse;     // [batch, q_heads, q_len], natural log; null if not wanted
  float* row_max; // [batch, q_heads, q_len], natural units; null if not wanted
  Strides q_stride, k_stride, v_stride, out_stride;
  int batch, q_heads, kv_heads, q_len, kv_len;
  int group;   // q_heads / kv_heads: query heads that share a KV head
  float scale; // factor of q k^T, before score_mod
  int vectors; // 1: q, k, v and out have 16-byte aligned rows; 0: copy them element by element
  union {
    BlockLists lists;
    RaggedRows rows; // of a ragged batch
  };
};

/// Additional parameters of kernels with a cache. With kPageSize K and V are pools of pages, [pages, kv_heads,
/// kPageSize, head_dim], with the stride over pages in Strides::batch; kv_len is how many positions the page table has
/// room for. With kAppends the K and V rows of q's tokens are separate inputs; they are written into K and V, at the
/// end of a sequence's length.
struct CacheParams {
  const int* page_table;  // [batch, kv_len / kPageSize]: the page of positions i kPageSize .. (i + 1) kPageSize - 1
  long long table_stride; // elements from one sequence to the next
  int pages;              // of the pool
  const void* new_k;      // [batch, kv_heads, q_len, head_dim_qk]
  const void* new_v;      // [batch, kv_heads, q_len, head_dim_v]
  Strides new_k_stride, new_v_stride;
  Scales k_scale, v_scale; // of the heads of K and V, if these are e4m3 and the new rows are not
};
template <class Params> struct Cached : Params { CacheParams cache; };

/// Parameters of forward kernels with q, k and v of e4m3: factors of their elements.
template <class Params> struct Scaled : Params { Scales q_scale, k_scale, v_scale; };

/// Rows whose gradients backward_large.cu computes: workspace, set by backward_delta.cu.
struct LargeRows {
  int* counters;         // tiles that CTAs have taken, and tiles of q that are done; 0 at first
  unsigned char* chunks; // per 32 rows of a tile of q of each (batch, head): whether any is large; a multiple of 16
};

/// Backward pass: gradients of a scalar loss through out and lse of the forward pass. `forward` has its operands, and
/// out and lse as it left them; row_max is unused. `out`'s strides are forward.out_stride.
struct BackwardParams {
  ForwardParams forward;
  const void* d_out;  // [batch, q_heads, q_len, head_dim_v]: gradient of out
  const float* d_lse; // [batch, q_heads, q_len], dense: gradient of lse; null: 0
  float* delta;       // [batch, q_heads, q_len], dense: workspace, see backward_delta.cu
  float* row_sums;    // as delta: workspace, see algo/pairs.cuh; for large rows; the oracle's for all
  LargeRows large_rows;
  float* diagonals; // workspace, see BackwardParamsSm90; null if unused
  void* d_q;        // as q; written
  void* d_k;        // as k, of kv_batch batches; written
  void* d_v;        // as v
  Strides d_out_stride, d_q_stride, d_k_stride, d_v_stride;
  BlockLists columns; // forward.lists transposed: Q blocks per block of KV columns
  int kv_batch;       // batches of k and v: `batch`, or 1 if they are broadcast and their gradients are sums over all
};

/// Where the gradient of a capture is summed: one slot for each element of a dense tensor of its shape; 0 at first.
struct CaptureSum {
  void* slots;        // fp32; or words of algo/exact_sum.cuh, word k of element i at k * elements + i. Null: none
  long long elements; // of the capture
  int owned;          // fp32, and a single thread adds to a slot, without atomics. 1: in order; 2: once, so it stores
  int unused;         // instead of padding
};
constexpr int kMaxCaptureSums = 128; // ir::kMaxCaptures
constexpr int kExactWords = 10;      // per element

/// Gradients of captures, summed.
struct CaptureParams {
  BackwardParams backward;          // d_q, d_k and d_v are unused
  CaptureSum sums[kMaxCaptureSums]; // by Mod::Gradient*::kCapture
  int loops_batches; // 1: a CTA takes its tile for all batch entries in turn, and the grid has one entry's tiles
  int unused;        // instead of padding
};

/// Tangents: derivatives along t_q, t_k, t_v and those of captures. `backward` has the operands of the backward pass;
/// d_q, d_k and d_v receive tangents of the gradients.
struct TangentParams {
  BackwardParams backward;
  const void* t_q; // as q
  const void* t_k; // as k
  const void* t_v; // as v
  void* t_out;     // as out; written
  float* t_lse;    // as lse; written
  float* t_delta;  // as lse: workspace
  Strides t_q_stride, t_k_stride, t_v_stride, t_out_stride;
};

/// Tangents of gradients of captures, summed.
struct TangentCaptureParams {
  TangentParams tangents;
  CaptureSum sums[kMaxCaptureSums]; // by Mod::Gradient*::kCapture
};

/// Converts the sums of one capture's gradient to the requested tensor.
struct CaptureOutputParams {
  CaptureSum sum;
  void* out;
  int element_bits; // of out: 32: fp32; 16: bf16 or f16
  int is_bf16;
  int exact; // 1: the slots are words of algo/exact_sum.cuh
  int rank;
  long long shape[6], stride[6]; // of out; strides in elements
};

/// Building BlockLists from a mask_mod; the counts and indices are written.
struct BlockMaskParams {
  int* partial_count; // [batch, heads, q_blocks]
  int* partial_index; // [batch, heads, q_blocks, kv_blocks]
  int* full_count;
  int* full_index;
  int batch, heads, q_len, kv_len;
  int q_block, kv_block;
  int* column_partial_count; // [batch, heads, kv_blocks]; these four are null if unwanted
  int* column_partial_index; // [batch, heads, kv_blocks, q_blocks]
  int* column_full_count;
  int* column_full_index;
};

/// The same for blocks that are boxes of tokens on grids. There are three axes, slowest first; a grid with fewer has
/// leading extents of 1. A row of indices has room for all boxes of keys.
struct BoxMaskParams {
  int* partial_count; // [batch, heads, boxes of queries]
  int* partial_index; // [batch, heads, boxes of queries, boxes of keys]
  int* full_count;
  int* full_index;
  int batch, heads;
  int q_extent[3], kv_extent[3];
  int q_box[3], kv_box[3]; // tokens along each axis; their product is at most 256
};

/// Rounding of rows to e4m3: quantise.cu.
struct QuantiseParams {
  const void* x; // [batch, heads, rows, head_dim]
  void* out;     // the same; written
  float* scales; // of heads, or [batch, heads, blocks or rows] with last stride 1. attnc_quantise reads those of heads
  Strides x_stride, out_stride;
  long long scale_batch, scale_head; // strides of scales
  int batch, heads, rows;
  int rows_of_scale;   // rows that share a factor: Scales::kRowsOfScale, 1, or 0 for all of a head
  int rotates;         // bool
  unsigned seed;       // of signs
  unsigned scale_mask; // bits of a factor that are 0; it is rounded up to that
  // Only if kEmbeds:
  int rotary_columns;    // the first of a row
  const void* cos_sin;   // [positions, rotary_columns]: cosines of pairs, then sines. Rows are aligned to 16 bytes
  const int* positions;  // of rows, by batch and row. Null: a row's index
  long long cos_sin_row; // stride
  long long position_batch, position_row; // strides
  int last_position;                      // of cos_sin; positions are clamped to 0 .. last_position
  int cos_sin_is_f32;                     // bool; otherwise Element
  int interleaved;                        // bool: pairs are neighbours, else halves of the rotary columns
};

/// Wider q and k, whose further columns hold a low-rank term of the score, or, if kIsApart, only these columns:
/// low_rank.cu.
struct LowRankParams {
  ForwardParams base; // q, k, v and their strides; lse and lists are unused
  void* q;            // [batch, q_heads, q_len, columns], dense; written unless it is null
  void* k;            // [k_batch, k_heads, kv_len, columns], dense; written unless it is null
  void* v;            // [v_batch, k_heads, kv_len, head_dim_v], dense; written. Null: v serves as it is
  int k_batch, v_batch;
  int k_heads;        // kv_heads, or q_heads if heads that share k have factors of their own. If kIsApart, 1 or q_heads
  float factor_times; // factor of q_factor
};

/// Gradients of wider q and k, divided among q, k and the captures in the factors of a low-rank term:
/// low_rank_gradients.cu.
struct LowRankGradientParams {
  BackwardParams backward;          // of q and k; d_q, d_k and d_v are written, unless d_q and d_k are null
  const void* d_q;                  // [batch, q_heads, q_len, kWideHeadDim], dense
  const void* d_k;                  // [k_batch, k_heads, kv_len, kWideHeadDim], dense
  const void* d_v;                  // [k_batch, k_heads, kv_len, head_dim_v], dense. Null: backward.d_v is complete
  int k_batch, k_heads;             // as in LowRankParams
  float own_times;                  // factor of d_q and d_k as given
  float factor_times;               // factor of q_factor
  int q_batches, q_heads;           // of a tile of q: a thread adds up factors of that many batch entries, or heads
  int kv_batches, kv_heads;         // of a tile of k
  CaptureSum sums[kMaxCaptureSums]; // by Mod::Gradient*::kCapture
};

/// Merges the attention of a stage of a plan of shards into that of the stages before. Rows are those of all heads and
/// batch entries. Tensors but `out` are dense.
struct MergeStagesParams {
  const void* part;      // [batch, heads, rows, head_dim_v], attention of the stage; null: nothing lives
  const float* part_lse; // [batch, heads, rows]
  float* sum;     // [batch, heads, rows, head_dim_v], attention of the stages before; written unless `out` is given
  float* sum_lse; // [batch, heads, rows]; written unless `out` is given
  void* out;      // [batch, heads, rows, head_dim_v]; written; null: more stages follow
  float* out_lse; // [batch, heads, rows]; written with `out`; null if not wanted
  Strides out_stride;
  int batch, heads, rows;
  int is_first; // bool: there is no stage before
};

/// Weighs the gradients of out and lse for a stage, by its share of each row. Rows as above. Tensors but `d_out` are
/// dense.
struct WeighStageParams {
  const float* lses;  // [stages, batch, heads, rows], of all stages
  const void* d_out;  // [batch, heads, rows, head_dim_v]
  const float* d_lse; // [batch, heads, rows]; null: 0
  void* to;           // [batch, heads, rows, head_dim_v]; written
  float* to_lse;      // [batch, heads, rows]; written if `d_lse` is given
  Strides d_out_stride;
  int stages, stage, batch, heads, rows;
};

/// Adds the gradient of a stage to that of the stages before.
struct AddStageParams {
  const void* part; // [batch, heads, rows, columns], gradient of the stage; null: 0
  float* sum;       // [batch, heads, rows, columns], gradient of the stages before; written unless `out` is given
  void* out;        // [batch, heads, rows, columns]; written; null: more stages follow
  Strides part_stride, sum_stride, out_stride;
  int batch, heads, rows, columns;
  int is_f32; // bool: part and out are f32, whatever Element is
};

} // namespace attnc
