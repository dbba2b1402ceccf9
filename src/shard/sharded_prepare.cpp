// Prepares the launches of a rank, and lays out memory.
#include "passes/place_rows.h"
#include "shard/sharded_impl.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnc {

using shard::Parts;
using shard::Placed;
using shard::RankStage;
using shard::rowsFirst;
using shard::StageTensors;
using shard::Swap;

namespace {

/// Returns the tensor that a team has of one of a rank.
TensorView ofTeam(const TensorView& own, const shard::Team& team, bool isOfKeys) {
  const int64_t heads = own.shape[1] / team.size(), rows = team.rowCount(isOfKeys);
  if (own.rank == 3) return TensorView::contiguous(nullptr, own.dtype, {own.shape[0], heads, rows});
  return rowsFirst(own.dtype, own.shape[0], heads, rows, own.shape[3]);
}

TensorView dense(DType dtype, const TensorView& like) {
  return TensorView::contiguous(nullptr, dtype, {like.shape[0], like.shape[1], like.shape[2], like.shape[3]});
}

TensorView sumOf(const TensorView& tensor) {
  return rowsFirst(DType::F32, tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3]);
}

TensorView denseRows(const TensorView& like) {
  return TensorView::contiguous(nullptr, DType::F32, {like.shape[0], like.shape[1], like.shape[2]});
}

} // namespace

ShardedAttention::Impl::KeyRows ShardedAttention::Impl::keyRows(int64_t count, char* memory) const {
  Parts parts;
  const auto view = [&](const TensorView& like) {
    return parts.add(rowsFirst(like.dtype, like.shape[0], like.shape[1], count, like.shape[3])).in(memory);
  };
  const TensorView k = view(local.operands.k); // v lies behind it
  return {k, view(local.operands.v), parts.bytes()};
}

ShardedAttention::Impl::KeyRows ShardedAttention::Impl::received(size_t stage, void* workspace) const {
  return keyRows(stages[stage].keyCount, shard::at(workspace, receivedAt[stage % 2]));
}

ShardedAttention::Impl::KeyRows ShardedAttention::Impl::gradientsOf(size_t stage, void* workspace) const {
  return keyRows(stages[stage].keyCount, shard::at(workspace, gradientsAt[stage % 2]));
}

Captures ShardedAttention::Impl::capturesOf(const Launch& launch, const Captures* given, void* workspace) const {
  Captures all = given ? *given : Captures();
  const std::vector<ShardInterval>& keys = stages[launch.stage].keys;
  const auto set = [&](llvm::StringRef name, auto value) {
    if (launch.declared.contains(name.str())) all.set(name.str(), value);
  };
  const auto list = [&](size_t offset, const std::vector<int32_t>& of) {
    TensorView view = TensorView::contiguous(shard::at(workspace, offset), DType::I32, {int64_t(of.size())});
    if (!workspace) view.data = const_cast<int32_t*>(of.data()); // some address, which nobody reads
    return view;
  };
  set(passes::kFirstRow, rows.empty() ? 0 : rows[0].begin);
  set(passes::kFirstKey, keys.empty() ? 0 : keys[0].begin);
  set(passes::kFirstHead, team ? team->group() * local.operands.q.shape[1] : 0);
  set(passes::kWholeBatch, whole.batch);
  set(passes::kWholeQLen, whole.qLen);
  set(passes::kWholeKvLen, whole.kvLen);
  set(passes::kWholeHeads, own.operands.q.shape[1]);
  set(passes::kWholeKvHeads, own.operands.k.shape[1]);
  set(passes::kRowPositions, list(rowTable.positionsAt, rowTable.places.positions));
  set(passes::kRowSequences, list(rowTable.sequencesAt, rowTable.places.sequences));
  set(passes::kKeyPositions, list(launch.keys.positionsAt, launch.keys.places.positions));
  set(passes::kKeySequences, list(launch.keys.sequencesAt, launch.keys.places.sequences));
  return all;
}

void ShardedAttention::Impl::place(Operands& operands, const Launch& launch, const Captures& captures,
                                   void* workspace) const {
  operands.captures = &captures;
  if (launch.stage == 0) return;
  const KeyRows come = received(launch.stage, workspace);
  operands.k = come.k, operands.v = come.v;
}

