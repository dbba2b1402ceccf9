// Attention of one rank: what it takes and refuses.
#include "attnc/sharded.h"

#include "shard/cpu.h"
#include "shard/gpu.h"
#include "shard/sharded_impl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace attnc {

using shard::Run;
using shard::StageTensors;

namespace {

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
               fmt::format("give memory [B, rows, heads, columns], viewed as [B, heads, rows, columns]"));
}

/// A tensor of a call, and what it was when prepared.
struct Given {
  const char* name;
  const TensorView* tensor;
  const TensorView* prepared;
  bool travels = false; ///< whether rows are messages
};

/// Checks the tensors of a call; with `addresses`, also that none is null.
Status checkAll(const std::vector<Given>& all, bool addresses = true) {
  for (const Given& given : all) {
    const TensorView& tensor = *given.tensor;
    ATTNC_TRY(checkShape(given.name, tensor, shapeOf(*given.prepared)));
    if (tensor.dtype != given.prepared->dtype)
      return wrong(fmt::format("{} is not {}", given.name, dtypeName(given.prepared->dtype)));
    if (given.travels) ATTNC_TRY(checkTravels(given.name, tensor));
    if (addresses && !tensor.data && tensor.elements()) return wrong(fmt::format("{} is null", given.name));
  }
  return {};
}

bool isContiguous(const TensorView& tensor) {
  int64_t stride = 1;
  for (int axis = tensor.rank - 1; axis >= 0; stride *= tensor.shape[size_t(axis--)])
    if (tensor.shape[size_t(axis)] > 1 && tensor.stride[size_t(axis)] != stride) return false;
  return true;
}

/// Checks gradients of captures.
Status checkCaptures(const Captures& gradients, const Captures* captures, bool addresses) {
  for (const auto& [name, item] : gradients.all()) {
    const auto* tensor = std::get_if<TensorView>(&item);
    if (!tensor || tensor->dtype != DType::F32 || !isContiguous(*tensor))
      return wrong(fmt::format("the gradient of {} is no contiguous f32 tensor", name));
    if (addresses && !tensor->data && tensor->elements()) return wrong(fmt::format("the gradient of {} is null", name));
    const Captures::Item* capture = captures ? captures->find(name) : nullptr;
    if (!capture) continue;
    const auto* of = std::get_if<TensorView>(capture);
    if (shapeOf(*tensor) != (of ? shapeOf(*of) : std::vector<int64_t>()))
      return wrong(fmt::format("the gradient of {} has another shape than {}", name, name));
  }
  return {};
}

std::set<std::string> namesIn(const Captures& captures) {
  std::set<std::string> names;
  for (const auto& [name, item] : captures.all()) names.insert(name);
  return names;
}

Status checkMemory(const char* name, const void* memory, size_t bytes) {
  if (bytes && (!memory || reinterpret_cast<uintptr_t>(memory) % kWorkspaceAlignment))
    return wrong(fmt::format("the {} is null, or not at a multiple of {}", name, kWorkspaceAlignment));
  return {};
}

/// Checks that tensors fit each other and the plan.
Status checkTensors(const StageTensors& given, const ShardPlan& plan, int rank) {
  const BackwardOperands& operands = given.operands;
  const Features others = featuresOf(operands).without({Feature::F32});
  if (!others.empty()) return wrong(fmt::format("a rank takes no {}", featureText(others.first())));
  if (!given.outputs.out || given.outputs.rowMax || given.outputs.reductions)
    return wrong("outputs are out, and lse if wanted");
  for (const TensorView* tensor : {&operands.q, &operands.k, &operands.v, &*given.outputs.out})
    if (tensor->rank != 4) return wrong("q, k, v and out have four axes");
  const ShardTokens& own = plan.ranks[size_t(rank)];
  const auto& q = operands.q.shape;
  if (plan.isRagged && q[0] != 1)
    return wrong(fmt::format("q has batch {}, and the plan is of a packed batch", q[0]), "give [1, H, rows, D]");
  const int64_t keys = own.keyCount(), kvHeads = operands.k.shape[1];
  if (q[1] % plan.headGroups || kvHeads % plan.headGroups)
    return wrong(fmt::format("{} groups of heads do not divide H = {} and HKV = {}", plan.headGroups, q[1], kvHeads));
  ATTNC_TRY(checkShape("q", operands.q, {q[0], q[1], own.rowCount(), q[3]}));
  ATTNC_TRY(checkShape("k", operands.k, {q[0], kvHeads, keys, q[3]}));
  ATTNC_TRY(checkShape("v", operands.v, {q[0], kvHeads, keys, operands.v.shape[3]}));
  ATTNC_TRY(checkShape("out", *given.outputs.out, {q[0], q[1], own.rowCount(), operands.v.shape[3]}));
  if (given.outputs.lse) ATTNC_TRY(checkShape("lse", *given.outputs.lse, {q[0], q[1], own.rowCount()}));
  return {};
}

