// Compiles values into tapes. Each step calls a function made for its operation and operand type, so a step costs one
// indirect call.
#include "ir/interpreter.h"

#include "ir/levels.h"
#include "ir/loops.h"
#include "ir/philox.h"
#include "ir/semantics.h"
#include "ir/walk.h"

#include <algorithm>
#include <array>
#include <utility>

namespace attnc::ir {
namespace {

constexpr size_t kTypes = 4;

} // namespace

/// Builds the steps of an evaluator.
struct Tape {
  using Step = Evaluator::Step;
  using Gather = Evaluator::Gather;
  using Rounds = Evaluator::Rounds;
  using Apply = decltype(Step::apply);

  template <Op op, Type from> static void operation(const Step& step, const Evaluator& in) {
    Number* slots = in.slots.data();
    slots[step.result] = semantics::apply(op, from, from, slots[step.a], slots[step.b]);
  }
  template <Type from, Type to> static void conversion(const Step& step, const Evaluator& in) {
    Number* slots = in.slots.data();
    slots[step.result] = semantics::cast(from, to, slots[step.a]);
  }
  static void select(const Step& step, const Evaluator& in) {
    Number* slots = in.slots.data();
    slots[step.result] = slots[step.a].integer ? slots[step.b] : slots[step.c];
  }
  static void gather(const Step& step, const Evaluator& in) {
    Number* slots = in.slots.data();
    const Gather& from = in.gathers[step.a];
    int64_t offset = 0;
    for (const Gather::Axis& axis : from.axes)
      offset += std::clamp<int64_t>(slots[axis.index].integer, 0, axis.last) * axis.stride;
    slots[from.result] = readElement(from.data, from.dtype, offset);
  }

  static void random(const Step& step, const Evaluator& in) {
    const auto at = [&](size_t i) { return in.slots[in.randoms[step.a][i]].integer; };
    in.slots[step.result].real = randomAt(at(0), uint32_t(at(1)), uint32_t(at(2)), uint32_t(at(3)), uint32_t(at(4)));
  }

  template <Type type> static void sum(const Step& step, const Evaluator& in) {
    Number* slots = in.slots.data();
    const Rounds& rounds = in.sums[step.a];
    Number total = type == Type::F32 ? Number{.real = 0} : Number{.integer = 0};
    for (int64_t i = 0; i < rounds.count; ++i) {
      slots[rounds.index].integer = i;
      for (const Step& inner : rounds.steps) inner.apply(inner, in);
      total = semantics::apply(Op::Add, type, type, total, slots[rounds.term]);
    }
    slots[step.result] = total;
  }

  template <size_t... index> static constexpr auto operationTable(std::index_sequence<index...>) {
    return std::array<Apply, sizeof...(index)>{operation<Op(index / kTypes), Type(index % kTypes)>...};
  }
  template <size_t... index> static constexpr auto conversionTable(std::index_sequence<index...>) {
    return std::array<Apply, sizeof...(index)>{conversion<Type(index / kTypes), Type(index % kTypes)>...};
  }
  static Apply sumOf(Type type) {
    return type == Type::F32 ? sum<Type::F32> : type == Type::I64 ? sum<Type::I64> : sum<Type::I32>;
  }
  static Apply applyOf(Op op, Type from, Type to) {
    static constexpr auto kOperations = operationTable(std::make_index_sequence<kOpCount * kTypes>());
    static constexpr auto kConversions = conversionTable(std::make_index_sequence<kTypes * kTypes>());
    if (op == Op::Select) return select;
    if (op == Op::Cast) return kConversions[size_t(from) * kTypes + size_t(to)];
    return kOperations[size_t(op) * kTypes + size_t(from)];
  }

  const Module& module;
  const Bindings& bindings;
  Evaluator& out;
  std::vector<LoopSet> open = openLoops(module);
  std::vector<uint32_t> slotOf = std::vector<uint32_t>(module.size(), 0); // open nodes: in the current loop
  std::array<std::vector<Step>, 4> byLevel = {};                          // launch, head, row, element

  uint32_t newSlot(Number value = {.integer = 0}) {
    out.slots.push_back(value);
    return uint32_t(out.slots.size() - 1);
  }

