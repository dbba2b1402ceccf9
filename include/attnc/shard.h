// Plans of shards: which GPU of several computes what, and which keys and values travel. They are made from masks.
//
// ```
//   auto plan = attnc::ShardPlan::make({{.mod = &*mod, .captures = &captures}}, problem, /*world=*/8);
//   // What rank 3 attends to, in stages:
//   for (const attnc::ShardPiece& piece : plan->masks[0].ranks[3].pieces) ...
// ```
//
// In: mods, the shape of the problem, the number of ranks. Out: data. A plan moves nothing and launches nothing;
// process groups of the caller do. It is the same on every machine.
//
// Each row of q has one owner. The owner computes all live pairs of its rows, so that q and the output never travel.
// Live keys and values travel to it. They come in stages, and the attention of a stage hides the transfer of the next.
// Each stage gives a partial output and its lse. They merge over stages s in increasing order.
//
// ```
//   lse = log(sum(exp(lse_s)))    out = sum(exp(lse_s - lse) * out_s)
// ```
//
// In a backward pass, gradients of keys and values travel back. Their owner adds them up. If it adds in the order of
// ranks, results are deterministic. Gradients of captures are summed over all ranks. Captures stay
// whole on each rank: mods see the positions of the whole problem.
#pragma once

#include "attnc/captures.h"
#include "attnc/error.h"
#include "attnc/mod.h"
#include "attnc/problem.h"

#include <cstdint>
#include <vector>

namespace attnc {

/// Tokens [begin, end) of the packed batch: sequences lie one behind the other (ShardPlan::qStarts, kvStarts).
struct ShardInterval {
  int64_t begin = 0, end = 0; ///< First token, and the one behind the last.
  friend bool operator==(const ShardInterval&, const ShardInterval&) = default;
};

/// How rows are dealt to ranks. Every layout gives each rank as many rows, or one chunk's remainder less. If masks have
/// one grid, `Contiguous` may deal whole slices of it along its first axis, such as frames: ranks differ by one.
enum class ShardLayout {
  Auto,       ///< The layout with the best predicted efficiency.
  Contiguous, ///< One interval a rank, in order.
  ZigZag,     ///< Two intervals a rank, the i-th from the front and the i-th from the back: balances causal masks.
  Greedy,     ///< Chunks by decreasing work, each to the rank with the least: balances documents and any other mask.
};

/// One mask of a model. Several masks share a layout: layers with a window and layers without.
struct ShardMask {
  const Mod* mod = nullptr;           ///< The mod; borrowed during make().
  const Captures* captures = nullptr; ///< Its captures in host memory, borrowed during make(). Null: none.
  double layers = 1;                  ///< Number of layers with this mask.
};

/// Lengths of one sequence.
struct ShardLengths {
  int64_t q = 0, kv = 0; ///< Rows of q, and rows of k and v.
};

/// How to plan, and the machine that predictions assume.
struct ShardOptions {
  ShardLayout layout = ShardLayout::Auto; ///< Layout of the rows.
  int stages = 0;                         ///< Most stages with transfers, 1 to 32. 0: chosen by prediction.
  /// Groups of heads (Ulysses): a divisor of the world, of H and of HKV. As many neighbouring ranks form a team. A team
  /// computes the rows of all its ranks, each rank for one group of heads, in order. So each rank exchanges heads for
  /// rows within its team first, and rows for heads afterwards. Keys travel between ranks of the same group.
  int headGroups = 1;
  /// Lengths of a ragged batch, one entry for each batch entry, at most the problem's. Empty: all batch entries have
  /// the problem's lengths, and share one layout. Blocks are judged up to the problem's lengths, and cut off at these.
  std::vector<ShardLengths> lengths = {};
  int block = 128;          ///< Rows and columns of the blocks that intervals judge: 64, 128 or 256.
  int headDim = 128;        ///< Columns of q and k.
  int headDimV = 128;       ///< Columns of v and out.
  int elementBytes = 2;     ///< Bytes of an element of k and v.
  bool backward = false;    ///< Whether to predict a backward pass, in which gradients of keys travel back.
  double flops = 650e12;    ///< FLOP/s of a rank on live blocks.
  double bandwidth = 350e9; ///< Bytes/s that a rank receives, and sends at the same time.
  double memory = 4e12;     ///< Bytes/s of a rank's memory, which merging partial results takes.
  double latency = 10e-6;   ///< Seconds that a stage's transfers take besides their bytes.
};

/// Keys that a rank attends to in one stage, from one owner.
struct ShardPiece {
  int stage = 0; ///< Stage 0 has the rank's own keys; they do not travel.
  int from = 0;  ///< Rank that owns the keys. With groups of heads: the rank of the same group, in the owner's team.
  ShardInterval keys; ///< Keys of the packed batch. All lie in one interval of the owner, or of its team.
};

/// What one rank computes for one mask.
struct ShardWork {
  /// Pieces by increasing stage, then by increasing key. No two pieces overlap.
  std::vector<ShardPiece> pieces;
  /// Rows of q that see keys of a stage, by stage: [begin, end) among the rows of the rank, or of its team. Rows
  /// between them count as well. Others need no merging in that stage.
  std::vector<ShardInterval> stageRows;
  double pairs = 0;         ///< Pairs of query and key in live blocks, over all batch entries and heads.
  int64_t keysReceived = 0; ///< Keys that travel to the rank, of one KV head.
  int64_t keysSent = 0;     ///< Keys that travel from the rank, of one KV head.
  double seconds = 0;       ///< Predicted time of one layer.
};

/// The work of all ranks for one mask.
struct ShardMaskPlan {
  double layers = 1;            ///< As ShardMask::layers.
  std::vector<ShardWork> ranks; ///< One entry for each rank.
  double pairs = 0;             ///< Pairs of all ranks.
  /// Largest work of a rank, over the mean; 1 is perfect balance, and what a mask without live pairs has.
  double imbalance = 1;
  int64_t evaluatedBlocks = 0; ///< Blocks that intervals left open, whose scores were evaluated (BlockRuns).
};

/// The tokens of one rank.
struct ShardTokens {
  /// Rows of q in the order in which the rank holds them: local row i is the i-th token of these intervals.
  std::vector<ShardInterval> rows;
  /// Rows of k and v that the rank owns, in the same way. These are `rows` if all sequences have equal lengths of q and
  /// kv; otherwise all keys are dealt in order.
  std::vector<ShardInterval> keys;

