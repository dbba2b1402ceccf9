// What attnc knows of a plan, as data: what it is, why it was chosen, and what it costs.
//
// ```
//   auto preparation = compiler.settle(mod, operands, outputs, {.arch = "sm_90a"});
//   auto explanation = explain(compiler, *preparation, captures); // captures in host memory
//   std::string json = toJson(*explanation);
// ```
//
// Structs own what they hold. Functions are thread-safe, except those of MaskReader, and read captures only during the
// call. They need no GPU. C has explain() of settled choices.
#pragma once

#include "attnc/compiler.h"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace attnc {

/// Operations of the IR. Each is counted once, at the outermost level that knows it; inside a sum, once per round.
/// Counts saturate.
struct OperationCounts {
  uint64_t launch = 0;                        ///< Operations per launch.
  uint64_t head = 0;                          ///< Operations per batch entry and head.
  uint64_t row = 0;                           ///< Operations per row of q.
  uint64_t column = 0;                        ///< Operations per column of k and v.
  uint64_t element = 0;                       ///< Operations per score.
  std::map<std::string, uint64_t> perElement; ///< Operations of `element`, by their names in the IR.
};

/// Operations of the functions of a mod.
struct ModOperations {
  std::optional<OperationCounts> scoreMod; ///< Unset if the mod has no score_mod.
  std::optional<OperationCounts> maskMod;  ///< Unset if the mod has no mask_mod.
  std::optional<OperationCounts> probMod;  ///< Unset if the mod has no prob_mod.
  std::optional<OperationCounts> sinkMod;  ///< Unset if the mod has no sink_mod.
  std::optional<OperationCounts> dScore;   ///< Operations of the score's gradient that score_mod lacks; for backward.
};

/// One operation of a mod, where its text has it and where kernels compute it.
struct ModOperation {
  std::string function;   ///< "score_mod", "mask_mod", "prob_mod", "sink_mod", or "d_score" for what only the score's
                          ///< gradient needs.
  int line = 0;           ///< Line in the mod's text. 0: unknown.
  std::string name;       ///< Name in the IR: "mul".
  std::string expression; ///< What it computes, in the words of the text: "slopes[h] * (kv_idx - q_idx)".
  std::string level;      ///< Where it is computed: "launch", "head", "row", "column" or "element".
  uint64_t times = 1;     ///< Number of times at that level. More than 1 only inside a sum.
};

/// One index of one gather: whether it stays inside its tensor for every launch. Other gathers are clamped.
struct GatherProof {
  std::string capture; ///< Name of the capture.
  int rank = 0;        ///< Number of axes of the capture.
  int index = 0;       ///< Axis of the index.
  int line = 0;        ///< Line in the mod's text. 0: unknown.
  bool proven = false; ///< Whether the index stays inside for every launch.
  /// The bounds if proven: "0 <= h <= H - 1". Else when it does, an example where not, or what it depends on.
  std::string why;
};

/// A condition of the mod that every launch must meet.
struct LaunchCondition {
  std::string words; ///< The condition, as text for people.
  int line = 0;      ///< Line in the mod's text. 0: unknown.
};

/// An integer operation that is computed in 64 bits, because 32 may not hold its result.
struct WideOperation {
  std::string words; ///< An example: "3 * 1000000000 is 3000000000".
  int line = 0;      ///< Line in the mod's text. 0: unknown.
};

/// A grid on which tokens lie. Extents are text: "128", "HEIGHT", "KV_LEN / 64".
struct GridInfo {
  std::vector<std::string> extents; ///< Extents of two or three axes, the slowest first.
  std::string before;               ///< Number of tokens before the grid; "0" if it begins at the first token.
  bool takesRest = false;           ///< Whether the first extent follows from the length.
  bool ofQueries = false;           ///< Whether mask_mod asks for coordinates of q_idx on this grid.
  bool ofKeys = false;              ///< Whether mask_mod asks for coordinates of kv_idx on this grid.
};

/// Keys along one axis of a grid that a query sees: those of [begin, end) that are `phase` modulo `step`. Members are
/// expressions of the query's coordinates qz, qy, qx. Empty `begin`: all keys. Empty `step`: every key of the range.
struct GridAxisRange {
  std::string axis;                    ///< "z", "y" or "x".
  std::string begin, end, step, phase; ///< The range, as expressions.
};

