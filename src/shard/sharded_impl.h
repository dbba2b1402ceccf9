// The launches of one rank: what was prepared, and where it lies in memory.
#pragma once

#include "attnc/sharded.h"
#include "shard/machine.h"
#include "shard/rank_stages.h"
#include "shard/run.h"
#include "shard/team.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace attnc {

struct ShardedAttention::Impl {
  /// Where rows or keys lie in the whole problem, as launches read it. Empty if they are a run.
  struct Table {
    shard::TokenPlaces places = {};
    size_t positionsAt = 0, sequencesAt = 0;
  };

  /// A stage that has work.
  struct Launch {
    size_t stage = 0;
    Mod mod;
    std::set<std::string> declared = {}; ///< captures of the mod
    Table keys = {};
    size_t workspaceAt = 0;
  };

  /// Rows of k and v, or their gradients, of one buffer.
  struct KeyRows {
    TensorView k, v;
    size_t bytes = 0;
  };

  /// The gradient of a capture.
  struct CaptureSum {
    shard::Placed part, sum;
  };

  ProblemShape whole;
  bool isPacked = false, trains = false;
  /// As prepared: the tensors of the rank; and those of launches, which are others if there is a team. Of captures only
  /// the gradients stay.
  shard::StageTensors own, local;
  Captures captureGradients;
  std::optional<shard::Team> team; ///< set if there are several groups of heads
  std::vector<ShardInterval> rows; ///< of launches
  Table rowTable;
  std::vector<shard::RankStage> stages;
  std::vector<Launch> launches;
  std::unique_ptr<shard::Machine> machine;

  // In kept memory, which is a part of the workspace unless it trains.
  shard::Placed localQ, localK, localV, localOut, localLse;
  shard::Placed partLse; ///< [launches, B, H, rows], or of one launch unless it trains
  size_t keptAt = 0, keptBytes = 0;
  // In the workspace.
  size_t bytes = 0, receivedAt[2] = {}, stagingAt = 0;
  shard::Placed part, sum, sumLse;
  // For a backward pass, at the place of those for a forward pass.
  shard::Placed localDOut, localDLse, localDQ, localDK, localDV, weighedDOut, weighedDLse, partDQ, sumDQ, sumDK, sumDV;
  std::map<std::string, CaptureSum> captureSums;
  size_t gradientsAt[2] = {}, returnedAt = 0, sumsAt = 0, sumsEnd = 0, scratchAt = 0;

  /// Prepares the launches. Precondition: `own` and `stages` are set.
  Status prepare(const Mod& mod, const ShardPlan& plan, const PrepareOptions& options);
  void layOut();
  void layOutKept();
  void layOutBuffers(shard::Parts& parts, size_t (&offsets)[2], size_t firstStage) const;
  void layOutBackward(shard::Parts& parts);

  /// Checks the tensors of a call against those that were prepared; with `addresses`, also that none is null.
  Status check(const Operands& operands, const Outputs& outputs, bool addresses) const;
  Status checkGradients(const BackwardOperands& operands, const BackwardOutputs& gradients, bool addresses) const;
  Status checkRun(const shard::Run& run, const void* kept) const;
  shard::Run runOf(const ShardEngine& engine, void* workspace, void* kept, Stream stream, Stream transfers) const;

  Status attend(const Operands& operands, const Outputs& outputs, const shard::Run& run) const;
  Status differentiate(const BackwardOperands& operands, const BackwardOutputs& gradients, const shard::Run& run) const;

  /// Begins the transfers of each step, and computes while they go. `back`: whether gradients of keys go back. Calls
  /// compute(stage, index of its launch, -1 if it has none), and add(stage) when gradients have come.
  template <class Compute, class Add>
  Status eachStage(const Operands& operands, bool back, const shard::Run& run, Compute compute, Add add) const;
  Status attendStage(size_t index, const Operands& operands, const Outputs& outputs, const shard::Run& run) const;
  Status differentiateStage(size_t index, const BackwardOperands& operands, const BackwardOutputs& gradients,
                            const shard::Run& run) const;
  /// Adds gradients of own keys that have come back.
  Status addReturned(size_t stage, const shard::Run& run) const;
  /// Adds a part to a sum, or writes the sum to `out`. Null: none.
  Status addUp(const TensorView* part, const TensorView& sum, const TensorView* out, const shard::Run& run) const;
  Status addUpDense(const TensorView* part, const TensorView& sum, const TensorView* out, const shard::Run& run) const;

  /// Whether partial results are merged.
  bool merges() const { return launches.size() != 1; }
  /// Whether one launch computes all gradients of the rows and keys that it has.
  bool isOneLaunch() const { return launches.size() == 1 && stages.size() == 1; }
  bool sumsCaptures() const { return !isOneLaunch() || team; }

  /// Returns k and v of memory [B, keys, HKV, columns], like those of launches.
  KeyRows keyRows(int64_t count, char* memory) const;
  /// Returns what has come for a stage.
  KeyRows received(size_t stage, void* workspace) const;
  /// Returns the gradients of the keys of a stage.
  KeyRows gradientsOf(size_t stage, void* workspace) const;
  /// Returns lse of a launch's keys.
  TensorView lseOf(size_t index, const shard::Run& run) const;
  Captures capturesOf(const Launch& launch, const Captures* given, void* workspace) const;
  /// Lets operands have the keys and captures of a launch.
  void place(Operands& operands, const Launch& launch, const Captures& captures, void* workspace) const;
  MergeStagesParams mergeParams(const Outputs* outputs, const TensorView* lse, const shard::Run& run) const;
};

} // namespace attnc
