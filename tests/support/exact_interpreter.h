// A module in double precision, nothing rounded to f32: beside ir::Interpreter it shows how much rounding matters.
#pragma once

#include "ir/bindings.h"
#include "ir/semantics.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace attnc::test {

/// `module` and `bindings` outlive it. Slow: it evaluates all values of the module with every call.
class ExactInterpreter {
public:
  ExactInterpreter(const ir::Module& module, const ir::Bindings& bindings) : module(module), bindings(bindings) {}

  /// As those of ir::Interpreter.
  double score(double score, int64_t b, int64_t h, int64_t q, int64_t kv) const {
    return module.scoreMod ? evaluate(*module.scoreMod, {.real = score}, {b, h, q, kv}).real : score;
  }
  bool mask(int64_t b, int64_t h, int64_t q, int64_t kv) const {
    return !module.maskMod || evaluate(*module.maskMod, {.real = 0}, {b, h, q, kv}).integer != 0;
  }

private:
  using Slot = ir::SlotOf<double>;

  Slot evaluate(ir::Value root, Slot score, std::array<int64_t, 4> coordinates) const {
    std::vector<Slot> values;
    for (uint32_t id = 0; id <= root.id; ++id) values.push_back(valueOf(module[{id}], values, score, coordinates));
    return values.back();
  }

  Slot valueOf(const ir::Node& node, const std::vector<Slot>& values, Slot score,
               const std::array<int64_t, 4>& coordinates) const {
    const bool isReal = node.type == ir::Type::F32;
    auto operand = [&](size_t i) {
      return i < node.operands.size() ? values[node.operands[i].id] : Slot{.integer = 0};
    };
    switch (node.op) {
    case ir::Op::Const:
      return isReal ? Slot{.real = std::bit_cast<float>(uint32_t(node.attr))} : Slot{.integer = node.attr};
    case ir::Op::Param: return node.attr ? Slot{.integer = coordinates[size_t(node.attr) - 1]} : score;
    case ir::Op::Dim: return {.integer = bindings.dims[node.attr]};
    case ir::Op::Scalar: {
      const ir::ScalarValue& scalar = bindings.scalars[node.attr];
      return isReal ? Slot{.real = scalar.real} : Slot{.integer = scalar.integer};
    }
    case ir::Op::Load: return gather(bindings.tensors[node.attr], isReal, operand);
    case ir::Op::Select: return operand(operand(0).integer ? 1 : 2);
    default: return ir::semantics::apply(node.op, module[node.operands[0]].type, node.type, operand(0), operand(1));
    }
  }

  template <class Index> static Slot gather(const TensorView& view, bool isReal, Index index) {
    if (view.elements() == 0) return {.integer = 0};
    int64_t offset = 0;
    for (int axis = 0; axis < view.rank; ++axis)
      offset += std::clamp<int64_t>(index(size_t(axis)).integer, 0, view.shape[axis] - 1) * view.stride[axis];
    const ir::Slot element = ir::readElement(view.data, view.dtype, offset);
    return isReal ? Slot{.real = element.real} : Slot{.integer = element.integer};
  }

  const ir::Module& module;
  const ir::Bindings& bindings;
};

} // namespace attnc::test
