// What masks let live, by rows of blocks of the packed batch: the form in which plans of shards read it.
//
// In: mods, and lengths. Out: for each row of blocks, its rows of q and the keys of the runs that live.
#pragma once

#include "attnc/shard.h"

#include <cstdint>
#include <vector>

namespace attnc::shard {

/// Keys [begin, end) of the packed batch that live for all rows of a row of blocks, in `weight` batch entries and heads
/// of the problem.
struct LiveKeys {
  int64_t begin = 0, end = 0;
  double weight = 0;
};

/// Consecutive rows of q with the same live keys.
struct LiveRow {
  ShardInterval rows;
  size_t firstKeys = 0, endKeys = 0; ///< in LiveMask::keys
  double pairs = 0;                  ///< of one row of q
};

/// One mask. Its rows cover the packed batch in order.
struct LiveMask {
  double layers = 1;
  std::vector<LiveRow> rows;
  std::vector<LiveKeys> keys;
  int64_t evaluatedBlocks = 0;
};

/// Where sequences begin in the packed batch, and the number of all tokens.
struct Starts {
  std::vector<int64_t> q, kv;
};

/// Returns where sequences begin. Errors (environment): lengths that do not fit the problem.
Expected<Starts> startsOf(const ProblemShape& problem, const ShardOptions& options);

/// Finds what a mask lets live.
Expected<LiveMask> liveMask(const ShardMask& mask, const ProblemShape& problem, const ShardOptions& options,
                            const Starts& starts);

/// Calls visit(row, rows) for the part of each live row that lies in an interval of rows.
template <class Visit> void eachRowIn(const LiveMask& mask, const ShardInterval& interval, Visit visit) {
  size_t low = 0, high = mask.rows.size(); // the first row that ends behind the interval's begin
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (mask.rows[middle].rows.end > interval.begin)
      high = middle;
    else
      low = middle + 1;
  }
  for (; low < mask.rows.size() && mask.rows[low].rows.begin < interval.end; ++low) {
    const ShardInterval& rows = mask.rows[low].rows;
    const int64_t begin = rows.begin > interval.begin ? rows.begin : interval.begin;
    const int64_t end = rows.end < interval.end ? rows.end : interval.end;
    if (begin < end) visit(mask.rows[low], end - begin);
  }
}

} // namespace attnc::shard
