#include "ir/ir.h"

#include "ir/visits.h"
#include "support/element.h"

#include <llvm/ADT/Hashing.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringSet.h>

#include <bit>
#include <cassert>

namespace attnc::ir {

Type loadedType(DType dtype) {
  if (isFloat(dtype)) return Type::F32;
  if (dtype == DType::Bool) return Type::Bool;
  return dtype == DType::I64 ? Type::I64 : Type::I32;
}

Module::Module() : dims{"B", "H", "HKV", "Q_LEN", "KV_LEN"} {}

Module Module::declarations() const {
  Module result;
  result.sourceName = sourceName;
  result.liftsMasks = liftsMasks;
  result.keepsMasks = keepsMasks;
  result.offsetsQueries = offsetsQueries;
  result.hasNearScalars = hasNearScalars;
  result.dims = dims;
  result.tensors = tensors;
  result.scalars = scalars;
  result.grids = grids;
  return result;
}

size_t Module::placeOf(llvm::StringRef name) const {
  const auto rank = [](llvm::StringRef name) {
    const OutputRole* role = roleNamed(name);
    return std::pair(role ? size_t(role - kRoles) : std::size(kRoles), name);
  };
  const auto wanted = rank(name);
  const auto comesBefore = [&](const Output& output) { return ++visits, rank(output.name) < wanted; };
  // Most outputs are set in order.
  if (allOutputs.empty() || comesBefore(allOutputs.back())) return allOutputs.size();
  return size_t(llvm::partition_point(allOutputs, comesBefore) - allOutputs.begin());
}

std::optional<Value> Module::output(llvm::StringRef name) const {
  const size_t at = placeOf(name);
  if (at == allOutputs.size() || allOutputs[at].name != name) return std::nullopt;
  return allOutputs[at].value;
}

void Module::setOutput(llvm::StringRef name, ParamSet params, Value value) {
  setOutput(Output{name.str(), params, value});
}

void Module::setOutput(Output output) {
  const size_t at = placeOf(output.name);
  offsetsQueries = offsetsQueries || output.name == kQOffset.name;
  if (at < allOutputs.size() && allOutputs[at].name == output.name) {
    allOutputs[at] = std::move(output);
    return;
  }
  visits += allOutputs.size() - at; // they move
  allOutputs.insert(allOutputs.begin() + ptrdiff_t(at), std::move(output));
}

void Module::dropOutputs(llvm::ArrayRef<std::string> names) {
  visits += allOutputs.size();
  llvm::StringSet<> gone;
  for (const std::string& name : names) gone.insert(name);
  llvm::erase_if(allOutputs, [&](const Output& output) { return gone.contains(output.name); });
  if (gone.contains(kQOffset)) offsetsQueries = false;
}

Value Module::make(Op op, Type type, llvm::ArrayRef<Value> operands, int64_t attr, uint32_t line) {
  assert((info(op).arity < 0 || size_t(info(op).arity) == operands.size()) && "wrong number of operands");
  uint64_t hash = llvm::hash_combine(op, type, attr);
  for (Value operand : operands) hash = llvm::hash_combine(hash, operand.id);
  hash &= ~0ull >> 2; // DenseMap keeps the two largest keys for itself
  auto& candidates = index[hash];
  for (uint32_t id : candidates) {
    const Node& node = nodes[id];
    if (node.op == op && node.type == type && node.attr == attr && llvm::ArrayRef<Value>(node.operands) == operands)
      return {id};
  }
  uint32_t id = uint32_t(nodes.size());
  candidates.push_back(id);
  nodes.push_back({op, type, attr, {operands.begin(), operands.end()}, line});
  return {id};
}

Value Module::constant(Type type, int64_t bits) { return make(Op::Const, type, {}, bits); }

Value Module::constF32(float value) { return constant(Type::F32, std::bit_cast<uint32_t>(value)); }

Value Module::numberOf(const Grid::Number& number) {
  switch (number.kind) {
  case Grid::Number::Kind::Constant:
  case Grid::Number::Kind::Rest: break;
  case Grid::Number::Kind::Scalar: return scalar(unsigned(number.value));
  case Grid::Number::Kind::Dim: return dim(unsigned(number.value));
  }
  return constInt(Type::I32, number.value);
}

float Module::f32(Value value) const {
  assert(isConst(value) && nodes[value.id].type == Type::F32);
  return std::bit_cast<float>(uint32_t(nodes[value.id].attr));
}

} // namespace attnc::ir
