#include "passes/output_gradients.h"

#include "passes/ir_names.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

namespace attnc::passes {
namespace {

using ir::BuiltinDim;
using ir::Kept;

ir::Extent along(BuiltinDim dim) { return {.isNamed = true, .value = int64_t(dim)}; }

} // namespace

Expected<ir::Value> loadAtScore(ir::Module& module, std::string name, Kept kept) {
  const std::string ofRows = name + "_rows";
  const auto isTaken = [&](const auto& capture) { return capture.name == name; };
  if (llvm::any_of(module.tensors, isTaken) || llvm::any_of(module.scalars, isTaken) ||
      llvm::is_contained(module.dims, ofRows))
    return Error::environment(fmt::format("the mod declares '{}' or '{}', which attnc needs for itself", name, ofRows),
                              "rename it");
  ir::TensorCapture tensor{.name = std::move(name), .shape = {along(BuiltinDim::B), along(BuiltinDim::H)}};
  if (module.tensors.size() + module.scalars.size() >= ir::kMaxCaptures)
    return Error::environment(fmt::format("lse of a prob_mod, and gradients of outputs, count as captures, of which "
                                          "there are at most {}",
                                          ir::kMaxCaptures),
                              "capture one tensor in place of several");
  llvm::SmallVector<Value, 3> at{module.param(ParamKind::B), module.param(ParamKind::H)};
  if (kept != Kept::Heads) {
    const bool isOfKeys = kept == Kept::Keys;
    at.push_back(module.param(isOfKeys ? ParamKind::KvIdx : ParamKind::QIdx));
    tensor.shape.push_back(along(isOfKeys ? BuiltinDim::KvLen : BuiltinDim::QLen));
    const auto move = [&](Op op, const ir::OutputRole& by) {
      at[2] = module.make(op, Type::I32, {at[2], *module.output(by)});
    };
    if (!isOfKeys && module.output(ir::kQOffset)) move(Op::Sub, ir::kQOffset);
    if (module.output(ir::kQStart)) { // rows of all sequences are packed
      move(Op::Add, isOfKeys ? ir::kKvStart : ir::kQStart);
      at[0] = module.constInt(Type::I32, 0);
      tensor.shape[0] = {.isNamed = false, .value = 1};
      tensor.shape[2] = {.isNamed = true, .value = int64_t(module.dims.size())};
      module.dims.push_back(ofRows);
    }
  }
  module.tensors.push_back(std::move(tensor));
  return module.make(Op::Load, Type::F32, at, int64_t(module.tensors.size() - 1));
}

Status addOutputLoss(ir::Module& module) {
  Value loss = module.constF32(0);
  Status status = {}; // if no sum has a gradient
  bool isEmpty = true;
  for (const ir::Reduction& sum : ir::reductionsOf(module)) {
    if (sum.isMax) continue;
    const auto isTaken = [&](const auto& other) { return other.name == sum.gradient(); };
    if (llvm::any_of(module.tensors, isTaken) || llvm::any_of(module.scalars, isTaken)) {
      status = Error::environment(
          fmt::format("a capture is named {}, which is that of the gradient of {}", sum.gradient(), sum.name),
          "rename the capture");
      continue;
    }
    isEmpty = false;
    ATTNC_TRY_AS(gradient, loadAtScore(module, sum.gradient(), sum.kept));
    const Value term = module.make(Op::Mul, Type::F32, {*gradient, *module.output(sum.output())});
    loss = module.make(Op::Add, Type::F32, {loss, term});
  }
  if (isEmpty && !status) return status;
  module.setOutput(kOutputLoss, loss);
  return {};
}

} // namespace attnc::passes
