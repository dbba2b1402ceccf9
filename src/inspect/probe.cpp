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
    return !ir::isLeaf(node) && !loops[value.id] && !ofWraps[value.id] && !isWidening(module, node) &&
           node.op != Op::StopGradient;
  }

  ProbedValue at(ir::Value value) const {
    ProbedValue result{int(module[value].line), {}, valueOf(value), readText(value)};
    result.expression = writtenOut(module, value, kExpressionWidth,
                                   [this](ir::Value below) { return loops[below.id] ? "..." : valueOf(below); });
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

  /// Returns the nodes that are needed only to wrap the indices of gathers.
  static std::vector<bool> nodesOfWraps(const ir::Module& module) {
    std::vector<bool> isOfWrap(module.size()), isOfOther(module.size());
    for (uint32_t id = 0; id < module.size(); ++id) {
      const ir::Node& node = module[{id}];
      const bool isWrap = wrappedIndex(module, {id}).has_value();
      for (size_t i = 0; i < node.operands.size(); ++i)
        (isWrap && i < 2 ? isOfWrap : isOfOther)[node.operands[i].id] = true;
      if (node.op != Op::Load) continue;
      for (ir::Value index : node.operands) isOfWrap[index.id] = isOfWrap[index.id] || wrappedIndex(module, index);
    }
    for (uint32_t id = 0; id < module.size(); ++id)
      isOfWrap[id] = isOfWrap[id] && (!isOfOther[id] || wrappedIndex(module, {id}));
    return isOfWrap;
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
  ATTNC_TRY_AS(bindings, ir::bindOnHost(traced, captures, problem));
  ATTNC_TRY_AS(reader, MaskReader::create(mod, captures, problem));
  Probe result;
  for (auto [function, role] : {std::pair(&result.scoreMod, ir::kScore),
                                {&result.maskMod, ir::kMask},
                                {&result.probMod, ir::kProbFactor},
                                {&result.probMod, ir::kProbWeight},
                                {&result.sinkMod, ir::kSink}})
    if (auto output = traced.output(role)) *function = probed(traced, *bindings, *output, place);
  result.score = result.scoreMod ? result.scoreMod->result : valueText(ir::Type::F32, {.real = place.score});
  result.isLive = reader->isLive(place.b, place.h, place.q, place.kv);
  return result;
}

} // namespace attnc
