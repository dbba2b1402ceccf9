// Interprets a module in double precision, without rounding to f32. The difference from ir::Interpreter shows how much
// rounding matters.
#pragma once

#include "ir/bindings.h"
#include "ir/loops.h"
#include "ir/semantics.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <vector>

namespace attnc::test {

/// `module` and `bindings` must outlive it. Slow: each call walks the module.
class ExactInterpreter {
public:
  ExactInterpreter(const ir::Module& module, const ir::Bindings& bindings)
      : module(module), bindings(bindings), open(ir::openLoops(module)) {}

  /// As in ir::Interpreter.
  double score(double score, int64_t b, int64_t h, int64_t q, int64_t kv) const {
    const auto root = module.output(ir::kScore);
    return root ? Walk(*this, {score, {b, h, q, kv}}).valueOf(*root).real : score;
  }
  bool mask(int64_t b, int64_t h, int64_t q, int64_t kv) const {
    const auto root = module.output(ir::kMask);
    return !root || Walk(*this, {0, {b, h, q, kv}}).valueOf(*root).integer != 0;
  }

  /// The inputs of the outputs.
  struct Point {
    double score = 0;
    std::array<int64_t, 4> coordinates = {}; ///< b, h, q_idx, kv_idx
    double grad = 1;
    int64_t round = 0;
  };
  /// Returns any value of the module, as a double.
  double value(ir::Value value, const Point& at) const {
    const Number slot = Walk(*this, at).valueOf(value);
    return module[value].type == ir::Type::F32 ? slot.real : double(slot.integer);
  }

private:
  using Number = NumberOf<double>;

  /// The values of one call, each computed when it is first needed.
  class Walk {
  public:
    Walk(const ExactInterpreter& of, const Point& at)
        : module(of.module), bindings(of.bindings), open(of.open), at(at), known(of.module.size()) {}

    Number valueOf(ir::Value value) {
      if (!known[value.id]) known[value.id] = compute(module[value]);
      return *known[value.id];
    }

  private:
    Number compute(const ir::Node& node) {
      const bool isReal = node.type == ir::Type::F32;
      auto operand = [&](size_t i) {
        return i < node.operands.size() ? valueOf(node.operands[i]) : Number{.integer = 0};
      };
      switch (node.op) {
      case ir::Op::Const:
        return isReal ? Number{.real = std::bit_cast<float>(uint32_t(node.attr))} : Number{.integer = node.attr};
      case ir::Op::Param: return param(ir::ParamKind(node.attr));
      case ir::Op::Dim: return {.integer = bindings.dims[node.attr]};
      case ir::Op::Scalar: {
        const ir::ScalarValue& scalar = bindings.scalars[node.attr];
        return isReal ? Number{.real = scalar.real} : Number{.integer = scalar.integer};
      }
      case ir::Op::Iter: return {.integer = round[ir::Loop::of(node).id]};
      case ir::Op::Sum: return sum(node);
      case ir::Op::Load: return gather(bindings.tensors[node.attr], isReal, operand);
      case ir::Op::Select: return operand(operand(0).integer ? 1 : 2);
      default: return ir::semantics::apply(node.op, module[node.operands[0]].type, node.type, operand(0), operand(1));
      }
    }

    Number param(ir::ParamKind param) const {
      switch (param) {
      case ir::ParamKind::Score: return {.real = at.score};
      case ir::ParamKind::B:
      case ir::ParamKind::H:
      case ir::ParamKind::QIdx:
      case ir::ParamKind::KvIdx: return {.integer = at.coordinates[size_t(param) - size_t(ir::ParamKind::B)]};
      case ir::ParamKind::Grad: return {.real = at.grad};
      case ir::ParamKind::Round: return {.integer = at.round};
      case ir::ParamKind::ScoreTangent:
      case ir::ParamKind::GradTangent: break; // only gradients and scores are compared
      }
      return {.integer = 0};
    }

    Number sum(const ir::Node& node) {
      const ir::Loop loop = ir::Loop::of(node);
      Number total = node.type == ir::Type::F32 ? Number{.real = 0} : Number{.integer = 0};
      const int64_t outer = round[loop.id]; // a sum that does not depend on it may stand in a loop of the same id
      const auto enter = [&](int64_t i) {
        round[loop.id] = i;
        for (uint32_t id = 0; id < known.size(); ++id)
          if (open[id] & ir::only(loop)) known[id].reset(); // from another round
      };
      for (int64_t i = 0; i < loop.count; ++i) {
        enter(i);
        total = ir::semantics::apply(ir::Op::Add, node.type, node.type, total, valueOf(node.operands[0]));
      }
      enter(outer);
      return total;
    }

    const ir::Module& module;
    const ir::Bindings& bindings;
    const std::vector<ir::LoopSet>& open;
    const Point at;
    std::array<int64_t, ir::kMaxLoops> round = {};
    std::vector<std::optional<Number>> known; // by Value::id
  };

  template <class Index> static Number gather(const TensorView& view, bool isReal, Index index) {
    if (view.elements() == 0) return {.integer = 0};
    int64_t offset = 0;
    for (int axis = 0; axis < view.rank; ++axis)
      offset += std::clamp<int64_t>(index(size_t(axis)).integer, 0, view.shape[axis] - 1) * view.stride[axis];
    const attnc::Number element = readElement(view.data, view.dtype, offset);
    return isReal ? Number{.real = element.real} : Number{.integer = element.integer};
  }

  const ir::Module& module;
  const ir::Bindings& bindings;
  std::vector<ir::LoopSet> open;
};

} // namespace attnc::test
