// Attention of one rank: launches and merges of its stages, and messages to the engine between them.
#include "attnc/sharded.h"

#include "passes/place_rows.h"
#include "shard/machine.h"
#include "shard/rank_stages.h"
#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace attnc {
namespace {

using shard::Parcel;
using shard::RankStage;

Error wrong(std::string what, std::string remedy = {}) {
  return Error::environment("shards: " + std::move(what), std::move(remedy));
}

std::vector<int64_t> shapeOf(const TensorView& tensor) {
  return {tensor.shape.begin(), tensor.shape.begin() + tensor.rank};
}

Status checkShape(const char* name, const TensorView& tensor, const std::vector<int64_t>& shape) {
  if (shapeOf(tensor) == shape) return {};
  return wrong(
      fmt::format("{} is [{}], the plan wants [{}]", name, fmt::join(shapeOf(tensor), ", "), fmt::join(shape, ", ")));
}

/// Checks that each row is one run of memory over all heads.
Status checkTravels(const char* name, const TensorView& tensor) {
  const int64_t heads = tensor.shape[1], columns = tensor.shape[3];
  const bool isDense = (heads <= 1 || tensor.stride[1] == columns) &&
                       (tensor.shape[2] <= 1 || tensor.stride[2] == heads * columns) &&
                       (columns <= 1 || tensor.stride[3] == 1);
  if (isDense || tensor.elements() == 0) return {};
  return wrong(fmt::format("rows of {} travel, and are not dense over the heads", name),
               "give memory [B, keys, HKV, D], viewed as [B, HKV, keys, D]");
}

/// Returns rows [first, first + count) of a tensor [B, heads, rows, columns] of memory that is dense over the heads.
char* rowsAt(const TensorView& tensor, int64_t batch, int64_t first) {
  const int64_t offset = batch * tensor.stride[0] + first * tensor.shape[1] * tensor.shape[3];
  return static_cast<char*>(tensor.data) + offset * dtypeBytes(tensor.dtype);
}

/// Parts of a workspace, one behind another.
class Parts {
public:
  size_t add(int64_t bytes) {
    const size_t offset = end;
    end += (size_t(bytes) + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    return offset;
  }
  size_t bytes() const { return end; }

private:
  size_t end = 0;
};

} // namespace

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

  struct Keys {
    TensorView k, v;
    size_t bytes = 0; ///< of their buffer
  };

  ProblemShape whole;
  bool isPacked = false;
  TensorView q, k, v, out; ///< as prepared, without addresses
  bool wantsLse = false;
  std::vector<ShardInterval> rows;
  Table rowTable;
  std::vector<RankStage> stages;
  std::vector<Launch> launches;
  std::unique_ptr<shard::Machine> machine;
  size_t buffersAt[2] = {}, partAt = 0, partLseAt = 0, sumAt = 0, sumLseAt = 0, bytes = 0;

  Status prepare(const Mod& mod, const ShardPlan& plan, const Operands& operands, const PrepareOptions& options);
  void layOut();
  Status check(const Operands& operands, const Outputs& outputs, const void* workspace) const;
  Status exchange(size_t stage, const TensorView& ownK, const TensorView& ownV, const ShardEngine& engine,
                  void* workspace, Stream transfers) const;
  Status attend(size_t index, const Operands& operands, const Outputs& outputs, void* workspace, Stream stream) const;
  Status writeNothing(const Outputs& outputs, void* workspace, Stream stream) const;

  bool merges() const { return launches.size() != 1; }
  static char* at(void* workspace, size_t offset) { return static_cast<char*>(workspace) + offset; }
  int64_t bytesOf(const TensorView& like, int64_t keys) const {
    return like.shape[0] * like.shape[1] * keys * like.shape[3] * dtypeBytes(like.dtype);
  }
  /// Returns what has come for a stage.
  Keys received(size_t stage, void* workspace) const;
  Captures capturesOf(const Launch& launch, const Captures* given, void* workspace) const;
  Operands operandsOf(const Launch& launch, const Operands& operands, const Captures& captures, void* workspace) const;
  MergeStagesParams mergeParams(const Outputs* outputs, void* workspace) const;
};

ShardedAttention::Impl::Keys ShardedAttention::Impl::received(size_t stage, void* workspace) const {
  const int64_t keys = stages[stage].keyCount;
  Parts parts;
  const auto view = [&](const TensorView& like) {
    const int64_t batch = like.shape[0], heads = like.shape[1], columns = like.shape[3];
    const size_t offset = parts.add(bytesOf(like, keys));
    return TensorView{.data = workspace ? at(workspace, buffersAt[stage % 2] + offset) : nullptr,
                      .dtype = like.dtype,
                      .rank = 4,
                      .shape = {batch, heads, keys, columns},
                      .stride = {keys * heads * columns, columns, heads * columns, 1}};
  };
  const TensorView ofK = view(k); // v lies behind it
  return {ofK, view(v), parts.bytes()};
}