  uint32_t leaf(const Node& node) {
    switch (leafOf(node)) {
    case Leaf::Const: break;
    case Leaf::Param: return uint32_t(node.attr); // see Evaluator::slotOf
    case Leaf::Dim: return newSlot({.integer = bindings.dims[node.attr]});
    case Leaf::Iter: return newSlot();
    case Leaf::Scalar: {
      const ScalarValue& scalar = bindings.scalars[node.attr];
      return newSlot(node.type == Type::F32 ? Number{.real = scalar.real} : Number{.integer = scalar.integer});
    }
    }
    if (node.type == Type::F32) return newSlot({.real = std::bit_cast<float>(uint32_t(node.attr))});
    return newSlot({.integer = node.attr});
  }

  void addGather(const Node& node, std::vector<Step>& steps, uint32_t result) {
    const TensorView& view = bindings.tensors[node.attr];
    if (view.elements() == 0) return; // the slot stays 0
    Gather from{view.data, view.dtype, result, {}};
    for (size_t axis = 0; axis < node.operands.size(); ++axis)
      from.axes.push_back({slotOf[node.operands[axis].id], view.shape[axis] - 1, view.stride[axis]});
    steps.push_back({gather, result, uint32_t(out.gathers.size()), 0, 0});
    out.gathers.push_back(std::move(from));
  }

  void addSum(uint32_t id, std::vector<Step>& steps, uint32_t result) {
    const Node& node = module[{id}];
    Rounds rounds{{}, 0, 0, Loop::of(node).count};
    for (Value inside : nodesInside(module, open, {id})) {
      add(inside.id, rounds.steps);
      if (module[inside].op == Op::Iter) rounds.index = slotOf[inside.id];
    }
    if (rounds.index == 0) rounds.index = newSlot(); // the term is the same in all rounds
    rounds.term = slotOf[node.operands[0].id];
    steps.push_back({sumOf(node.type), result, uint32_t(out.sums.size()), 0, 0});
    out.sums.push_back(std::move(rounds));
  }

  void addRandom(const Node& node, std::vector<Step>& steps, uint32_t result) {
    Evaluator::Position at;
    for (size_t i = 0; i < at.size(); ++i) at[i] = slotOf[node.operands[i].id];
    steps.push_back({random, result, uint32_t(out.randoms.size()), 0, 0});
    out.randoms.push_back(at);
  }

  uint32_t numberSlot(const Grid::Number& number) { return newSlot({.integer = bindings.of(number)}); }

  /// Returns the slot of the product of the extents from `axis` on; 1 behind the last axis.
  uint32_t productFrom(const Grid& grid, size_t axis) {
    uint32_t product = newSlot({.integer = 1});
    for (; axis < grid.extents.size(); ++axis) {
      const Number extent = out.slots[numberSlot(grid.extents[axis])];
      out.slots[product] = semantics::apply(Op::Mul, Type::I32, Type::I32, out.slots[product], extent);
    }
    return product;
  }

  /// Adds the steps of a Coord or InGrid, by the formulas of GridAxis.
  void addPlace(const Node& node, std::vector<Step>& steps, uint32_t result) {
    const GridAxis at = GridAxis::of(node);
    const Grid& grid = module.grids[at.grid];
    const auto then = [&](Op op, Type type, uint32_t a, uint32_t b, uint32_t to) {
      steps.push_back({applyOf(op, type, type), to, a, b, 0});
      return to;
    };
    const uint32_t token =
        then(Op::Sub, Type::I32, slotOf[node.operands[0].id], numberSlot(grid.before), newSlot()); // in the grid
    if (node.op == Op::InGrid) {
      const uint32_t isBehind = then(Op::Le, Type::I32, newSlot(), token, newSlot());
      const uint32_t isBefore = then(Op::Lt, Type::I32, token, productFrom(grid, 0), newSlot());
      then(Op::And, Type::Bool, isBehind, isBefore, result);
      return;
    }
    const bool isFirst = at.axis == 0;
    const uint32_t line =
        then(Op::FloorDiv, Type::I32, token, productFrom(grid, at.axis + 1), isFirst ? result : newSlot());
    if (!isFirst) then(Op::Mod, Type::I32, line, numberSlot(grid.extents[at.axis]), result);
  }

