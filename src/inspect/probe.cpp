// What a mod computes for one score, value by value.
#include "api/mod_impl.h"
#include "attnc/explain.h"
#include "inspect/expression.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/walk.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace attnc {
namespace {

using ir::Op;

constexpr size_t kExpressionWidth = 44;

/// The values of one element, and expressions for them.
class Journey {
public:
  Journey(const ir::Module& module, const ir::Bindings& bindings, ir::Value output, const ScorePlace& place)
      : module(module), bindings(bindings), loops(loopsOf(module)), ofWraps(nodesOfWraps(module)),
        numbers(ir::valuesAt(module, bindings, output, place.score, place.b, place.h, place.q, place.kv)) {}

  /// Whether a value is shown. Casts that change no number are not, nor the rounds of a sum, nor the wrapping of an
  /// index below 0.
  bool isShown(ir::Value value) const {
    const ir::Node& node = module[value];
    return !ir::isLeaf(node) && !loops[value.id] && !ofWraps[value.id] && !isWidening(node) &&
           node.op != Op::StopGradient;
  }

  ProbedValue at(ir::Value value) const {
    ProbedValue result{int(module[value].line), {}, valueOf(value), readText(value)};
    for (int depth = 6; depth > 0; --depth)
      if (result.expression = render(value, depth, /*isOuter=*/true); result.expression.size() <= kExpressionWidth)
        break;
    return result;
  }

  std::string valueOf(ir::Value value) const { return valueText(module[value].type, numbers[value.id]); }

private:
  /// Returns the loops that each node depends on, as bits.
  static std::vector<uint32_t> loopsOf(const ir::Module& module) {
    std::vector<uint32_t> loops(module.size());
    for (uint32_t id = 0; id < module.size(); ++id) {
      const ir::Node& node = module[{id}];
      if (node.op == Op::Iter) loops[id] = 1u << ir::Loop::of(node).id;
      for (ir::Value operand : node.operands) loops[id] |= loops[operand.id];
      if (node.op == Op::Sum) loops[id] &= ~(1u << ir::Loop::of(node).id);
    }
    return loops;
  }

  /// Returns the index that a value wraps: where(index < 0, index + extent, index), as in Python's a[-1]; else nullopt.
  static std::optional<ir::Value> wrapped(const ir::Module& module, ir::Value value) {
    const ir::Node& node = module[value];
    if (node.op != Op::Select) return std::nullopt;
    const ir::Node &test = module[node.operands[0]], &sum = module[node.operands[1]];
    const ir::Value index = node.operands[2];
    const bool isTest = test.op == Op::Lt && test.operands[0] == index && module.isConst(test.operands[1]) &&
                        module.integer(test.operands[1]) == 0;
    return isTest && sum.op == Op::Add && sum.operands[0] == index ? std::optional(index) : std::nullopt;
  }

  /// Returns the nodes that are needed only to wrap the indices of gathers.
  static std::vector<bool> nodesOfWraps(const ir::Module& module) {
    std::vector<bool> isOfWrap(module.size()), isOfOther(module.size());
    for (uint32_t id = 0; id < module.size(); ++id) {
      const ir::Node& node = module[{id}];
      const bool isWrap = wrapped(module, {id}).has_value();
      for (size_t i = 0; i < node.operands.size(); ++i)
        (isWrap && i < 2 ? isOfWrap : isOfOther)[node.operands[i].id] = true;
      if (node.op != Op::Load) continue;
      for (ir::Value index : node.operands) isOfWrap[index.id] = isOfWrap[index.id] || wrapped(module, index);
    }
    for (uint32_t id = 0; id < module.size(); ++id)
      isOfWrap[id] = isOfWrap[id] && (!isOfOther[id] || wrapped(module, {id}));
    return isOfWrap;
  }

  bool isWidening(const ir::Node& node) const {
    if (node.op != Op::Cast) return false;
    const ir::Type from = module[node.operands[0]].type;
    return node.type == ir::Type::I64 || (node.type == ir::Type::F32 && from != ir::Type::F32) ||
           (from == ir::Type::Bool && node.type != ir::Type::Bool);
  }

  std::string leafText(const ir::Node& node, ir::Value value) const {
    switch (ir::leafOf(node)) {
    case ir::Leaf::Const: return valueOf(value);
    case ir::Leaf::Param: return ir::name(ir::ParamKind(node.attr));
    case ir::Leaf::Scalar: return module.scalars[size_t(node.attr)].name;
    case ir::Leaf::Dim: return module.dims[size_t(node.attr)];
    case ir::Leaf::Iter: return fmt::format("i{}", ir::Loop::of(node).id);
    }
    return "?";
  }

