/// Plans of shards: which rank of several GPUs computes what, and which keys and values travel (shard.h).
#pragma once

#include "attnc/c/mod.h"

#ifdef __cplusplus
extern "C" {
#endif

/// How rows are dealt to ranks (ShardLayout).
typedef int32_t attnc_shard_layout;
enum {
  ATTNC_SHARD_AUTO = 0,       ///< The layout with the best predicted efficiency.
  ATTNC_SHARD_CONTIGUOUS = 1, ///< One interval a rank, in order.
  ATTNC_SHARD_ZIGZAG = 2,     ///< Two intervals a rank, the i-th from the front and the i-th from the back.
  ATTNC_SHARD_GREEDY = 3,     ///< Chunks by decreasing work, each to the rank with the least.
};

/// One mask of a model (ShardMask).
typedef struct attnc_shard_mask {
  size_t struct_size;            ///< sizeof(attnc_shard_mask).
  const attnc_mod* mod;          ///< The mod.
  const attnc_capture* captures; ///< Its captures, in host memory.
  size_t capture_count;          ///< Number of captures.
  double layers;                 ///< Number of layers with this mask. 0: one.
} attnc_shard_mask;

/// Lengths of one sequence (ShardLengths).
typedef struct attnc_shard_lengths {
  int64_t q, kv; ///< Rows of q, and rows of k and v.
} attnc_shard_lengths;

/// How to plan, and the machine that predictions assume (ShardOptions). A 0 is the default of C++.
typedef struct attnc_shard_options {
  size_t struct_size;                 ///< sizeof(attnc_shard_options).
  const attnc_shard_lengths* lengths; ///< Lengths of a ragged batch, one entry for each batch entry.
  size_t length_count;                ///< Number of lengths. 0: all batch entries have the problem's.
  double flops;                       ///< FLOP/s of a rank on live blocks.
  double bandwidth;                   ///< Bytes/s that a rank receives, and sends at the same time.
  double memory;                      ///< Bytes/s of a rank's memory.
  double latency;                     ///< Seconds that a stage's transfers take besides their bytes.
  attnc_shard_layout layout;          ///< Layout of the rows.
  int32_t stages;                     ///< Most stages with transfers. 0: chosen by prediction.
  int32_t block;                      ///< Rows and columns of the blocks that are judged: 64, 128 or 256.
  int32_t head_dim;                   ///< Columns of q and k.
  int32_t head_dim_v;                 ///< Columns of v and out.
  int32_t element_bytes;              ///< Bytes of an element of k and v.
  int32_t backward;                   ///< 0 or 1: whether to predict a backward pass.
  int32_t reserved;                   ///< Must be 0.
  int32_t head_groups;                ///< Groups of heads, which the ranks of a team divide among themselves.
  int32_t reserved2;                  ///< Must be 0.
} attnc_shard_options;

/// A plan of shards (ShardPlan). It is immutable.
typedef struct attnc_shard_plan attnc_shard_plan;

/// Plans for `mask_count` masks that share one layout (ShardPlan::make). `options` may be NULL. Captures are read
/// during the call. Errors: those of ShardPlan::make. `*plan` is then unchanged.
ATTNC_API attnc_status attnc_shard_plan_create(const attnc_shard_mask* masks, size_t mask_count,
                                               const attnc_problem* problem, int32_t world,
                                               const attnc_shard_options* options, attnc_shard_plan** plan);
/// Destroys a plan, and with it its arrays.
ATTNC_API void attnc_shard_plan_destroy(attnc_shard_plan* plan);

/// Facts of a whole plan.
typedef struct attnc_shard_plan_info {
  size_t struct_size;        ///< sizeof(attnc_shard_plan_info).
  double bytes_received;     ///< Bytes that travel in the forward pass of all layers, over all ranks.
  double efficiency;         ///< Predicted time of one GPU, over `world` times that of the slowest ranks.
  int32_t world;             ///< Number of ranks.
  int32_t stages;            ///< Largest stage of a piece. 0: nothing travels.
  attnc_shard_layout layout; ///< Layout that was taken; never AUTO.
  int32_t mask_count;        ///< Number of masks.
  int32_t head_groups;       ///< Groups of heads: ranks of a team.
  int32_t reserved;          ///< 0.
} attnc_shard_plan_info;
/// Fills the facts of a plan.
ATTNC_API attnc_status attnc_shard_plan_get_info(const attnc_shard_plan* plan, attnc_shard_plan_info* info);

/// Tokens [begin, end) of the packed batch (ShardInterval).
typedef struct attnc_shard_interval {
  int64_t begin, end; ///< First token, and the one behind the last.
} attnc_shard_interval;

/// The tokens of one rank (ShardTokens). Arrays live as long as the plan.
typedef struct attnc_shard_tokens {
  size_t struct_size;               ///< sizeof(attnc_shard_tokens).
  const attnc_shard_interval* rows; ///< Rows of q in the order in which the rank holds them.
  size_t row_count;                 ///< Number of intervals of rows.
  const attnc_shard_interval* keys; ///< Rows of k and v that the rank owns, in the same way.
  size_t key_count;                 ///< Number of intervals of keys.
} attnc_shard_tokens;
/// Fills the tokens of a rank. Errors: a rank out of range.
ATTNC_API attnc_status attnc_shard_plan_get_tokens(const attnc_shard_plan* plan, size_t rank,
                                                   attnc_shard_tokens* tokens);

/// Keys that a rank attends to in one stage, from one owner (ShardPiece).
typedef struct attnc_shard_piece {
  int32_t stage, from; ///< The stage, 0 for the rank's own keys; and the rank that owns the keys.
  int64_t begin, end;  ///< Keys [begin, end) of the packed batch. All lie in one interval of the owner, or of its team.
} attnc_shard_piece;

/// What one rank computes for one mask (ShardWork). Arrays live as long as the plan.
typedef struct attnc_shard_work {
  size_t struct_size;              ///< sizeof(attnc_shard_work).
  const attnc_shard_piece* pieces; ///< Pieces by increasing stage, then by increasing key.
  size_t piece_count;              ///< Number of pieces.
  double pairs;                    ///< Pairs of query and key in live blocks, over all batch entries and heads.
  double seconds;                  ///< Predicted time of one layer.
  int64_t keys_received;           ///< Keys that travel to the rank, of one KV head.
  int64_t keys_sent;               ///< Keys that travel from the rank, of one KV head.
  /// Rows of q that each stage concerns, among those of the rank, or of its team (ShardWork::stageRows).
  const attnc_shard_interval* stage_rows;
  size_t stage_count; ///< Number of stages, the first included.
} attnc_shard_work;
/// Fills what a rank computes for a mask. Errors: an index out of range.
ATTNC_API attnc_status attnc_shard_plan_get_work(const attnc_shard_plan* plan, size_t mask, size_t rank,
                                                 attnc_shard_work* work);

#ifdef __cplusplus
}
#endif
