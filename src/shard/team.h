// Ranks that divide heads among themselves (Ulysses): they exchange heads for rows.
#pragma once

#include "shard/run.h"

#include <vector>

namespace attnc::shard {

/// A tensor of own rows and all heads, and one of the team's rows and one group of heads.
///
///   own [B, heads, own rows, columns]    memory [B, rows, heads, columns], any stride over the batch
///   team                                 the same of other extents, dense
///
/// Or both [B, heads, rows], dense.
struct Swap {
  TensorView own, team;
  bool isOfKeys = false; ///< whether rows are those of k and v
};

class Team {
public:
  Team(const ShardPlan& plan, int rank);

  int64_t size() const { return int64_t(rows.size()); }
  int64_t group() const { return member; } ///< of heads, that the rank computes
  int64_t rowCount(bool ofKeys) const;     ///< of all ranks

  /// Returns the bytes that exchange() needs.
  static size_t stagingBytes(const std::vector<Swap>& swaps);

  /// Fills `team` of each from `own` of all ranks of the team, if it gives heads. Else fills `own` from `team`, once
  /// all has come.
  Status exchange(bool givesHeads, const std::vector<Swap>& swaps, char* staging, const Run& run) const;

private:
  /// Runs of bytes, some way apart.
  struct Block {
    char* data;
    size_t pitch, bytes, count;
    size_t size() const { return bytes * count; }
    bool isOneRun() const { return count <= 1 || pitch == bytes; }
  };
  Block ofOwn(const Swap& swap, int64_t batch, size_t other) const;
  Block ofTeam(const Swap& swap, int64_t batch, size_t other) const;

  int first;
  size_t member;
  std::vector<int64_t> rows, keys; ///< by rank of the team
};

} // namespace attnc::shard
