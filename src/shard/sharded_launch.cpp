// Both passes of a rank: launches of its stages, and messages to the engine between them.
#include "shard/sharded_impl.h"

namespace attnc {

using shard::Parcel;
using shard::Run;
using shard::Swap;

namespace {

/// Adds messages for rows that lie where their parcels say.
void addMessages(std::vector<ShardMessage>& messages, const std::vector<Parcel>& parcels, const TensorView& k,
                 const TensorView& v) {
  for (const Parcel& parcel : parcels)
    for (const TensorView& tensor : {k, v}) {
      const int64_t bytes = parcel.count * tensor.shape[1] * tensor.shape[3] * dtypeBytes(tensor.dtype);
      const auto batchBytes = size_t(tensor.stride[0] * dtypeBytes(tensor.dtype));
      const TensorView rows = shard::rowsOf(tensor, parcel.first, parcel.count);
      for (int64_t b = 0; b < tensor.shape[0] && bytes; ++b)
        messages.push_back({parcel.peer, shard::at(rows.data, size_t(b) * batchBytes), size_t(bytes)});
    }
}

/// Returns the parcels of keys that were sent, as their gradients come back: one behind another.
std::vector<Parcel> packed(std::vector<Parcel> parcels, int64_t& count) {
  count = 0;
  for (Parcel& parcel : parcels) {
    parcel.first = count;
    count += parcel.count;
  }
  return parcels;
}

constexpr int64_t kDenseColumns = 4096; // of dense sums, so that warps share them

} // namespace

template <class Compute, class Add>
Status ShardedAttention::Impl::eachStage(const Operands& operands, bool back, const Run& run, Compute compute,
                                         Add add) const {
  // step s: keys of stage s + 1 come and gradients of stage s - 1 go back, while stage s computes.
  const size_t count = stages.size(), end = back && count > 1 ? count + 2 : count;
  bool isUnderWay = false;
  size_t next = 0; // launch
  for (size_t step = 0; step < end; ++step) {
    if (isUnderWay) ATTNC_TRY(run.arrive());
    if (back && step >= 3) ATTNC_TRY(add(step - 2));
    std::vector<ShardMessage> sends, receives;
    const bool brings = step + 1 < count, returns = back && step >= 2 && step <= count;
    if (brings) {
      const KeyRows coming = received(step + 1, run.workspace);
      addMessages(sends, stages[step + 1].sends, operands.k, operands.v);
      addMessages(receives, stages[step + 1].receives, coming.k, coming.v);
    }
    if (returns) {
      int64_t rows = 0;
      const KeyRows going = gradientsOf(step - 1, run.workspace);
      const std::vector<Parcel> parcels = packed(stages[step - 1].sends, rows);
      const KeyRows coming = keyRows(rows, shard::at(run.workspace, returnedAt));
      addMessages(sends, stages[step - 1].receives, going.k, going.v);
      addMessages(receives, parcels, coming.k, coming.v);
    }
    isUnderWay = brings || returns;
    // Into buffers that launches before have read.
    if (isUnderWay) ATTNC_TRY(run.exchange(sends, receives));
    if (step >= count) continue;
    const bool hasLaunch = next < launches.size() && launches[next].stage == step;
    ATTNC_TRY(compute(step, hasLaunch ? int64_t(next++) : -1));
  }
  return {};
}

TensorView ShardedAttention::Impl::lseOf(size_t index, const Run& run) const {
  TensorView one = partLse.in(run.kept);
  const auto& shape = one.shape;
  const size_t at = trains ? index * size_t(shape[1] * shape[2] * shape[3]) * 4 : 0;
  return TensorView::contiguous(shard::at(one.data, at), DType::F32, {shape[1], shape[2], shape[3]});
}

MergeStagesParams ShardedAttention::Impl::mergeParams(const Outputs* outputs, const TensorView* lse,
                                                      const Run& run) const {
  const auto& q = local.operands.q.shape;
  MergeStagesParams params{.part_lse = lse ? static_cast<float*>(lse->data) : nullptr,
                           .sum = static_cast<float*>(sum.in(run.workspace).data),
                           .sum_lse = static_cast<float*>(sumLse.in(run.workspace).data),
                           .batch = int(q[0]),
                           .heads = int(q[1]),
                           .rows = int(q[2])};
  if (outputs) {
    params.out = outputs->out->data;
    params.out_lse = outputs->lse ? static_cast<float*>(outputs->lse->data) : nullptr;
    params.out_stride = plan::stridesOf(*outputs->out);
  }
  return params;
}

Status ShardedAttention::Impl::attendStage(size_t index, const Operands& operands, const Outputs& outputs,
                                           const Run& run) const {
  const Launch& launch = launches[index];
  const Captures captures = capturesOf(launch, operands.captures, run.workspace);
  Operands all = operands;
  place(all, launch, captures, run.workspace);
  void* const memory = shard::at(run.workspace, launch.workspaceAt);
  if (!merges()) return machine->attend(index, all, outputs, memory, run.stream);
  const Outputs ofStage{.out = part.in(run.workspace), .lse = lseOf(index, run)};
  ATTNC_TRY(machine->attend(index, all, ofStage, memory, run.stream));
  MergeStagesParams params = mergeParams(index + 1 == launches.size() ? &outputs : nullptr, &*ofStage.lse, run);
  params.part = ofStage.out->data;
  params.is_first = index == 0;
  return machine->merge(params, run.stream);
}

Status ShardedAttention::Impl::attend(const Operands& operands, const Outputs& outputs, const Run& run) const {
  Operands all = operands;
  Outputs to = outputs;
  char* const staging = shard::at(run.workspace, stagingAt);
  if (team) {
    all.q = localQ.in(run.kept), all.k = localK.in(run.kept), all.v = localV.in(run.kept);
    to.out = localOut.in(run.kept);
    if (to.lse) to.lse = localLse.in(run.kept);
    ATTNC_TRY(team->exchange(true, {{operands.q, all.q}, {operands.k, all.k, true}, {operands.v, all.v, true}}, staging,
                             run));
  }
  ATTNC_TRY(eachStage(
      all, false, run,
      [&](size_t, int64_t launch) -> Status {
        return launch < 0 ? Status() : attendStage(size_t(launch), all, to, run);
      },
      [](size_t) -> Status { return {}; }));
  if (launches.empty()) { // rows see no key
    MergeStagesParams params = mergeParams(&to, nullptr, run);
    params.is_first = true;
    ATTNC_TRY(machine->merge(params, run.stream));
  }
  if (!team) return {};
  std::vector<Swap> swaps{{*outputs.out, *to.out}};
  if (to.lse) swaps.push_back({*outputs.lse, *to.lse});
  return team->exchange(false, swaps, staging, run);
}

Status ShardedAttention::Impl::addUp(const TensorView* part, const TensorView& sum, const TensorView* out,
                                     const Run& run) const {
  AddStageParams params{.part = part ? part->data : nullptr,
                        .sum = static_cast<float*>(sum.data),
                        .out = out ? out->data : nullptr,
                        .sum_stride = plan::stridesOf(sum),
                        .batch = int(sum.shape[0]),
                        .heads = int(sum.shape[1]),
                        .rows = int(sum.shape[2]),
                        .columns = int(sum.shape[3]),
                        .is_f32 = (part ? *part : *out).dtype == DType::F32};
  if (part) params.part_stride = plan::stridesOf(*part);
  if (out) params.out_stride = plan::stridesOf(*out);
  return machine->sum(params, run.stream);
}

Status ShardedAttention::Impl::addUpDense(const TensorView* part, const TensorView& sum, const TensorView* out,
                                          const Run& run) const {
  const int64_t elements = sum.elements(), whole = elements / kDenseColumns;
  for (const auto& [first, rows, columns] :
       {std::tuple(int64_t(0), whole, kDenseColumns), {whole * kDenseColumns, 1, elements % kDenseColumns}}) {
    const auto of = [&](const TensorView& tensor) {
      return TensorView::contiguous(shard::at(tensor.data, size_t(first) * 4), DType::F32, {1, 1, rows, columns});
    };
    const TensorView partOf = part ? of(*part) : TensorView(), outOf = out ? of(*out) : TensorView();
    ATTNC_TRY(addUp(part ? &partOf : nullptr, of(sum), out ? &outOf : nullptr, run));
  }
  return {};
}

Status ShardedAttention::Impl::addReturned(size_t stage, const Run& run) const {
  int64_t count = 0;
  const std::vector<Parcel> parcels = packed(stages[stage].sends, count);
  const KeyRows come = keyRows(count, shard::at(run.workspace, returnedAt));
  for (size_t i = 0; i < parcels.size(); ++i)
    for (const auto& [from, to] : {std::pair(&come.k, &sumDK), {&come.v, &sumDV}}) {
      const TensorView part = shard::rowsOf(*from, parcels[i].first, parcels[i].count);
      ATTNC_TRY(addUp(&part, shard::rowsOf(to->in(run.workspace), stages[stage].sends[i].first, parcels[i].count),
                      nullptr, run));
    }
  return {};
}

Status ShardedAttention::Impl::differentiateStage(size_t index, const BackwardOperands& operands,
                                                  const BackwardOutputs& gradients, const Run& run) const {
  const Launch& launch = launches[index];
  const Captures captures = capturesOf(launch, operands.captures, run.workspace);
  BackwardOperands all = operands;
  place(all, launch, captures, run.workspace);
  if (merges()) {
    const auto& q = all.q.shape;
    all.lse = lseOf(index, run);
    all.dOut = weighedDOut.in(run.workspace);
    if (operands.dLse) all.dLse = weighedDLse.in(run.workspace);
    ATTNC_TRY(machine->weigh({.lses = static_cast<float*>(partLse.in(run.kept).data),
                              .d_out = operands.dOut.data,
                              .d_lse = operands.dLse ? static_cast<float*>(operands.dLse->data) : nullptr,
                              .to = all.dOut.data,
                              .to_lse = all.dLse ? static_cast<float*>(all.dLse->data) : nullptr,
                              .d_out_stride = plan::stridesOf(operands.dOut),
                              .stages = int(launches.size()),
                              .stage = int(index),
                              .batch = int(q[0]),
                              .heads = int(q[1]),
                              .rows = int(q[2])},
                             run.stream));
  }
  BackwardOutputs to = gradients;
  if (!isOneLaunch()) {
    const KeyRows keys = gradientsOf(launch.stage, run.workspace);
    to.dQ = partDQ.in(run.workspace), to.dK = keys.k, to.dV = keys.v;
  }
  Captures parts;
  if (sumsCaptures()) {
    for (const auto& [name, sums] : captureSums) parts.set(name, sums.part.in(run.workspace));
    to.captures = &parts;
  }
  ATTNC_TRY(machine->differentiate(index, all, to, shard::at(run.workspace, launch.workspaceAt),
                                   shard::at(run.workspace, scratchAt), run.stream));
  for (const auto& [name, sums] : captureSums) {
    const TensorView part = sums.part.in(run.workspace);
    ATTNC_TRY(addUpDense(&part, sums.sum.in(run.workspace), nullptr, run));
  }
  if (isOneLaunch()) return {};
  ATTNC_TRY(addUp(&*to.dQ, sumDQ.in(run.workspace), nullptr, run));
  if (launch.stage > 0) return {}; // gradients of these keys go back
  ATTNC_TRY(addUp(&*to.dK, sumDK.in(run.workspace), nullptr, run));
  return addUp(&*to.dV, sumDV.in(run.workspace), nullptr, run);
}

Status ShardedAttention::Impl::differentiate(const BackwardOperands& operands, const BackwardOutputs& gradients,
                                             const Run& run) const {
  BackwardOperands all = operands;
  BackwardOutputs to = gradients;
  char* const staging = shard::at(run.workspace, stagingAt);
  if (team) {
    all.q = localQ.in(run.kept), all.k = localK.in(run.kept), all.v = localV.in(run.kept);
    all.out = localOut.in(run.kept), all.lse = localLse.in(run.kept);
    all.dOut = localDOut.in(run.workspace);
    to.dQ = localDQ.in(run.workspace), to.dK = localDK.in(run.workspace), to.dV = localDV.in(run.workspace);
    std::vector<Swap> swaps{{operands.dOut, all.dOut}};
    if (all.dLse) {
      all.dLse = localDLse.in(run.workspace);
      swaps.push_back({*operands.dLse, *all.dLse});
    }
    ATTNC_TRY(team->exchange(true, swaps, staging, run));
  }
  ATTNC_TRY(machine->zero(shard::at(run.workspace, sumsAt), sumsEnd - sumsAt, run.stream));
  ATTNC_TRY(eachStage(
      all, true, run,
      [&](size_t stage, int64_t launch) -> Status {
        if (launch >= 0) return differentiateStage(size_t(launch), all, to, run);
        // Without heads of q, keys come for nothing.
        const KeyRows keys = gradientsOf(stage, run.workspace);
        return stage && keys.bytes ? machine->zero(keys.k.data, keys.bytes, run.stream) : Status();
      },
      [&](size_t stage) { return addReturned(stage, run); }));
  // All messages but those of the team have come. Only now are gradients written.
  if (!isOneLaunch())
    for (const auto& [sum, out] : {std::pair(&sumDQ, &to.dQ), {&sumDK, &to.dK}, {&sumDV, &to.dV}})
      ATTNC_TRY(addUp(nullptr, sum->in(run.workspace), &**out, run));
  if (team)
    ATTNC_TRY(team->exchange(
        false, {{*gradients.dQ, *to.dQ}, {*gradients.dK, *to.dK, true}, {*gradients.dV, *to.dV, true}}, staging, run));
  for (const auto& [name, sums] : captureSums) {
    const TensorView out = std::get<TensorView>(*gradients.captures->find(name));
    ATTNC_TRY(addUpDense(nullptr, sums.sum.in(run.workspace), &out, run));
  }
  return {};
}

} // namespace attnc