Status ShardedAttention::Impl::prepare(const Mod& mod, const ShardPlan& plan, const PrepareOptions& options) {
  if (mod.hasWeightMod())
    return Error::environment(fmt::format("{} has a weight_mod, and ranks merge their results by lse", mod.name()),
                              "run it on one GPU, or without weight_mod");
  if (mod.walksTwice())
    return Error::environment(
        fmt::format("{} has a prob_mod that is no multiple of prob, and no rank knows the lse of whole rows before the "
                    "end",
                    mod.name()),
        "run it on one GPU, or write `prob * factor`");
  local = own;
  if (team) {
    BackwardOperands& all = local.operands;
    all.q = ofTeam(all.q, *team, false), all.k = ofTeam(all.k, *team, true), all.v = ofTeam(all.v, *team, true);
    local.outputs.out = all.out = ofTeam(*own.outputs.out, *team, false);
    if (own.outputs.lse) local.outputs.lse = all.lse = ofTeam(*own.outputs.lse, *team, false);
    if (trains) {
      all.dOut = all.out;
      if (all.dLse) all.dLse = all.lse;
      local.gradients.dQ = all.q, local.gradients.dK = all.k, local.gradients.dV = all.v;
    }
  }
  std::map<std::pair<passes::RowPlaces, bool>, Mod> placed;
  const auto placeOf = [&](const std::vector<ShardInterval>& intervals) {
    return intervals.size() == 1 && !isPacked ? passes::RowPlace::Run : passes::RowPlace::Listed;
  };
  const TensorView& q = local.operands.q;
  if (placeOf(rows) == passes::RowPlace::Listed) rowTable.places = shard::placesOf(rows, plan.qStarts);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const std::vector<ShardInterval>& keys = stages[stage].keys;
    const bool isFirst = launches.empty(), isLast = stage + 1 == stages.size();
    // A row's sink counts once, in the first stage; rows without keys have it as their lse.
    const bool isForSinks = mod.hasSinkMod() && isFirst && isLast;
    if (!(stages[stage].hasWork || isForSinks) || !q.shape[0] || !q.shape[1]) continue;
    const passes::RowPlaces places{placeOf(rows), placeOf(keys), isPacked, team.has_value()};
    auto found = placed.find({places, isFirst});
    if (found == placed.end()) {
      ATTNC_TRY_AS(made, placedMod(mod, places, isFirst));
      found = placed.emplace(std::pair(places, isFirst), *std::move(made)).first;
    }
    Launch& launch = launches.emplace_back(Launch{stage, found->second});
    for (const CaptureInfo& capture : launch.mod.captures()) launch.declared.insert(capture.name);
    if (places.keys == passes::RowPlace::Listed) launch.keys.places = shard::placesOf(keys, plan.kvStarts);
  }
  for (const Launch& launch : launches) {
    StageTensors all = local;
    // Addresses come with a workspace, so captures count only for their gradients.
    const Captures captures = capturesOf(launch, own.operands.captures, nullptr);
    place(all.operands, launch, captures, nullptr);
    if (captureGradients.all().empty()) all.operands.captures = nullptr;
    if (merges()) all.outputs.out = dense(all.outputs.out->dtype, *all.outputs.out);
    if (merges() || trains) all.outputs.lse = denseRows(q);
    if (trains) {
      if (merges()) all.operands.dOut = dense(all.operands.dOut.dtype, all.operands.dOut);
      if (!isOneLaunch()) {
        const KeyRows keys = keyRows(stages[launch.stage].keyCount, nullptr);
        all.gradients = {.dQ = dense(q.dtype, q), .dK = keys.k, .dV = keys.v};
      }
      all.gradients.captures = &captureGradients;
    }
    ATTNC_TRY(machine->add(launch.mod, all, options));
  }
  layOut();
  return {};
}

