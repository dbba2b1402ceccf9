#include "passes/tangents.h"

#include "ir/walk.h"
#include "passes/derivatives.h"
#include "passes/ir_names.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include <map>
#include <optional>
#include <string>

namespace attnc::passes {
namespace {

class ForwardMode {
public:
  explicit ForwardMode(ir::Module& module) : module(module), size(uint32_t(module.size())), tangents(size) {}

  Status declareTangents() {
    ATTNC_TRY(declare(module.tensors, tensorOf,
                      [](const auto& tensor) { return ir::loadedType(tensor.dtype) == Type::F32; }));
    return declare(module.scalars, scalarOf, [](const auto& scalar) { return scalar.type == Type::F32; });
  }

  /// Returns the tangent of a value of the module as given; 0 if nothing moves it.
  Value of(Value root) {
    const std::vector<bool> needed = ir::neededBy(module, root);
    for (uint32_t id = 0; id <= root.id && id < size; ++id)
      if (needed[id] && !tangents[id] && module[{id}].type == Type::F32) tangents[id] = compute({id});
    return tangents[root.id] && *tangents[root.id] ? **tangents[root.id] : module.constF32(0);
  }

private:
  using Tangent = std::optional<Value>; // none: 0

  template <class Captures, class IsFloat>
  Status declare(Captures& captures, std::map<int64_t, int64_t>& tangentOf, IsFloat isFloat) {
    const size_t count = captures.size();
    for (size_t i = 0; i < count; ++i) {
      if (!isFloat(captures[i])) continue;
      auto tangent = captures[i];
      tangent.name += "_tangent";
      const auto isTaken = [&](const auto& other) { return other.name == tangent.name; };
      if (llvm::any_of(module.tensors, isTaken) || llvm::any_of(module.scalars, isTaken))
        return Error::mod(
            fmt::format("a capture is named {}, which is that of the tangent of {}", tangent.name, captures[i].name),
            {});
      if (module.tensors.size() + module.scalars.size() >= ir::kMaxCaptures)
        return Error::environment(
            fmt::format("tangents double the floats that are captured, and a mod has at most {} captures",
                        ir::kMaxCaptures),
            "capture one tensor in place of several");
      tangentOf[int64_t(i)] = int64_t(captures.size());
      captures.push_back(std::move(tangent));
    }
    return {};
  }

  Tangent compute(Value value) {
    const Node node = module[value];
    products.line = node.line;
    switch (node.op) {
    case Op::Param:
      if (ParamKind(node.attr) == ParamKind::Score) return module.param(ParamKind::ScoreTangent);
      if (ParamKind(node.attr) == ParamKind::Grad) return module.param(ParamKind::GradTangent);
      return std::nullopt;
    case Op::Load: return module.make(node.op, node.type, node.operands, tensorOf.at(node.attr), node.line);
    case Op::Scalar: return module.make(node.op, node.type, {}, scalarOf.at(node.attr), node.line);
    default: break;
    }
    if (!ir::info(node.op).passesGradients) return std::nullopt;
    llvm::SmallVector<Product, 2> terms;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Value operand = node.operands[i];
      if (module[operand].type != Type::F32 || !tangents[operand.id] || !*tangents[operand.id]) continue;
      Product direction;
      products.multiply(direction, **tangents[operand.id]);
      auto shares = derivatives(products, value, direction);
      if (i < shares.size() && shares[i]) terms.push_back(std::move(*shares[i]));
    }
    if (terms.empty()) return std::nullopt;
    Product sum = products.sum(std::move(terms));
    if (node.op == Op::Sum) sum = products.sumOver(sum, ir::Loop::of(node), /*isLast=*/true);
    return sum.factor == 0 ? Tangent() : products.valueOf(sum);
  }

  ir::Module& module;
  const uint32_t size; // nodes of the module as given
  Products products{module};
  std::vector<std::optional<Tangent>> tangents;  // by Value::id; unset: not computed
  std::map<int64_t, int64_t> tensorOf, scalarOf; // index of a capture: that of its tangent
};

} // namespace

Status addTangents(ir::Module& module, llvm::ArrayRef<ir::CaptureGradient> places) {
  ForwardMode mode(module);
  ATTNC_TRY(mode.declareTangents());
  const std::optional<Value> score = module.output(ir::kScore);
  module.setOutput(ir::kTScore, score ? mode.of(*score) : module.param(ParamKind::ScoreTangent));
  const Value ofGradient = mode.of(*module.output(ir::kDScore));
  module.setOutput(ir::kTDScore, ofGradient);
  if (const std::optional<Value> sink = module.output(ir::kSink)) module.setOutput(ir::kTSink, mode.of(*sink));
  for (const ir::CaptureGradient& place : places) {
    ir::Output output = *llvm::find_if(module.outputs(), [&](const auto& each) { return each.name == place.output; });
    output.value = mode.of(output.value);
    output.params |= place.ofSink ? ir::ParamSet{ParamKind::GradTangent} : ir::kTDScore.params;
    module.setOutput(std::move(output));
  }
  return {};
}

} // namespace attnc::passes