  /// Adds the steps that compute the node from its operands, which have their slots.
  void add(uint32_t id, std::vector<Step>& steps) {
    const Node& node = module[{id}];
    if (isLeaf(node)) {
      slotOf[id] = leaf(node);
      return;
    }
    uint32_t result = slotOf[id] = newSlot();
    if (node.op == Op::Sum) return addSum(id, steps, result);
    if (node.op == Op::Load) return addGather(node, steps, result);
    if (info(node.op).rule == TypeRule::Grid) return addPlace(node, steps, result);
    if (node.op == Op::Random) return addRandom(node, steps, result);
    uint32_t operands[3] = {0, 0, 0};
    for (size_t i = 0; i < node.operands.size(); ++i) operands[i] = slotOf[node.operands[i].id];
    Type from = module[node.operands[0]].type;
    steps.push_back({applyOf(node.op, from, node.type), result, operands[0], operands[1], operands[2]});
  }

  /// Builds the steps of the values that are `needed`, by Value::id.
  void build(const std::vector<bool>& needed) {
    std::vector<Level> level = levels(module);
    for (uint32_t id = 0; id < module.size(); ++id)
      if (needed[id] && !open[id]) add(id, byLevel[std::min(size_t(level[id]), byLevel.size() - 1)]);
    for (const Step& step : byLevel[0]) step.apply(step, out);
    out.steps = byLevel[1];
    out.headEnd = out.steps.size();
    out.steps.insert(out.steps.end(), byLevel[2].begin(), byLevel[2].end());
    out.rowEnd = out.steps.size();
    out.steps.insert(out.steps.end(), byLevel[3].begin(), byLevel[3].end());
  }
};

Evaluator::Evaluator(const Module& module, const Bindings& bindings, Value root)
    : rootType(module[root].type), slots(kParamCount, Number{.integer = 0}) {
  Tape tape{module, bindings, *this};
  tape.build(neededBy(module, root));
  this->root = tape.slotOf[root.id];
}

void Evaluator::setHead(int64_t b, int64_t h) const {
  slotOf(ParamKind::B).integer = lastB = b;
  slotOf(ParamKind::H).integer = lastH = h;
  run(0, headEnd);
}

void Evaluator::setRow(int64_t q) const {
  slotOf(ParamKind::QIdx).integer = lastQ = q;
  run(headEnd, rowEnd);
}

std::vector<Number> valuesAt(const Module& module, const Bindings& bindings, Value root, float score, int64_t b,
                             int64_t h, int64_t q, int64_t kv) {
  Evaluator evaluator;
  Tape tape{module, bindings, evaluator};
  const std::vector<bool> needed = neededBy(module, root);
  tape.build(needed);
  evaluator.evaluate(score, b, h, q, kv, 0, 0, 0, 0, /*prob=*/1);
  std::vector<Number> values(module.size(), Number{.integer = 0});
  for (uint32_t id = 0; id < module.size(); ++id)
    if (needed[id] && !tape.open[id]) values[id] = evaluator.slots[tape.slotOf[id]];
  return values;
}

Interpreter::Interpreter(const Module& module, const Bindings& bindings) : module(&module), bindings(bindings) {
  if (auto root = module.output(kScore)) ofScore.emplace(module, bindings, *root);
  if (auto root = module.output(kMask)) ofMask.emplace(module, bindings, *root);
  if (auto root = module.output(kProbFactor)) ofProb.emplace(module, bindings, *root);
  if (auto root = module.output(kProbWeight)) ofProbWeight.emplace(module, bindings, *root);
  if (auto root = module.output(kSink)) ofSink.emplace(module, bindings, *root);
}

double Interpreter::value(Value value, float score, int64_t b, int64_t h, int64_t q, int64_t kv) const {
  Number slot = Evaluator(*module, bindings, value).evaluate(score, b, h, q, kv);
  return (*module)[value].type == Type::F32 ? slot.real : double(slot.integer);
}

} // namespace attnc::ir