Captures ShardedAttention::Impl::capturesOf(const Launch& launch, const Captures* given, void* workspace) const {
  Captures all = given ? *given : Captures();
  const std::vector<ShardInterval>& keys = stages[launch.stage].keys;
  const auto set = [&](llvm::StringRef name, auto value) {
    if (launch.declared.contains(name.str())) all.set(name.str(), value);
  };
  const auto list = [&](size_t offset, const std::vector<int32_t>& of) {
    return TensorView::contiguous(at(workspace, offset), DType::I32, {int64_t(of.size())});
  };
  set(passes::kFirstRow, rows.empty() ? 0 : rows[0].begin);
  set(passes::kFirstKey, keys.empty() ? 0 : keys[0].begin);
  set(passes::kWholeBatch, whole.batch);
  set(passes::kWholeQLen, whole.qLen);
  set(passes::kWholeKvLen, whole.kvLen);
  set(passes::kRowPositions, list(rowTable.positionsAt, rowTable.places.positions));
  set(passes::kRowSequences, list(rowTable.sequencesAt, rowTable.places.sequences));
  set(passes::kKeyPositions, list(launch.keys.positionsAt, launch.keys.places.positions));
  set(passes::kKeySequences, list(launch.keys.sequencesAt, launch.keys.places.sequences));
  return all;
}

Operands ShardedAttention::Impl::operandsOf(const Launch& launch, const Operands& operands, const Captures& captures,
                                            void* workspace) const {
  Operands all = operands;
  all.captures = &captures;
  if (launch.stage > 0) {
    const Keys come = received(launch.stage, workspace);
    all.k = come.k, all.v = come.v;
  }
  return all;
}

Status ShardedAttention::Impl::prepare(const Mod& mod, const ShardPlan& plan, const Operands& operands,
                                       const PrepareOptions& options) {
  std::map<passes::RowPlaces, Mod> placed;
  const auto placeOf = [&](const std::vector<ShardInterval>& intervals) {
    return intervals.size() == 1 && !isPacked ? passes::RowPlace::Run : passes::RowPlace::Listed;
  };
  if (placeOf(rows) == passes::RowPlace::Listed) rowTable.places = shard::placesOf(rows, plan.qStarts);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const std::vector<ShardInterval>& keys = stages[stage].keys;
    if (!stages[stage].hasWork || !q.shape[0] || !q.shape[1]) continue;
    const passes::RowPlaces places{placeOf(rows), placeOf(keys), isPacked};
    auto found = placed.find(places);
    if (found == placed.end()) {
      ATTNC_TRY_AS(made, placedMod(mod, places));
      found = placed.emplace(places, *std::move(made)).first;
    }
    Launch& launch = launches.emplace_back(Launch{stage, found->second});
    for (const CaptureInfo& capture : launch.mod.captures()) launch.declared.insert(capture.name);
    if (places.keys == passes::RowPlace::Listed) launch.keys.places = shard::placesOf(keys, plan.kvStarts);
  }
  TensorView part =
      TensorView::contiguous(nullptr, out.dtype, {out.shape[0], out.shape[1], out.shape[2], out.shape[3]});
  Outputs outputs{.out = merges() ? part : out};
  if (merges() || wantsLse)
    outputs.lse = TensorView::contiguous(nullptr, DType::F32, {q.shape[0], q.shape[1], q.shape[2]});
  for (Launch& launch : launches) {
    const Captures none;
    Operands all = operandsOf(launch, operands, none, nullptr);
    all.captures = nullptr; // their addresses come with a workspace
    ATTNC_TRY(machine->add(launch.mod, all, outputs, options));
  }
  layOut();
  return {};
}

void ShardedAttention::Impl::layOut() {
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
  for (const int buffer : {0, 1}) {
    size_t most = 0;
    for (size_t stage = buffer ? 1 : 2; stage < stages.size(); stage += 2)
      most = std::max(most, received(stage, nullptr).bytes);
    buffersAt[buffer] = parts.add(int64_t(most));
  }
  if (launches.size() > 1) {
    const int64_t lse = q.shape[0] * q.shape[1] * q.shape[2];
    partAt = parts.add(lse * out.shape[3] * dtypeBytes(out.dtype));
    partLseAt = parts.add(lse * 4);
    sumAt = parts.add(lse * out.shape[3] * 4);
    sumLseAt = parts.add(lse * 4);
  }
  bytes = parts.bytes();
}

