// In: operands and outputs in host memory. Out: the reference's doubles, rounded to the outputs' dtypes.
#include "attnc/reference.h"

#include "api/mod_impl.h"
#include "reference/gradients.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

namespace attnc {
namespace {

const Captures& capturesOf(const Operands& operands) {
  static const Captures kNone;
  return operands.captures ? *operands.captures : kNone;
}

reference::AttentionArgs argsOf(const Operands& operands) {
  reference::AttentionArgs args{.q = operands.q, .k = operands.k, .v = operands.v};
  if (operands.scale) args.scale = *operands.scale;
  args.blockMask = operands.blockMask;
  args.kvLengths = operands.kvLengths;
  args.qOffsets = operands.qOffsets;
  return args;
}

/// Results of one launch. The first that does not fit is kept, and nothing is written then.
class Results {
public:
  void add(std::string_view name, const std::optional<TensorView>& target, std::vector<int64_t> shape,
           const std::vector<double>& values) {
    if (!target || !status) return;
    const std::vector<int64_t> given(target->shape.begin(), target->shape.begin() + target->rank);
    if (given != shape)
      status = Error::environment(fmt::format("{} is [{}]", name, fmt::join(given, ", ")),
                                  fmt::format("it must be [{}]", fmt::join(shape, ", ")));
    else
      targets.emplace_back(*target, &values);
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
  const passes::SequenceForm form = sequenceForm(operands, {});
  auto derived = form.isPlain() ? mod : sequencesMod(mod, form, {});
  if (!derived) return std::move(derived).error();
  auto result = reference::attention(derived->module(), capturesOf(operands), argsOf(operands));
  if (!result) return std::move(result).error();
  const ProblemShape& problem = result->problem;
  Results results;
  results.add("out", outputs.out, {problem.batch, problem.qHeads, problem.qLen, result->headDimV}, result->out);
  results.add("lse", outputs.lse, {problem.batch, problem.qHeads, problem.qLen}, result->lse);
  results.add("row_max", outputs.rowMax, {problem.batch, problem.qHeads, problem.qLen}, result->rowMax);
  return results.write();
}

Status computeBackwardOnCpu(const Mod& mod, const BackwardOperands& operands, const BackwardOutputs& outputs) {
  if (operands.kvLengths || operands.qOffsets)
    return Error::environment("gradients with KV lengths or query offsets are asked for",
                              "backward passes take neither; mask with kv_idx < lengths[b] in mask_mod");
  std::set<std::string> wanted;
  static const Captures kNone;
  const Captures& gradients = outputs.captures ? *outputs.captures : kNone;
  for (const auto& [name, item] : gradients.all()) wanted.insert(name);
  auto derived = gradientMod(mod, wanted);
  if (!derived) return std::move(derived).error();
  const reference::GradientArgs args{.forward = argsOf(operands), .dOut = operands.dOut, .dLse = operands.dLse};
  auto result = reference::gradients(derived->module(), capturesOf(operands), args, captureGradients(*derived));
  if (!result) return std::move(result).error();
  Results results;
  results.add("dq", outputs.dQ, shapeOf(operands.q), result->dQ);
  results.add("dk", outputs.dK, shapeOf(operands.k), result->dK);
  results.add("dv", outputs.dV, shapeOf(operands.v), result->dV);
  for (const auto& [name, values] : result->captures) {
    const auto* target = std::get_if<TensorView>(gradients.find(name));
    if (!target) return Error::environment(fmt::format("the gradient of {} is no tensor", name), "give a tensor");
    const Captures::Item* capture = capturesOf(operands).find(name);
    const auto* tensor = capture ? std::get_if<TensorView>(capture) : nullptr;
    results.add(name, *target, tensor ? shapeOf(*tensor) : std::vector<int64_t>(), values);
  }
  return results.write();
}

} // namespace attnc