/// Box of keys that a query sees on the grid of keys.
struct GridBoxInfo {
  bool isMask = false;             ///< Whether mask_mod asks for nothing more than this box.
  std::vector<GridAxisRange> axes; ///< Ranges along the axes of the grid.
  std::string offGrid; ///< Which tokens outside the grid see what, as text. Empty if the mod expects none there.
};

/// Grids of a mod, and the box of keys that a query sees on them.
struct ModGrids {
  /// Grids, declared or found in `//` and `%` of positions. Found ones only if they are of queries and of keys.
  std::vector<GridInfo> grids;
  bool isDeclared = false;        ///< Whether the mod declares its grids.
  std::optional<GridBoxInfo> box; ///< Unset if there is no box of keys.
  std::string whyNoBox;           ///< Why there is no box. Empty if there is one, or no grid.
  std::string served;             ///< Which kernels serve a grid that is not declared. Empty for declared ones.
  /// Number by which the mod divides positions although it has no grid; empty for others. A declared grid would help.
  std::string divisor;
};

/// Whether gradients flow through score_mod to q and k.
enum class ScoreGradient {
  Some,    ///< Gradients flow through score_mod.
  Stopped, ///< score_mod reads the score, and passes no gradient on.
  NoScore, ///< score_mod does not read the score.
};

/// One of the mods that a mod chooses between by the sequence.
struct ModVariant {
  std::string when;         ///< Sequences that have it: "which[b] == 0", or "otherwise".
  ModOperations operations; ///< Operations of its functions by itself.
};

/// What attnc understood of a mod.
struct ModExplanation {
  Mod mod;                                           ///< The mod.
  std::vector<Diagnostic> warnings;                  ///< As Mod::warnings().
  ModOperations operations;                          ///< Operations of the forward pass.
  std::vector<ModOperation> places;                  ///< Each operation of the forward pass, with its line.
  std::vector<LaunchCondition> conditions;           ///< Conditions that every launch must meet.
  std::vector<GatherProof> gathers;                  ///< One entry for each index of each gather.
  ModGrids grids;                                    ///< Grids, and the box of keys that a query sees.
  ScoreGradient scoreGradient = ScoreGradient::Some; ///< Whether gradients flow through score_mod.
  std::vector<WideOperation> wide;                   ///< Operations on positions and scalars that take 64 bits.
  std::vector<ModVariant> variants; ///< Mods that it chooses between by the sequence; none: it has one.
};
/// Explains a mod. Takes up to some tenths of a second to search for counter-examples of gathers. Errors: those of
/// compiling a mod with derivatives.
Expected<ModExplanation> explain(const Mod& mod);

/// Returns the grids of a mod. Errors (internal): a pass failed.
Expected<ModGrids> gridsOf(const Mod& mod);

/// Extents of a grid in a launch, in tokens.
struct GridExtents {
  std::vector<int64_t> extents; ///< Extents of two or three axes, the slowest first.
  int64_t before = 0;           ///< Number of tokens before the grid.
};
/// Grids of a launch. Unset if mask_mod asks for coordinates on none, or on several.
struct LaunchGrids {
  std::optional<GridExtents> queries, keys; ///< Grids of the queries and of the keys.
};
/// Returns the grids of a launch. Errors (environment): captures that do not fit.
Expected<LaunchGrids> gridsOf(const Mod& mod, const Captures& captures, const ProblemShape& problem);

/// Counts of blocks over all batch entries and heads. They are doubles because problems have up to 2^82 blocks.
struct MaskCensus {
  BlockMaskShape shape; ///< Size of the mask and of its blocks.
  double blocks = 0;    ///< Number of all blocks.
  double live = 0;      ///< Number of blocks with a live score.
  double full = 0;      ///< Number of blocks of `live` that lie entirely in [qLen, kvLen) and have only live scores.
  double pairs = 0;     ///< Number of scores of [qLen, kvLen) in live blocks.