/// Checks what a backward pass needs, of tensors that fit the plan.
Status checkTraining(const Mod& mod, const StageTensors& given) {
  const BackwardOperands& operands = given.operands;
  const TensorView &q = operands.q, &out = *given.outputs.out;
  if (!given.outputs.lse) return wrong("training needs lse", "give it as an output");
  if (!given.gradients.dQ || !given.gradients.dK || !given.gradients.dV) return wrong("dq, dk and dv are all needed");
  for (const TensorView* tensor : {&operands.k, &operands.v, &out})
    if (tensor->dtype != q.dtype) return wrong("q, k, v and out have different dtypes");
  ATTNC_TRY_AS(ofOutputs, ir::haveGradients(mod.module(), operands.captures));
  if (*ofOutputs) return wrong("gradients of outputs are given, which no rank takes");
  if (given.gradients.captures) ATTNC_TRY(gradientMod(mod, namesIn(*given.gradients.captures)));
  return {};
}

} // namespace

Status ShardedAttention::Impl::check(const Operands& operands, const Outputs& outputs, bool addresses) const {
  if (!outputs.out || outputs.lse.has_value() != own.outputs.lse.has_value())
    return wrong("other outputs than those that were prepared");
  const bool ofKeys = team || stages.size() > 1, ofRows = team.has_value();
  std::vector<Given> all{{"q", &operands.q, &own.operands.q, ofRows},
                         {"k", &operands.k, &own.operands.k, ofKeys},
                         {"v", &operands.v, &own.operands.v, ofKeys},
                         {"out", &*outputs.out, &*own.outputs.out, ofRows}};
  if (outputs.lse) all.push_back({"lse", &*outputs.lse, &*own.outputs.lse});
  return checkAll(all, addresses);
}

Status ShardedAttention::Impl::checkGradients(const BackwardOperands& operands, const BackwardOutputs& gradients,
                                              bool addresses) const {
  if (!gradients.dQ || !gradients.dK || !gradients.dV) return wrong("dq, dk and dv are all needed");
  // With a team, those of the forward pass are in kept memory.
  ATTNC_TRY(check(operands, {.out = operands.out, .lse = operands.lse}, addresses && !team));
  const bool travels = team.has_value();
  std::vector<Given> all{{"dout", &operands.dOut, &*own.outputs.out, travels},
                         {"dq", &*gradients.dQ, &own.operands.q, travels},
                         {"dk", &*gradients.dK, &own.operands.k, travels},
                         {"dv", &*gradients.dV, &own.operands.v, travels}};
  if (operands.dLse) all.push_back({"dlse", &*operands.dLse, &*own.outputs.lse});
  ATTNC_TRY(checkAll(all, addresses));
  const Captures none;
  const Captures& given = gradients.captures ? *gradients.captures : none;
  if (namesIn(given) != namesIn(captureGradients)) return wrong("gradients of other captures than those prepared");
  return checkCaptures(given, operands.captures, addresses);
}

Status ShardedAttention::Impl::checkRun(const Run& run, const void* kept) const {
  if ((team || stages.size() > 1) && !run.engine.exchange)
    return wrong("rows travel, and the engine has no exchange()");
  ATTNC_TRY(checkMemory("workspace", run.workspace, bytes));
  return checkMemory("kept memory", kept, keptBytes);
}

Run ShardedAttention::Impl::runOf(const ShardEngine& engine, void* workspace, void* kept, Stream stream,
                                  Stream transfers) const {
  return {*machine, engine, workspace, trains ? kept : shard::at(workspace, keptAt), stream, transfers};
}

