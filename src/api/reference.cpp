// In: operands and outputs in host memory. Out: the reference's doubles, rounded to the outputs' dtypes.
#include "attnc/reference.h"

#include "api/check_values.h"
#include "api/mod_impl.h"
#include "families/catalog.h"
#include "families/reductions.h"
#include "launch/kernel_options.h"
#include "launch/launch_operands.h"
#include "reference/cache.h"
#include "reference/tangents.h"
#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <tuple>
#include <utility>

namespace attnc {
namespace {

const Captures& capturesOf(const Operands& operands) {
  static const Captures kNone;
  return operands.captures ? *operands.captures : kNone;
}

/// K and V as dense sequences, gathered from the cache, with the new rows, before anything is written.
struct GatheredCache {
  std::vector<char> k, v;             ///< dense: [B, HKV, KV_LEN, D] and [B, HKV, KV_LEN, DV]
  std::vector<char> kScales, vScales; ///< of rows of pages: [B, HKV, KV_LEN, 1]
};

const TensorView* pointer(const std::optional<TensorView>& tensor) { return tensor ? &*tensor : nullptr; }

/// Returns operands in the form that the reference takes. `cache`: memory for paged or appended K and V.
Expected<Operands> argsOf(KernelKind kind, const Operands& operands, GatheredCache& cache) {
  TensorView likeK = operands.q; // the batch of a pool is its pages
  if (operands.pageTable) likeK.shape[0] = operands.k.shape[0];
  ATTNC_TRY(reference::problemOf(likeK, operands.k, operands.v));
  KernelOptions options = optionsOf(operands, {}, {});
  options.kind = kind;
  const bool isBackward = kind == KernelKind::Backward;
  const Features taken = isBackward ? plan::takenBy(kind) : plan::takenBy(kind) | plan::takenBy(KernelKind::Decode);
  if (const Features others = featuresOf(operands).without(taken); !others.empty())
    return Error::environment(
        fmt::format("{} kernels take no {}", isBackward ? "backward" : "forward", featureText(others.first())));
  ATTNC_TRY(plan::checkSequenceOptions(options));
  plan::LaunchOperands args{operands};
  ATTNC_TRY(plan::checkGiven(operands, options));
  ATTNC_TRY(plan::checkSequences(options, args));
  ATTNC_TRY(plan::checkAddresses(operands));
  ATTNC_TRY(checkValues(operands, kind));
  if (!operands.pageTable && !operands.newK && !operands.newV) return args;
  const TensorView* cuSeqlensQ = operands.cuSeqlensQ ? &*operands.cuSeqlensQ : nullptr;
  for (auto [name, fresh, target, memory, scales] :
       {std::tuple("new_k", &operands.newK, &args.k, &cache.k, &operands.kScales),
        {"new_v", &operands.newV, &args.v, &cache.v, &operands.vScales}}) {
    const reference::Cache held{*target, operands.pageTable ? &*operands.pageTable : nullptr, *operands.kvLengths,
                                args.problem.kvLen};
    TensorView rows = TensorView::contiguous(nullptr, target->dtype,
                                             {args.problem.batch, target->shape[1], held.kvLength(), target->shape[3]});
    const bool rounds = *fresh && target->dtype == DType::E4M3 && (*fresh)->dtype == operands.q.dtype;
    if (*fresh && (*fresh)->dtype != target->dtype && !rounds)
      return Error::environment(
          fmt::format("{} is {}, and is appended to {}", name, dtypeName((*fresh)->dtype), dtypeName(target->dtype)),
          "new_k and new_v have the dtype of k and v");
    memory->assign(size_t(rows.elements() * dtypeBytes(rows.dtype)), 0);
    rows.data = memory->data();
    reference::gatherRows(held, rows);
    if (*fresh)
      reference::appendRows({rows, nullptr, *operands.kvLengths, args.problem.kvLen}, **fresh, args.problem.qLen,
                            cuSeqlensQ, pointer(*scales));
    *target = rows;
  }
  for (auto [scales, memory] : {std::pair(&args.kScales, &cache.kScales), {&args.vScales, &cache.vScales}}) {
    if (!*scales || (*scales)->rank != 4 || !operands.pageTable) continue;
    const reference::Cache held{**scales, &*operands.pageTable, *operands.kvLengths, args.problem.kvLen};
    TensorView rows =
        TensorView::contiguous(nullptr, DType::F32, {args.problem.batch, (*scales)->shape[1], held.kvLength(), 1});
    memory->assign(size_t(rows.elements() * dtypeBytes(rows.dtype)), 0);
    rows.data = memory->data();
    reference::gatherRows(held, rows);
    *scales = rows;
  }
  args.pageTable = args.newK = args.newV = {};
  return args;
}

/// Writes the new rows into the operands' cache. Precondition: argsOf() accepted them.
void appendRows(const Operands& operands) {
  const TensorView* table = operands.pageTable ? &*operands.pageTable : nullptr;
  const TensorView* cuSeqlensQ = operands.cuSeqlensQ ? &*operands.cuSeqlensQ : nullptr;
  const ProblemShape problem = plan::problemOf(operands);
  for (auto [fresh, cache, scales] :
       {std::tuple(&operands.newK, &operands.k, &operands.kScales), {&operands.newV, &operands.v, &operands.vScales}})
    if (*fresh)
      reference::appendRows({*cache, table, *operands.kvLengths, problem.kvLen}, **fresh, problem.qLen, cuSeqlensQ,
                            pointer(*scales));
}

/// Returns the mod that the definition prescribes for these operands.
Expected<Mod> modFor(const Mod& mod, const Operands& operands) {
  Expected<Mod> made = operands.blockMask ? maskedByScore(mod) : mod;
  const passes::SequenceForm form = sequenceForm(operands, {});
  return !made || form.isPlain() ? std::move(made) : sequencesMod(*made, form, {});
}

/// Results of one launch. Keeps the first error; after one, nothing is written.
class Results {
public:
  void add(std::string_view name, const std::optional<TensorView>& target, std::vector<int64_t> shape,
           const std::vector<double>& values) {
    if (!target || !status) return;
    const std::vector<int64_t> given(target->shape.begin(), target->shape.begin() + target->rank);
    const DType dtype = target->dtype;
    if (given != shape)
      status = Error::environment(fmt::format("{} is [{}]", name, fmt::join(given, ", ")),
                                  fmt::format("it must be [{}]", fmt::join(shape, ", ")));
    else if (dtype != DType::F32 && dtype != DType::F16 && dtype != DType::BF16)
      status = Error::environment(fmt::format("{} is {}, expected f32, f16 or bf16", name, dtypeName(dtype)));
    else
      status = plan::checkDistinct(name, *target);
    if (status) status = plan::checkAddress(name, *target);
    if (status) targets.emplace_back(*target, &values);
  }
  Status write() {
    if (status)
      for (const auto& [target, values] : targets) reference::store(*values, target);
    return std::move(status);
  }

private:
  Status status;
  std::vector<std::pair<TensorView, const std::vector<double>*>> targets;
};

std::vector<int64_t> shapeOf(const TensorView& tensor) {
  return {tensor.shape.begin(), tensor.shape.begin() + tensor.rank};
}

} // namespace

Status computeOnCpu(const Mod& mod, const Operands& operands, const Outputs& outputs) {
  GatheredCache cache;
  ATTNC_TRY_AS(args, argsOf(KernelKind::Forward, operands, cache));
  if (outputs.lse) ATTNC_TRY(plan::checkRowOutput("lse", *outputs.lse, operands.q));
  if (outputs.rowMax) ATTNC_TRY(plan::checkRowOutput("row_max", *outputs.rowMax, operands.q));
  ATTNC_TRY_AS(derived, modFor(mod, operands));
  if (asksForChecks(jit::Env::read())) ATTNC_TRY(checkGathers(derived->module(), operands));
  ATTNC_TRY_AS(result,
               reference::attention(derived->module(), capturesOf(operands), *args, outputs.reductions != nullptr));
  const auto& q = operands.q.shape;
  Results results;
  results.add("out", outputs.out, {q[0], q[1], q[2], result->headDimV}, result->out);
  results.add("lse", outputs.lse, {q[0], q[1], q[2]}, result->lse);
  results.add("row_max", outputs.rowMax, {q[0], q[1], q[2]}, result->rowMax);
  if (outputs.reductions) {
    plan::LaunchOperands all{operands};
    all.problem = result->problem, all.reductions = outputs.reductions;
    ATTNC_TRY(plan::checkReductions(ir::reductionsOf(derived->module()), all, /*launches=*/true));
    for (const auto& [what, shape, values] : result->reduced)
      if (const Captures::Item* item = outputs.reductions->find(what.name))
        results.add(what.name, std::get<TensorView>(*item), shape, values);
  }
  ATTNC_TRY(results.write());
  appendRows(operands);
  return {};
}

Status computeBackwardOnCpu(const Mod& mod, const BackwardOperands& operands, const BackwardOutputs& outputs) {
  GatheredCache none;
  ATTNC_TRY_AS(args, argsOf(KernelKind::Backward, operands, none));
  ATTNC_TRY(plan::checkAddress("dout", operands.dOut));
  if (operands.dLse) ATTNC_TRY(plan::checkRowOutput("dlse", *operands.dLse, operands.q));
  if (operands.dLse) ATTNC_TRY(plan::checkAddress("dlse", *operands.dLse));
  std::set<std::string> wanted;
  static const Captures kNone;
  const Captures& gradients = outputs.captures ? *outputs.captures : kNone;
  for (const auto& [name, item] : gradients.all()) wanted.insert(name);
  ATTNC_TRY_AS(made, modFor(mod, operands));
  const bool hasTangents = operands.qTangent.has_value();
  ATTNC_TRY_AS(ofOutputs, ir::haveGradients(mod.module(), operands.captures));
  ATTNC_TRY_AS(derived, gradientMod(*made, wanted, hasTangents, *ofOutputs));
  if (asksForChecks(jit::Env::read())) ATTNC_TRY(checkGathers(derived->module(), operands));
  BackwardOperands all = operands;
  static_cast<Operands&>(all) = *args;
  reference::GradientResult ofScores;
  reference::TangentResult moved;
  const ir::CaptureGradients& places = captureGradients(*derived);
  if (hasTangents) {
    ATTNC_TRY_AS(result, reference::tangents(derived->module(), capturesOf(operands), all, places));
    moved = *std::move(result);
  } else {
    ATTNC_TRY_AS(result, reference::gradients(derived->module(), capturesOf(operands), all, places));
    ofScores = *std::move(result);
  }
  const reference::GradientSums& sums = hasTangents ? static_cast<reference::GradientSums&>(moved) : ofScores;
  const auto& q = operands.q.shape;
  Results results;
  if (hasTangents) results.add("out_tangent", outputs.outTangent, shapeOf(operands.dOut), moved.out);
  if (hasTangents) results.add("lse_tangent", outputs.lseTangent, {q[0], q[1], q[2]}, moved.lse);
  results.add("dq", outputs.dQ, shapeOf(operands.q), sums.dQ);
  results.add("dk", outputs.dK, shapeOf(operands.k), sums.dK);
  results.add("dv", outputs.dV, shapeOf(operands.v), sums.dV);
  for (const auto& [name, values] : sums.captures) {
    const auto* target = std::get_if<TensorView>(gradients.find(name));
    if (!target) return Error::environment(fmt::format("the gradient of {} is no tensor", name), "give a tensor");
    const Captures::Item* capture = capturesOf(operands).find(name);
    const auto* tensor = capture ? std::get_if<TensorView>(capture) : nullptr;
    results.add(name, *target, tensor ? shapeOf(*tensor) : std::vector<int64_t>(), values);
  }
  return results.write();
}

} // namespace attnc