  double estimated = 0; ///< Number of blocks whose state is inferred from samples; 0 if all counts are exact.
  double sampled = 0;   ///< Number of blocks that they are inferred from.

  int64_t operations = 0; ///< Operations of mask_mod that the census took.
};
/// Counts the blocks of a mask without building its lists, in bounded time: some seconds on one core. Beyond that it
/// estimates, the same on every machine. Uses all cores. Blocks may have any size from 1 on. Errors (environment):
/// blocks that are boxes, or lengths other than the problem's; captures that do not fit.
Expected<MaskCensus> takeCensus(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                const BlockMaskShape& shape);

/// State of a cell of a block map.
enum class BlockState : uint8_t {
  Empty,   ///< All blocks are empty.
  Partial, ///< Some blocks live, and none of them is full.
  Mixed,   ///< Some blocks are full, and some are not.
  Full,    ///< All blocks are full.
  Unknown, ///< Unknown within the limits of time.
};

/// Blocks of a mask, for batch entries and heads that look the same. A cell is one block, or several if there are many.
struct BlockMap {
  std::vector<std::pair<int64_t, int64_t>> heads; ///< (batch entry, head) of the mask, in order.
  int64_t rows = 0, columns = 0;                  ///< Number of cells along q and along kv; at most 128.
  int64_t qStep = 0, kvStep = 0;                  ///< Rows of q and columns of kv of a cell.
  std::vector<BlockState> cells;                  ///< States, row by row.
};
/// Maps the blocks of a mask in bounded time: about a second on one core. Looks at 16 batch entries and heads at most,
/// and returns four different maps at most. Errors (environment): those of takeCensus().
Expected<std::vector<BlockMap>> mapBlocks(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                          const BlockMaskShape& shape);

/// A CTA's box of queries on the grid, and the keys that its queries see there. Ends are exclusive.
struct GridTile {
  std::array<int64_t, 3> query{};              ///< Coordinates of the first query.
  std::array<int64_t, 3> keyBegin{}, keyEnd{}; ///< Box around the keys. Empty if they see none.
  int64_t steps = 0;                           ///< Number of boxes of keys that the CTA reads.
};

/// Work of a box kernel over all batch entries and heads. If the boxes of keys differ by (batch, head) and there are
/// many of these, a sample stands for all.
struct GridCensus {
  /// Whether CTAs own boxes of keys and step along queries (backward); else the other way round.
  bool ownsKeys = false;
  std::array<int, 3> queryBox{}, keyBox{}; ///< Boxes in tokens. One is a CTA's, the other a step's.
  double tiles = 0;   ///< Number of boxes that CTAs own, and of tiles of off-grid tokens of the same size.
  double steps = 0;   ///< Number of boxes that these read, and of blocks of off-grid tokens of the same size.
  double visited = 0; ///< Pairs of query and key in steps that the query's warp or warpgroup computes.
  /// Pairs of `visited` whose key is in the query's box; for off-grid tokens, pairs that mask_mod may let live.
  double live = 0;
  /// With lists: steps that need no mask. `live` then counts pairs that are live.
  std::optional<double> full = {};
  bool isEstimate = false;                       ///< Whether a sample stands for all.
  bool mayLieBeside = false;                     ///< Whether off-grid tokens are counted as well.
  bool differsByHead = false;                    ///< Whether batch entries or heads have different boxes of keys.
  std::array<int64_t, 3> queryGrid{}, keyGrid{}; ///< Extents of the grids in tokens.
  /// Tiles on the grid, of the first batch entry and head. Empty if CTAs own keys, or walk lists; or above 4096 tiles.
  std::vector<GridTile> ofFirstHead;
};

/// Minimum work of a problem.
struct Work {
  ProblemShape problem; ///< The problem that was counted.
  double pairs = 0;     ///< Live pairs of query and key over all batch entries and heads.
  /// Columns over all batch entries and KV heads. For a decode kernel, those that some query sees; if heads see
  /// different ones, their mean. For other kernels, all columns.
  double kvColumns = 0;
  bool isEstimate = false; ///< Whether the counts are estimates.

