// Conditions of the launch: see conditions.h.
#include "ir/conditions.h"

#include "ir/interpreter.h"
#include "ir/loops.h"
#include "ir/walk.h"

#include <llvm/ADT/SmallSet.h>
#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace attnc::ir {

Module conditionsAlone(const Module& module) {
  Module alone = module.declarations();
  llvm::SmallVector<Value, 8> roots;
  for (const Output& output : module.outputs())
    if (output.isCondition()) roots.push_back(output.value);
  if (roots.empty()) return alone;
  const std::vector<bool> needed = neededBy(module, roots);
  std::vector<Value> now(module.size());
  for (uint32_t id = 0; id < module.size(); ++id) {
    if (!needed[id]) continue;
    Node node = module[{id}];
    for (Value& operand : node.operands) operand = now[operand.id];
    now[id] = alone.make(node.op, node.type, node.operands, node.attr, node.line);
  }
  for (const Output& output : module.outputs())
    if (output.isCondition())
      alone.setOutput({output.name, output.params, now[output.value.id], output.words, output.line});
  return alone;
}

bool meets(const Module& module, const Bindings& launch, const Output& condition) {
  return Evaluator(module, launch, condition.value).evaluate(0, 0, 0, 0, 0).integer != 0;
}

namespace {

constexpr uint64_t kMaxOperations = uint64_t(1) << 20;

class ExtentSearch {
public:
  ExtentSearch(const Module& module, const std::vector<bool>& isFree, llvm::ArrayRef<int64_t> dims)
      : module(module), isFree(isFree) {
    launch.dims.assign(dims.begin(), dims.end());
    launch.scalars.resize(module.scalars.size()); // for the other conditions, which are not checked here
    for (uint32_t id = 0; id < module.size(); ++id)
      if (module[{id}].op == Op::Sum) cost = llvm::SaturatingMultiply(cost, uint64_t(Loop::of(module[{id}]).count));
    cost = llvm::SaturatingMultiply(cost, uint64_t(module.size() + 1));
  }

  bool run() {
    bool all = true;
    for (const Output& condition : module.outputs()) {
      needed = neededBy(module, condition.value);
      if (asksOfScalars()) continue;
      asked.push_back(&condition);
      if (holds(condition) || repair()) continue;
      asked.pop_back();
      all = false;
    }
    return all;
  }

  llvm::ArrayRef<int64_t> dims() const { return launch.dims; }

private:
  const Module& module;
  const std::vector<bool>& isFree;
  Bindings launch;
  std::vector<const Output*> asked; // all of these hold, except the last one while it is being repaired
  std::vector<bool> needed;         // needed by the last of `asked`
  uint64_t cost = 1, left = kMaxOperations;

  bool asksOfScalars() const {
    for (uint32_t id = 0; id < module.size(); ++id)
      if (needed[id] && module[{id}].op == Op::Scalar) return true;
    return false;
  }

  bool spend() {
    if (cost > left) return false;
    left -= cost;
    return true;
  }

  bool holds(const Output& condition) { return spend() && meets(module, launch, condition); }

  /// Changes one free extent so that all conditions asked so far hold. Returns whether it succeeded.
  bool repair() {
    const std::vector<int64_t> candidates = numbers();
    for (uint32_t id = 0; id < module.size(); ++id) {
      const Node& node = module[{id}];
      if (!needed[id] || node.op != Op::Dim || !isFree[node.attr]) continue;
      const int64_t before = launch.dims[node.attr];
      for (int64_t candidate : candidates) {
        launch.dims[node.attr] = candidate;
        if (llvm::all_of(llvm::reverse(asked), [&](const Output* condition) { return holds(*condition); })) return true;
      }
      launch.dims[node.attr] = before;
    }
    return false;
  }

  /// Returns the numbers that the condition computes with, quotients of two of these, and neighbors.
  std::vector<int64_t> numbers() {
    std::vector<int64_t> found;
    const std::vector<LoopSet> open = openLoops(module);
    for (uint32_t id = 0; id < module.size() && spend(); ++id)
      if (needed[id] && isInt(module[{id}].type) && !open[id])
        found.push_back(Evaluator(module, launch, {id}).evaluate(0, 0, 0, 0, 0).integer);
    const std::vector<int64_t> once = found;
    for (int64_t number : once)
      for (int64_t divisor : once)
        if (divisor > 1 && found.size() < 256) found.push_back(number / divisor);
    std::vector<int64_t> result;
    llvm::SmallSet<int64_t, 32> met;
    for (int64_t step : {0, 1, -1})
      for (int64_t number : found) {
        const int64_t candidate = int64_t(uint64_t(number) + uint64_t(step));
        if (candidate >= 0 && candidate <= kMaxExtent && met.insert(candidate).second) result.push_back(candidate);
      }
    return result;
  }
};

} // namespace

bool meetConditions(const Module& conditions, llvm::SmallVectorImpl<int64_t>& dims, const std::vector<bool>& isFree) {
  ExtentSearch search(conditions, isFree, dims);
  const bool all = search.run();
  dims.assign(search.dims().begin(), search.dims().end());
  return all;
}

} // namespace attnc::ir