  /// Returns the number of rows of q.
  int64_t rowCount() const;
  /// Returns the number of rows of k and v.
  int64_t keyCount() const;
  /// Returns the token of a local row. Precondition: 0 <= row < rowCount().
  int64_t tokenOfRow(int64_t row) const;
};

/// Who computes what, and which keys travel.
struct ShardPlan {
  int world = 1;                                ///< Number of ranks.
  int headGroups = 1;                           ///< As ShardOptions::headGroups.
  ProblemShape problem = {};                    ///< The whole problem.
  bool isRagged = false;                        ///< Whether ShardOptions::lengths were given.
  ShardLayout layout = ShardLayout::Contiguous; ///< Layout that was taken; never Auto.
  int stages = 0;                               ///< Largest stage of a piece. 0: nothing travels.
  /// First token of each sequence, and the number of all tokens: [sequences + 1]. A mod sees position 0 at the first
  /// token of a sequence. Without ShardOptions::lengths, one sequence stands for all batch entries.
  std::vector<int64_t> qStarts, kvStarts;
  std::vector<ShardTokens> ranks;   ///< One entry for each rank.
  std::vector<ShardMaskPlan> masks; ///< One entry for each mask.
  double bytesReceived = 0;         ///< Bytes that travel in the forward pass of all layers, over all ranks.
  /// Predicted time of one GPU that computes all pairs, divided by `world` and by the predicted time of the slowest
  /// ranks. 1 if nothing lives.
  double efficiency = 1;

  /// Returns what a rank computes with: the tokens of all ranks of its team, one behind the other. With one group of
  /// heads, they are those of the rank.
  ShardTokens teamOf(int rank) const;

  /// Plans. Blocks are judged by intervals (BlockRuns::build()), on all cores; needs no disk and no GPU. Memory grows
  /// with the runs of the masks and the pieces of the plan.
  ///
  /// A mask of several heads or batch entries lives where any of them lives: keys travel for all heads at once.
  ///
  /// Errors (environment): no mask; a world outside 1 .. 65536; options or lengths out of range; those of
  /// BlockRuns::build().
  static Expected<ShardPlan> make(const std::vector<ShardMask>& masks, const ProblemShape& problem, int world,
                                  const ShardOptions& options = {});
};

/// Returns "auto", "contiguous", "zigzag" or "greedy".
const char* shardLayoutName(ShardLayout layout);

} // namespace attnc