  /// Returns the FLOPs. As usual, only matrix products count: two for a forward pass, five for a backward one.
  double flops(const KernelOptions& kernel) const;
  /// Returns the bytes of memory traffic if each tensor is read or written once. These are q, k, v and out; for a
  /// backward pass also lse and the gradients.
  double bytes(const KernelOptions& kernel) const;
};
/// Counts in bounded time; beyond that it estimates. Sequences count as a whole, with all rows and columns of the
/// problem. `captures` are in host memory. Errors: captures that do not fit.
Expected<Work> countWork(const Plan& plan, const Captures& captures, const ProblemShape& problem);

/// FLOPs of matrix products: of all pairs, and of those in live blocks. An estimate if the census is one.
struct WorkFlops {
  double dense = 0, live = 0; ///< FLOPs of all pairs, and of pairs in live blocks.
};
/// Returns the FLOPs of a settled problem. `boxes`: for a box kernel. A backward pass counts 2.5 times the forward one.
WorkFlops flopsOf(const MaskCensus& census, const std::optional<GridCensus>& boxes, const Preparation& preparation);
/// Returns the share of K and V in live blocks, which a decode kernel reads. Unset for other kernels, and if rows or
/// heads that share K and V have masks of their own.
std::optional<double> readShareOfKv(const MaskCensus& census, const Preparation& preparation);
/// Returns the least memory traffic of a settled problem, in bytes: Work::bytes(), with that share of K and V.
double leastBytes(const MaskCensus& census, const Preparation& preparation);

/// What a kernel does instead of mask_mod, or with it, for a score of a partial block.
enum class MaskSelect {
  None,   ///< Nothing: there is no mask_mod.
  Mask,   ///< It evaluates mask_mod.
  Bounds, ///< It compares with the bounds of the row.
  Box,    ///< It compares with the box of the row.
};

/// Operations of a kernel for each score, after its hooks have moved factors and terms out of the inner loop.
struct ScoreCost {
  OperationCounts full, partial;           ///< Operations for a score of a full block, and of a partial one.
  std::optional<OperationCounts> gradient; ///< Additional operations of the gradient, for backward.
  MaskSelect select = MaskSelect::None;    ///< How a score of a partial block is masked.
  bool masksAllBlocks = false;             ///< Whether mask_mod is evaluated in all blocks that the kernel walks.
};

/// How the gradient of a capture is summed, for one place where score_mod or sink_mod reads it.
struct GradientSum {
  /// What one addition to memory is made for.
  enum class Per {
    Tile,       ///< A tile of scores.
    Row,        ///< A row of a tile.
    Column,     ///< A column of a tile.
    Diagonal,   ///< A diagonal of a tile.
    Score,      ///< A score; scores share elements.
    OwnElement, ///< A score, which has an element of its own.
    Diagonals,  ///< Diagonals, which the kernel of dk and dv sums.
    Columns,    ///< A row of dq or dk, whose further columns have it: a factor of a low-rank term.
    Sinks,      ///< A sink of a row, or those of 256 rows that share an element: sink_mod reads it.
  };
  std::string capture;     ///< Name of the capture.
  std::optional<Per> per;  ///< OwnElement: each score has an element of its own. Unset: no gradient arrives.
  bool ofEachTerm = false; ///< Whether this happens for each term of a sum.
};

/// Limits of the GPUs of an architecture, and the one that TileWork assumes.
struct GpuLimits {
  int registersPerThread = 255;             ///< 32-bit registers of a thread.
  int registersPerMultiprocessor = 65536;   ///< 32-bit registers of a multiprocessor.
  int threadsPerMultiprocessor = 2048;      ///< Resident threads of a multiprocessor.
  int64_t sharedBytesPerCta = 0;            ///< Bytes of shared memory that a CTA can have, static and dynamic.
  int64_t sharedBytesPerMultiprocessor = 0; ///< Bytes of shared memory of a multiprocessor.
  std::string gpu;                          ///< Name of the GPU that is assumed: "H200". Empty if none is.
  int multiprocessors = 0;                  ///< Multiprocessors of that GPU.
  int64_t l2Bytes = 0;                      ///< Bytes of its L2 cache.
};