  /// `depth` is the number of operations to write out; below it, values are shown.
  std::string render(ir::Value value, int depth, bool isOuter = false) const {
    const ir::Node& node = module[value];
    if (ir::isLeaf(node)) return leafText(node, value);
    if (isWidening(node) || node.op == Op::StopGradient) return render(node.operands[0], depth, isOuter);
    if (auto index = wrapped(module, value)) return render(*index, depth, isOuter);
    if (depth == 0) return loops[value.id] ? "..." : valueOf(value);
    const char* sign = infix(node.op);
    std::vector<std::string> operands;
    for (ir::Value operand : node.operands)
      operands.push_back(render(operand, depth - 1, !sign && node.op != Op::Neg && node.op != Op::Not));
    if (sign) {
      std::string text = fmt::format("{} {} {}", operands[0], sign, operands[1]);
      return isOuter ? text : "(" + text + ")";
    }
    switch (node.op) {
    case Op::Neg: return "-" + operands[0];
    case Op::Not: return "~" + operands[0];
    case Op::Select: return fmt::format("where({})", fmt::join(operands, ", "));
    case Op::Load: return fmt::format("{}[{}]", module.tensors[size_t(node.attr)].name, fmt::join(operands, ", "));
    case Op::Coord: return fmt::format("coords({})[{}]", operands[0], ir::GridAxis::of(node).axis);
    case Op::InGrid: return fmt::format("contains({})", operands[0]);
    case Op::Sum: return fmt::format("sum({}, i{} < {})", operands[0], ir::Loop::of(node).id, ir::Loop::of(node).count);
    case Op::Cast: return fmt::format("{}({})", node.type == ir::Type::Bool ? "bool" : "int", operands[0]);
    default: return fmt::format("{}({})", ir::info(node.op).text, fmt::join(operands, ", "));
    }
  }

  /// Describes which element a gather reads, and which of its indices lie outside.
  std::string readText(ir::Value value) const {
    const ir::Node& node = module[value];
    if (node.op != Op::Load || node.operands.empty()) return "";
    const TensorView& tensor = bindings.tensors[size_t(node.attr)];
    std::vector<int64_t> read;
    std::string outside;
    for (size_t axis = 0; axis < node.operands.size(); ++axis) {
      const int64_t index = numbers[node.operands[axis].id].integer, extent = tensor.shape[axis];
      read.push_back(std::clamp<int64_t>(index, 0, std::max<int64_t>(0, extent - 1)));
      if (index < 0 || index >= extent)
        outside += fmt::format("; index {} is clamped: the extent is {}", index, extent);
    }
    return fmt::format("{}[{}]{}", module.tensors[size_t(node.attr)].name, fmt::join(read, ", "), outside);
  }

  const ir::Module& module;
  const ir::Bindings& bindings;
  const std::vector<uint32_t> loops;
  const std::vector<bool> ofWraps;
  const std::vector<Number> numbers; // by Value::id; for values that the output needs
};

} // namespace

/// Follows one output. `module` is as traced; `bindings` are for it.
static ProbedFunction probed(const ir::Module& module, const ir::Bindings& bindings, ir::Value output,
                             const ScorePlace& place) {
  const Journey journey(module, bindings, output, place);
  const std::vector<bool> needed = ir::neededBy(module, output);
  ProbedFunction result;
  for (uint32_t id = 0; id <= output.id; ++id)
    if (needed[id] && journey.isShown({id})) result.values.push_back(journey.at({id}));
  result.result = journey.valueOf(output);
  return result;
}

Expected<Probe> probe(const Mod& mod, const Captures& captures, const ProblemShape& problem, const ScorePlace& place) {
  const ir::Module& traced = tracedModule(mod);
  ATTNC_TRY_AS(bindings, ir::bind(traced, captures, problem));
  ATTNC_TRY_AS(reader, MaskReader::create(mod, captures, problem));
  Probe result;
  for (auto [function, role] : {std::pair(&result.scoreMod, ir::kScore), {&result.maskMod, ir::kMask}})
    if (auto output = traced.output(role)) *function = probed(traced, *bindings, *output, place);
  result.score = result.scoreMod ? result.scoreMod->result : valueText(ir::Type::F32, {.real = place.score});
  result.isLive = reader->isLive(place.b, place.h, place.q, place.kv);
  return result;
}

} // namespace attnc