void ShardedAttention::Impl::layOutKept() {
  Parts parts;
  const BackwardOperands& all = local.operands;
  if (team) {
    localQ = parts.add(all.q), localK = parts.add(all.k), localV = parts.add(all.v);
    localOut = parts.add(*local.outputs.out);
    if (local.outputs.lse) localLse = parts.add(*local.outputs.lse);
  }
  if (launches.size() > 1)
    partLse = parts.add(TensorView::contiguous(
        nullptr, DType::F32, {trains ? int64_t(launches.size()) : 1, all.q.shape[0], all.q.shape[1], all.q.shape[2]}));
  keptBytes = parts.bytes();
}

void ShardedAttention::Impl::layOutBuffers(Parts& parts, size_t (&offsets)[2], size_t firstStage) const {
  for (const size_t buffer : {0, 1}) {
    size_t most = 0;
    for (size_t stage = firstStage; stage < stages.size(); ++stage)
      if (stage % 2 == buffer) most = std::max(most, received(stage, nullptr).bytes);
    offsets[buffer] = parts.add(int64_t(most));
  }
}

void ShardedAttention::Impl::layOut() {
  layOutKept();
  Parts parts;
  const auto add = [&](Table& table) {
    table.positionsAt = parts.add(int64_t(table.places.positions.size()) * 4);
    table.sequencesAt = parts.add(int64_t(table.places.sequences.size()) * 4);
  };
  add(rowTable);
  for (size_t i = 0; i < launches.size(); ++i) {
    add(launches[i].keys);
    launches[i].workspaceAt = parts.add(int64_t(machine->workspaceBytes(i)));
  }
  layOutBuffers(parts, receivedAt, 1);
  if (!trains) {
    keptAt = parts.add(int64_t(keptBytes));
    keptBytes = 0;
  }
  if (team) {
    const auto swapOf = [](const TensorView& one, const TensorView& other) { return Swap{one, other}; };
    std::vector<Swap> keys{swapOf(own.operands.q, local.operands.q), swapOf(own.operands.k, local.operands.k),
                           swapOf(own.operands.v, local.operands.v)},
        outs{swapOf(*own.outputs.out, *local.outputs.out)};
    if (own.outputs.lse) outs.push_back(swapOf(*own.outputs.lse, *local.outputs.lse));
    stagingAt = parts.add(int64_t(std::max(shard::Team::stagingBytes(keys), shard::Team::stagingBytes(outs))));
  }
  Parts backward = parts;
  if (launches.size() > 1) {
    part = parts.add(dense(local.outputs.out->dtype, *local.outputs.out));
    sum = parts.add(dense(DType::F32, *local.outputs.out));
    sumLse = parts.add(denseRows(local.operands.q));
  }
  bytes = parts.bytes();
  if (!trains) return;
  layOutBackward(backward);
  bytes = std::max(bytes, backward.bytes());
}

void ShardedAttention::Impl::layOutBackward(Parts& parts) {
  const TensorView &q = local.operands.q, &k = local.operands.k, &v = local.operands.v, &out = *local.outputs.out;
  if (team) {
    localDOut = parts.add(out), localDLse = parts.add(denseRows(q));
    localDQ = parts.add(q), localDK = parts.add(k), localDV = parts.add(v);
  }
  if (launches.size() > 1) {
    weighedDOut = parts.add(dense(out.dtype, out));
    weighedDLse = parts.add(denseRows(q));
  }
  scratchAt = parts.add(int64_t(machine->scratchBytes()));
  if (!isOneLaunch()) {
    layOutBuffers(parts, gradientsAt, 0);
    partDQ = parts.add(dense(q.dtype, q));
    size_t most = 0;
    for (const RankStage& stage : stages) {
      int64_t count = 0;
      for (const shard::Parcel& parcel : stage.sends) count += parcel.count;
      most = std::max(most, keyRows(count, nullptr).bytes);
    }
    returnedAt = parts.add(int64_t(most));
  }
  if (sumsCaptures())
    for (const auto& [name, item] : captureGradients.all())
      captureSums[name].part = parts.add(std::get<TensorView>(item));
  sumsAt = parts.bytes();
  if (!isOneLaunch()) sumDQ = parts.add(sumOf(q)), sumDK = parts.add(sumOf(k)), sumDV = parts.add(sumOf(v));
  if (sumsCaptures())
    for (auto& [name, sums] : captureSums) sums.sum = parts.add(sums.part.tensor);
  sumsEnd = parts.bytes();
}

} // namespace attnc
