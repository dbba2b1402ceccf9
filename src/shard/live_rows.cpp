#include "shard/live_rows.h"

#include "attnc/block_runs.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnc::shard {

Expected<Starts> startsOf(const ProblemShape& problem, const ShardOptions& options) {
  Starts starts{{0}, {0}};
  std::vector<ShardLengths> lengths = options.lengths;
  if (lengths.empty()) lengths = {{problem.qLen, problem.kvLen}};
  if (!options.lengths.empty() && int64_t(lengths.size()) != problem.batch)
    return Error::environment(
        fmt::format("shards: there are lengths of {} sequences, the problem has {}", lengths.size(), problem.batch),
        "give one entry for each batch entry, or none");
  for (const ShardLengths& sequence : lengths) {
    if (sequence.q < 0 || sequence.q > problem.qLen || sequence.kv < 0 || sequence.kv > problem.kvLen)
      return Error::environment(
          fmt::format("shards: a sequence has {} rows of q and {} of k, the problem at most {} and {}", sequence.q,
                      sequence.kv, problem.qLen, problem.kvLen));
    starts.q.push_back(starts.q.back() + sequence.q);
    starts.kv.push_back(starts.kv.back() + sequence.kv);
  }
  return starts;
}

namespace {

/// Adds the live keys of a row of blocks of one sequence. `entries`: the batch entries of the mask that it stands for.
void addRow(LiveMask& live, const BlockRuns& runs, int64_t qBlock, ShardInterval entries, double weight,
            const ShardInterval& rows, const ShardInterval& keys) {
  const BlockMaskShape& shape = runs.shape();
  LiveRow row{.rows = rows, .firstKeys = live.keys.size()};
  for (int64_t b = entries.begin; b < entries.end; ++b)
    for (int64_t h = 0; h < shape.heads; ++h)
      for (const BlockRun& run : runs.row(b, h, qBlock)) {
        const int64_t begin = keys.begin + int64_t(run.begin) * shape.kvBlock;
        const int64_t end = std::min(keys.end, keys.begin + int64_t(run.end) * shape.kvBlock);
        if (begin >= end) continue;
        const bool isNext = live.keys.size() > row.firstKeys && live.keys.back().end == begin;
        if (isNext)
          live.keys.back().end = end; // a full run next to a partial one
        else
          live.keys.push_back({begin, end, weight});
        row.pairs += weight * double(end - begin);
      }
  row.endKeys = live.keys.size();
  live.rows.push_back(row);
}

} // namespace

Expected<LiveMask> liveMask(const ShardMask& mask, const ProblemShape& problem, const ShardOptions& options,
                            const Starts& starts) {
  static const Captures kNone;
  const BlockMaskShape shape = smallestMask(*mask.mod, problem, options.block, options.block);
  ATTNC_TRY_AS(runs, BlockRuns::build(*mask.mod, mask.captures ? *mask.captures : kNone, problem, shape));
  LiveMask live;
  live.layers = mask.layers;
  live.evaluatedBlocks = runs->evaluatedBlocks();
  const double heads = double(problem.qHeads) / double(std::max<int64_t>(1, shape.heads));
  for (size_t sequence = 0; sequence + 1 < starts.q.size(); ++sequence) {
    // One sequence that stands for all batch entries has the keys of all; an entry of a ragged batch has its own.
    const bool isRagged = !options.lengths.empty();
    const int64_t entry = shape.batch > 1 ? int64_t(sequence) : 0;
    const ShardInterval entries = isRagged ? ShardInterval{entry, entry + 1} : ShardInterval{0, shape.batch};
    const double weight = isRagged ? heads : heads * double(problem.batch) / double(std::max<int64_t>(1, shape.batch));
    const ShardInterval keys{starts.kv[sequence], starts.kv[sequence + 1]};
    for (int64_t begin = starts.q[sequence]; begin < starts.q[sequence + 1]; begin += shape.qBlock)
      addRow(live, *runs, (begin - starts.q[sequence]) / shape.qBlock, entries, weight,
             {begin, std::min(begin + shape.qBlock, starts.q[sequence + 1])}, keys);
  }
  return live;
}

} // namespace attnc::shard