Status ShardedAttention::Impl::check(const Operands& operands, const Outputs& outputs, const void* workspace) const {
  for (const auto& [name, given, was] :
       {std::tuple("q", &operands.q, &q), {"k", &operands.k, &k}, {"v", &operands.v, &v}}) {
    ATTNC_TRY(checkShape(name, *given, shapeOf(*was)));
    if (given->dtype != was->dtype) return wrong(fmt::format("{} is not {}", name, dtypeName(was->dtype)));
    if (stages.size() > 1 && given != &operands.q) ATTNC_TRY(checkTravels(name, *given));
    if (!given->data && given->elements()) return wrong(fmt::format("{} is null", name));
  }
  if (!outputs.out || outputs.lse.has_value() != wantsLse) return wrong("other outputs than those that were prepared");
  ATTNC_TRY(checkShape("out", *outputs.out, shapeOf(out)));
  if (outputs.out->dtype != out.dtype) return wrong(fmt::format("out is not {}", dtypeName(out.dtype)));
  if (!outputs.out->data && outputs.out->elements()) return wrong("out is null");
  if (bytes && (!workspace || reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment))
    return wrong(fmt::format("the workspace is null, or not at a multiple of {}", kWorkspaceAlignment));
  return {};
}

Status ShardedAttention::Impl::exchange(size_t stage, const TensorView& ownK, const TensorView& ownV,
                                        const ShardEngine& engine, void* workspace, Stream transfers) const {
  const auto messages = [](const std::vector<Parcel>& parcels, const TensorView& keys, const TensorView& values) {
    std::vector<ShardMessage> all;
    for (const Parcel& parcel : parcels)
      for (const TensorView* tensor : {&keys, &values}) {
        const int64_t bytes = parcel.count * tensor->shape[1] * tensor->shape[3] * dtypeBytes(tensor->dtype);
        for (int64_t b = 0; b < tensor->shape[0] && bytes; ++b)
          all.push_back({parcel.peer, rowsAt(*tensor, b, parcel.first), size_t(bytes)});
      }
    return all;
  };
  const Keys coming = received(stage, workspace);
  return engine.exchange(messages(stages[stage].sends, ownK, ownV),
                         messages(stages[stage].receives, coming.k, coming.v), transfers);
}

MergeStagesParams ShardedAttention::Impl::mergeParams(const Outputs* outputs, void* workspace) const {
  MergeStagesParams params{.part = at(workspace, partAt),
                           .part_lse = reinterpret_cast<float*>(at(workspace, partLseAt)),
                           .sum = reinterpret_cast<float*>(at(workspace, sumAt)),
                           .sum_lse = reinterpret_cast<float*>(at(workspace, sumLseAt)),
                           .batch = int(q.shape[0]),
                           .heads = int(q.shape[1]),
                           .rows = int(q.shape[2])};
  if (outputs) {
    params.out = outputs->out->data;
    params.out_lse = outputs->lse ? static_cast<float*>(outputs->lse->data) : nullptr;
    params.out_stride = plan::stridesOf(*outputs->out);
  }
  return params;
}

Status ShardedAttention::Impl::attend(size_t index, const Operands& operands, const Outputs& outputs, void* workspace,
                                      Stream stream) const {
  const Launch& launch = launches[index];
  const Captures captures = capturesOf(launch, operands.captures, workspace);
  const Operands all = operandsOf(launch, operands, captures, workspace);
  void* const memory = at(workspace, launch.workspaceAt);
  if (!merges()) return machine->attend(index, {all, outputs, memory}, stream);
  const bool isLast = index + 1 == launches.size();
  MergeStagesParams params = mergeParams(isLast ? &outputs : nullptr, workspace);
  params.is_first = index == 0;
  const Outputs part{
      .out = TensorView::contiguous(at(workspace, partAt), out.dtype,
                                    {out.shape[0], out.shape[1], out.shape[2], out.shape[3]}),
      .lse = TensorView::contiguous(at(workspace, partLseAt), DType::F32, {q.shape[0], q.shape[1], q.shape[2]})};
  ATTNC_TRY(machine->attend(index, {all, part, memory}, stream));
  return machine->merge(params, stream);
}

/// Writes the attention of a rank whose rows see no key.
Status ShardedAttention::Impl::writeNothing(const Outputs& outputs, void* workspace, Stream stream) const {
  MergeStagesParams params = mergeParams(&outputs, workspace);
  params.part = nullptr;
  params.is_first = true;
  return machine->merge(params, stream);
}