/// How tiles keep a GPU busy, if every step takes the same time: tiles of q, or of keys in a backward kernel. CTAs take
/// them in launch order, first come, first served; clusters of CTAs take turns.
struct TileWork {
  int64_t tiles = 0; ///< Tiles of one head.
  int64_t heads = 0; ///< Batch entries times heads; of a backward kernel whose CTAs walk all heads of a KV head, these.
  /// Number of heads of a section. The launch takes section after section. Within one, the last tiles of all heads come
  /// first, head by head.
  int64_t section = 1;
  int64_t maskBatch = 1, maskHeads = 1; ///< Batch entries and heads that differ in their steps.
  /// Steps of each tile: maskBatch * maskHeads times `tiles`.
  std::vector<int64_t> steps;
  std::vector<int64_t> masked;   ///< Steps that mask scores, out of `steps`. Empty for boxes of a grid.
  bool ofKeys = false;           ///< Whether tiles are of keys, and walk along queries.
  int64_t firstRow = 0;          ///< Row where the first tile begins. Below 0 if the last one ends at the last row.
  int clusterCtas = 1;           ///< CTAs of a cluster, which walk the same steps.
  int clusterHeads = 1;          ///< Heads of a cluster; with several CTAs and one head, they have neighbouring tiles.
  int ctasPerMultiprocessor = 1; ///< CTAs that fit onto a multiprocessor by registers and shared memory.
  int64_t longest = 0;           ///< Steps of the CTA slot that is busiest; each multiprocessor has the above number.
  double mean = 0;               ///< Mean of all slots. longest / mean is the imbalance.
  bool isEstimate = false;       ///< Whether some steps are unknown and counted.
};

/// What a pass over a problem costs a GPU: what its time is predicted from.
struct PassCost {
  std::string kernel;     ///< Template of the launch that walks the scores.
  double tiles = 0;       ///< Tiles of all heads.
  double steps = 0;       ///< Steps of all tiles.
  double maskedSteps = 0; ///< Steps that mask scores.
  bool loneTile = false;  ///< Whether a CTA of a forward kernel has room for one tile of q, so that the next one waits.
  double widths = 0;      ///< Columns of q and of v, by 256.
  int slots = 0;          ///< CTAs that run at once.
  double imbalance = 1;   ///< Steps of the busiest slot by the mean of all.
  double products = 0;    ///< Cycles that tensor cores take for the matrix products of a step.
  double scores = 0;      ///< Cycles that an instruction for each score takes in a step.
  /// Operations for each score, by name; "arithmetic" for those of about one instruction.
  std::map<std::string, double> perScore;
  std::map<std::string, double> perMaskedScore; ///< Additional operations for each score of a masked step.
  double bytes = 0;                             ///< Bytes of the operands and results, each once.
  double otherBytes = 0;                        ///< Bytes that the other launches of a backward pass read and write.
};

/// Predicted time of a pass on a GPU. Errors are over measured rows of the kernel, each predicted by constants that
/// were fitted without its case.
struct PassTime {
  std::string gpu;        ///< Name of the GPU: "H200".
  std::string clock;      ///< "under load", where the limit of power binds, or "rested", in short bursts.
  double ms = 0;          ///< Milliseconds.
  double medianError = 0; ///< Median of the errors, in percent.
  double worstError = 0;  ///< Largest of the errors, in percent.
  int rows = 0;           ///< Number of rows.
};

/// Returns the GPUs that times are predicted for, by the names in PassTime.
std::vector<std::string> measuredGpus();

