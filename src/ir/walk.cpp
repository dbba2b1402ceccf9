// Operands come before their users, so one pass over the arena answers each question.
#include "ir/walk.h"

#include "ir/visits.h"

#include <algorithm>

namespace attnc::ir {
namespace {

ParamSet paramsOf(const Node& node, llvm::ArrayRef<ParamSet> params) {
  ParamSet result;
  if (node.op == Op::Param) result |= {ParamKind(node.attr)};
  for (Value operand : node.operands) result |= params[operand.id];
  return result;
}

std::vector<ParamSet> paramsUpTo(const Module& module, size_t end) {
  visits += end;
  std::vector<ParamSet> params;
  params.reserve(end);
  for (uint32_t id = 0; id < end; ++id) params.push_back(paramsOf(module[{id}], params));
  return params;
}

} // namespace

std::vector<bool> neededBy(const Module& module, llvm::ArrayRef<Value> roots, llvm::function_ref<bool(Value)> isEnd) {
  visits += module.size();
  std::vector<bool> needed(module.size(), false);
  uint32_t end = 0;
  for (Value root : roots) {
    needed[root.id] = true;
    end = std::max(end, root.id + 1);
  }
  for (uint32_t id = end; id-- > 0;)
    if (needed[id] && !isEnd({id}))
      for (Value operand : module[{id}].operands) needed[operand.id] = true;
  return needed;
}

std::vector<bool> neededBy(const Module& module, llvm::ArrayRef<Value> roots) {
  return neededBy(module, roots, [](Value) { return false; });
}

std::vector<bool> neededByOutputs(const Module& module) {
  llvm::SmallVector<Value, 8> roots;
  for (const Output& output : module.outputs()) roots.push_back(output.value);
  return neededBy(module, roots);
}

bool uses(const Module& module, Op op) {
  for (uint32_t id = 0; id < module.size(); ++id)
    if (module[{id}].op == op) return true;
  return false;
}

std::vector<ParamSet> paramsOf(const Module& module) { return paramsUpTo(module, module.size()); }

ParamSet paramsOf(const Module& module, Value value) { return paramsUpTo(module, value.id + 1).back(); }

} // namespace attnc::ir