Expected<ShardedAttention> ShardedAttention::prepare(const Compiler* compiler, const Mod& mod, const ShardPlan& plan,
                                                     int mask, int rank, const Operands& operands,
                                                     const Outputs& outputs, const PrepareOptions& options) {
  if (mask < 0 || mask >= int(plan.masks.size())) return wrong(fmt::format("the plan has no mask {}", mask));
  if (rank < 0 || rank >= plan.world) return wrong(fmt::format("the plan has no rank {}", rank));
  if (plan.headGroups != 1)
    return wrong("the plan has groups of heads, which attnc.torch.distributed exchanges", "plan with one group");
  const Features others = featuresOf(operands).without({Feature::F32});
  if (!others.empty()) return wrong(fmt::format("a rank takes no {}", featureText(others.first())));
  if (!outputs.out || outputs.rowMax) return wrong("outputs are out, and lse if wanted");
  for (const TensorView* tensor : {&operands.q, &operands.k, &operands.v, &*outputs.out})
    if (tensor->rank != 4) return wrong("q, k, v and out have four axes");
  const ShardTokens& own = plan.ranks[size_t(rank)];
  const auto& q = operands.q.shape;
  if (plan.isRagged && q[0] != 1)
    return wrong(fmt::format("q has batch {}, and the plan is of a packed batch", q[0]), "give [1, H, rows, D]");
  const int64_t keys = own.keyCount();
  ATTNC_TRY(checkShape("q", operands.q, {q[0], q[1], own.rowCount(), q[3]}));
  ATTNC_TRY(checkShape("k", operands.k, {q[0], operands.k.shape[1], keys, q[3]}));
  ATTNC_TRY(checkShape("v", operands.v, {q[0], operands.k.shape[1], keys, operands.v.shape[3]}));
  ATTNC_TRY(checkShape("out", *outputs.out, {q[0], q[1], own.rowCount(), operands.v.shape[3]}));
  if (outputs.lse) ATTNC_TRY(checkShape("lse", *outputs.lse, {q[0], q[1], own.rowCount()}));
  auto impl = std::make_shared<Impl>();
  impl->whole = plan.problem;
  impl->isPacked = plan.isRagged;
  impl->q = operands.q, impl->k = operands.k, impl->v = operands.v, impl->out = *outputs.out;
  impl->wantsLse = outputs.lse.has_value();
  impl->rows = own.rows;
  impl->stages = shard::stagesOf(plan, plan.masks[size_t(mask)], rank);
  if (impl->stages.size() > 1) {
    ATTNC_TRY(checkTravels("k", operands.k));
    ATTNC_TRY(checkTravels("v", operands.v));
  }
  ATTNC_TRY_AS(machine, shard::makeMachine(compiler, outputs.out->dtype, int(operands.v.shape[3])));
  impl->machine = *std::move(machine);
  ATTNC_TRY(impl->prepare(mod, plan, operands, options));
  return ShardedAttention(std::move(impl));
}

size_t ShardedAttention::workspaceBytes() const { return impl->bytes; }

Status ShardedAttention::initialise(const Operands& operands, void* workspace, Stream stream) const {
  if (impl->bytes && !workspace) return wrong("the workspace is null");
  const auto uploadOne = [&](const std::vector<int32_t>& list, size_t offset) {
    return impl->machine->upload(Impl::at(workspace, offset), list.data(), list.size() * 4, stream);
  };
  const auto upload = [&](const Impl::Table& table) -> Status {
    ATTNC_TRY(uploadOne(table.places.positions, table.positionsAt));
    return uploadOne(table.places.sequences, table.sequencesAt);
  };
  ATTNC_TRY(upload(impl->rowTable));
  for (size_t i = 0; i < impl->launches.size(); ++i) {
    const Impl::Launch& launch = impl->launches[i];
    ATTNC_TRY(upload(launch.keys));
    const Captures captures = impl->capturesOf(launch, operands.captures, workspace);
    const Operands all = impl->operandsOf(launch, operands, captures, workspace);
    ATTNC_TRY(impl->machine->initialise(i, all, Impl::at(workspace, launch.workspaceAt), stream));
  }
  return {};
}

Status ShardedAttention::launch(const Operands& operands, const Outputs& outputs, const ShardEngine& engine,
                                void* workspace, Stream stream, Stream transfers) const {
  ATTNC_TRY(impl->check(operands, outputs, workspace));
  const size_t stages = impl->stages.size();
  if (stages > 1 && !engine.exchange) return wrong("keys travel, and the engine has no exchange()");
  size_t next = 0; // launch
  for (size_t stage = 0; stage < stages; ++stage) {
    if (stage > 0) {
      if (engine.wait) ATTNC_TRY(engine.wait());
      ATTNC_TRY(impl->machine->waitFor(stream, transfers));
    }
    if (stage + 1 < stages) { // into the buffer that the launch of the stage before has read
      ATTNC_TRY(impl->machine->waitFor(transfers, stream));
      ATTNC_TRY(impl->exchange(stage + 1, operands.k, operands.v, engine, workspace, transfers));
    }
    if (next < impl->launches.size() && impl->launches[next].stage == stage)
      ATTNC_TRY(impl->attend(next++, operands, outputs, workspace, stream));
  }
  if (impl->launches.empty()) return impl->writeNothing(outputs, workspace, stream);
  return {};
}

} // namespace attnc