Expected<ShardedAttention> ShardedAttention::make(const Compiler* compiler, const Mod& mod, const ShardPlan& plan,
                                                  int mask, int rank, const BackwardOperands& operands,
                                                  const Outputs& outputs, const BackwardOutputs* gradients,
                                                  const PrepareOptions& options) {
  if (mask < 0 || mask >= int(plan.masks.size())) return wrong(fmt::format("the plan has no mask {}", mask));
  if (rank < 0 || rank >= plan.world) return wrong(fmt::format("the plan has no rank {}", rank));
  auto impl = std::make_shared<Impl>();
  StageTensors& own = impl->own;
  own = {operands, outputs, gradients ? *gradients : BackwardOutputs()};
  ATTNC_TRY(checkTensors(own, plan, rank));
  if (gradients) ATTNC_TRY(checkTraining(mod, own));
  impl->trains = gradients != nullptr;
  impl->whole = plan.problem;
  impl->isPacked = plan.isRagged;
  if (plan.headGroups > 1) impl->team.emplace(plan, rank);
  if (own.gradients.captures) impl->captureGradients = *own.gradients.captures;
  impl->rows = plan.teamOf(rank).rows;
  impl->stages = shard::stagesOf(plan, plan.masks[size_t(mask)], rank);
  ATTNC_TRY(impl->check(operands, outputs, /*addresses=*/false));
  if (gradients) ATTNC_TRY(impl->checkGradients(operands, *gradients, /*addresses=*/false));
  const DType dtype = outputs.out->dtype;
  const int headDimV = int(operands.v.shape[3]);
  if (compiler) {
    ATTNC_TRY_AS(machine, shard::makeGpu(*compiler, dtype, headDimV, impl->trains));
    impl->machine = *std::move(machine);
  } else {
    impl->machine = shard::makeCpu(dtype, headDimV);
  }
  ATTNC_TRY(impl->prepare(mod, plan, options));
  own.operands.captures = nullptr, own.gradients.captures = nullptr; // of the caller
  return ShardedAttention(std::move(impl));
}

Expected<ShardedAttention> ShardedAttention::prepare(const Compiler* compiler, const Mod& mod, const ShardPlan& plan,
                                                     int mask, int rank, const Operands& operands,
                                                     const Outputs& outputs, const PrepareOptions& options) {
  BackwardOperands all;
  static_cast<Operands&>(all) = operands;
  return make(compiler, mod, plan, mask, rank, all, outputs, nullptr, options);
}

Expected<ShardedAttention> ShardedAttention::prepareTraining(const Compiler* compiler, const Mod& mod,
                                                             const ShardPlan& plan, int mask, int rank,
                                                             const BackwardOperands& operands, const Outputs& outputs,
                                                             const BackwardOutputs& gradients,
                                                             const PrepareOptions& options) {
  return make(compiler, mod, plan, mask, rank, operands, outputs, &gradients, options);
}

size_t ShardedAttention::workspaceBytes() const { return impl->bytes; }

size_t ShardedAttention::keptBytes() const { return impl->keptBytes; }

Status ShardedAttention::initialise(const Operands& operands, void* workspace, Stream stream) const {
  if (impl->bytes && !workspace) return wrong("the workspace is null");
  const auto uploadOne = [&](const std::vector<int32_t>& list, size_t offset) {
    return impl->machine->upload(shard::at(workspace, offset), list.data(), list.size() * 4, stream);
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
    Operands all = operands;
    if (impl->team) // only shapes count
      all.q = impl->local.operands.q, all.k = impl->local.operands.k, all.v = impl->local.operands.v;
    impl->place(all, launch, captures, workspace);
    ATTNC_TRY(impl->machine->initialise(i, all, shard::at(workspace, launch.workspaceAt), stream));
  }
  return {};
}

Status ShardedAttention::launch(const Operands& operands, const Outputs& outputs, const ShardEngine& engine,
                                void* workspace, Stream stream, Stream transfers, void* kept) const {
  const Run run = impl->runOf(engine, workspace, kept, stream, transfers);
  ATTNC_TRY(impl->check(operands, outputs, /*addresses=*/true));
  ATTNC_TRY(impl->checkRun(run, kept));
  return impl->attend(operands, outputs, run);
}

Status ShardedAttention::launchBackward(const BackwardOperands& operands, const BackwardOutputs& gradients,
                                        const ShardEngine& engine, void* workspace, Stream stream, Stream transfers,
                                        const void* kept) const {
  if (!impl->trains) return wrong("only the forward pass is prepared", "prepareTraining() prepares both");
  const Run run = impl->runOf(engine, workspace, const_cast<void*>(kept), stream, transfers);
  ATTNC_TRY(impl->checkGradients(operands, gradients, /*addresses=*/true));
  ATTNC_TRY(impl->checkRun(run, kept));
  return impl->differentiate(operands, gradients, run);
}

} // namespace attnc