/// What a kernel is, why it was chosen, and what it costs for a problem.
struct Explanation {
  Mod mod;                                 ///< The mod with its pins folded in.
  Preparation preparation;                 ///< The settled choices.
  std::vector<KernelSource> sources;       ///< Source of each launch.
  CompiledStages compiled;                 ///< Machine code of each launch.
  Captures scalars;                        ///< Scalars that the mask was counted with.
  MaskCensus census;                       ///< Counts of the blocks of the mask, with offsets as the kernel sees them.
  std::optional<GridCensus> boxes = {};    ///< Work of a box kernel. Unset for others.
  WorkFlops flops = {};                    ///< FLOPs of matrix products.
  double bytes = 0;                        ///< Least memory traffic, in bytes: leastBytes().
  ModOperations operations = {};           ///< Operations of the functions of the mod.
  ScoreCost perScore = {};                 ///< Operations of the kernel for each score.
  std::vector<GradientSum> gradients = {}; ///< Sums of the captures' gradients, for backward.
  std::vector<ModOperation> places = {};   ///< Each operation of `operations`, with its line.
  std::vector<ModVariant> variants = {};   ///< Mods that the mod chooses between by the sequence.
  /// Operations for each score of each of `variants`, if a tile computes only that of its sequence; `perScore` is then
  /// that of the most. Empty if the kernel computes all of them.
  std::vector<ScoreCost> perVariant = {};
  std::vector<BlockMap> maps = {}; ///< Blocks of `census` as maps.
  GpuLimits limits = {};           ///< Limits of the kernel's architecture.
  /// Work of a forward kernel of another family than Naive. Unset for lists of boxes, boxes that differ by head, ragged
  /// batches, tokens outside grids, and more than 2^16 different tiles.
  std::optional<TileWork> work = {};
  std::optional<PassCost> cost = {}; ///< Cost of the pass. Unset where the work of tiles is not known.
  std::vector<PassTime> times = {};  ///< Predicted times of the pass, by GPU and clock. Empty: not measured.
  std::string whyNoTimes = {};       ///< What was not measured. Empty if there are times.

  /// Returns the kernel. For training, that of the backward pass.
  const Plan& kernel() const { return preparation.last(); }
};
/// Explains settled choices. Compiles the kernel, or takes it from memory or disk, and counts the mask's blocks.
/// Captures are in host memory; only elements that mask_mod reads are read. KV lengths count as full, and query
/// offsets of a tensor as 0. Errors: those of Compiler::compile(); captures that do not fit.
Expected<Explanation> explain(const Compiler& compiler, const Preparation& preparation, const Captures& captures);

/// Returns one JSON object as text with a line end. Names are camelCase; unknown values are left out. Bytes that are
/// not UTF-8 are replaced.
std::string toJson(const Explanation& explanation);
std::string toJson(const ModExplanation& explanation);
std::string toJson(const Error& error);

/// Returns the IR with what `options` say of sequences: lengths, offsets, ragged, and pins. Errors: those of
/// Compiler::plan() about these.
Expected<std::string> sequencesIrText(const Mod& mod, const KernelOptions& options);
/// Returns the IR with gradients of the score and of all captures that can have one. Errors (mod): no derivative.
Expected<std::string> gradientIrText(const Mod& mod);
/// Returns the IR that a kernel is written from, with what is derived for it.
Expected<std::string> kernelIrText(const Plan& plan);

/// Facts about score_mod that decide how exactly kernels follow it.
struct ScoreFacts {
  bool readsScore = false; ///< Whether it reads the score.
  bool readsPlace = false; ///< Whether it reads the batch entry, the head or a position.
  /// Whether it only adds, compares and selects given numbers, so kernels round as the reference does.
  bool addsAtMost = true;
  bool approximates = false; ///< Whether the mod has a function that kernels only approximate (tanh_approx).
};
/// Returns these facts about a mod.
ScoreFacts scoreFactsOf(const Mod& mod);
/// Returns the largest magnitude, over batch entries and heads, of the slope s of a penalty s * (kv_idx - q_idx).
/// Kernels round this penalty in two parts (dsl/SPEC.md, 6). Returns 0 if the score has none. `captures` are in host
/// memory. Errors (environment): captures that do not fit.
Expected<float> distanceSlope(const Mod& mod, const Captures& captures, const ProblemShape& problem);
/// What a low-rank term of score_mod does to the errors of kernels of bf16.
struct LowRankFacts {
  /// Bound of the sizes of its products, added up, over all scores. Kernels may round each product (dsl/SPEC.md, 6), by
  /// what KernelOptions::lowRankError allows. 0: the score has no low-rank term.
  double size = 0;
  /// Whether its factors of keys depend on the head or the batch entry. Gradients of k and v are then stored for each
  /// query head and batch entry, and added up.
  bool copiesKeys = false;
};
/// Returns these facts about a mod. `captures` are in host memory. Errors (environment): captures that do not fit.
Expected<LowRankFacts> lowRankFactsOf(const Mod& mod, const Captures& captures, const ProblemShape& problem);

/// Returns the captures that mask_mod reads.
std::set<std::string> capturesOfMask(const Mod& mod);
/// Returns the captured floats that a gradient reaches, with `ofOutputs` also one of the mod's sums. Errors (mod):
/// score_mod has no derivative.
Expected<std::set<std::string>> reachedCaptures(const Mod& mod, bool ofOutputs = false);
/// Checks that gradients of these captures can be computed. Errors (environment): a name that is no captured float.
Status checkGradients(const Mod& mod, const std::set<std::string>& captures);
/// Checks captures against the mod and the problem, without reading elements. Errors (environment): they do not fit.
Status checkCaptures(const Mod& mod, const Captures& captures, const ProblemShape& problem);
/// Adds the free extents that `given` lacks: `value`, or a number near it that meets the conditions of the mod.
void chooseExtents(const Mod& mod, const ProblemShape& problem, int64_t value, std::map<std::string, int64_t>& given);

/// Evaluates mask_mod, score_mod and prob_mod score by score, and sink_mod row by row, as kernels do. Copies share
/// nothing. Not thread-safe, not even as const.
class MaskReader {
public:
  /// Creates a reader. `captures` are in host memory, which must not change while the reader lives. Errors
  /// (environment): captures that do not fit.
  static Expected<MaskReader> create(const Mod& mod, const Captures& captures, const ProblemShape& problem);
  MaskReader(const MaskReader& other);
  MaskReader(MaskReader&&) noexcept;
  ~MaskReader();
  /// Returns whether a score is live; true if the mod has no mask_mod.
  bool isLive(int64_t b, int64_t h, int64_t q, int64_t kv) const;
  /// Returns what score_mod gives for `score`; `score` itself if the mod has no score_mod. Not for masked scores.
  float scoreOf(float score, int64_t b, int64_t h, int64_t q, int64_t kv) const;
  /// Returns what prob_mod gives for a weight of the softmax; the weight itself if the mod has no prob_mod.
  float weightOf(float weight, int64_t b, int64_t h, int64_t q, int64_t kv) const;
  /// Returns the sink of a row; -inf if the mod has no sink_mod.
  float sinkOf(int64_t b, int64_t h, int64_t q) const;

private:
  struct Impl;
  explicit MaskReader(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl;
};

/// One element of the score matrix.
struct ScorePlace {
  int64_t b = 0, h = 0, q = 0, kv = 0; ///< Batch entry, query head, row of q, column of k.
  float score = 0;                     ///< Input of score_mod.
};
/// A value that a function of the mod computes.
struct ProbedValue {
  int line = 0;           ///< Line in the mod's text. 0: unknown.
  std::string expression; ///< "slopes[h] * distance". Values stand for parts of a long expression.
  std::string value;      ///< The value as Python prints it: True, 7, 0.5.
  std::string read;       ///< For a gather: the element read, "slopes[3]", and which index was clamped.
};
/// A function of the mod, for one score.
struct ProbedFunction {
  std::vector<ProbedValue> values; ///< Values in order of computation. A sum shows its result.
  std::string result;              ///< What it returns, as Python prints it.
};
/// One score on its way through a mod.
struct Probe {
  std::optional<ProbedFunction> scoreMod, maskMod; ///< The functions. Unset if the mod lacks them.
  std::optional<ProbedFunction> probMod; ///< What prob_mod gives for a weight of 1. Unset if the mod lacks it.
  std::optional<ProbedFunction> sinkMod; ///< The sink of the row. Unset if the mod lacks it.
  std::string score;                     ///< What score_mod returns, else its input, as Python prints it.
  bool isLive = false;                   ///< Whether the score is live.
};
/// Follows one score through a mod, in f32 and int32 as kernels compute it. `captures` are in host memory. Errors
/// (environment): captures that do not fit. Precondition: the place is in the problem.
Expected<Probe> probe(const Mod& mod, const Captures& captures, const ProblemShape& problem, const ScorePlace& place);

} // namespace attnc
