#include "ir/ir.h"

#include "ir/loops.h"

#include <llvm/ADT/Hashing.h>

#include <bit>
#include <cassert>

namespace attnc::ir {

const OpInfo& info(Op op) {
  static const OpInfo table[] = {
#define OP(Name, text, arity, rule, cuda) {text, arity, TypeRule::rule, cuda},
#include "ir/ops.def"
  };
  return table[size_t(op)];
}

const char* name(Type type) {
  switch (type) {
  case Type::Bool: return "bool";
  case Type::I32: return "i32";
  case Type::I64: return "i64";
  case Type::F32: return "f32";
  }
  return "?";
}

const char* name(ParamKind param) {
  switch (param) {
  case ParamKind::Score: return "score";
  case ParamKind::B: return "b";
  case ParamKind::H: return "h";
  case ParamKind::QIdx: return "q_idx";
  case ParamKind::KvIdx: return "kv_idx";
  }
  return "?";
}

const char* name(Level level) {
  switch (level) {
  case Level::Launch: return "launch";
  case Level::Head: return "head";
  case Level::Row: return "row";
  case Level::Column: return "column";
  case Level::Element: return "element";
  }
  return "?";
}

Type loadedType(DType dtype) {
  switch (dtype) {
  case DType::Bool: return Type::Bool;
  case DType::U8:
  case DType::I8:
  case DType::I16:
  case DType::I32: return Type::I32;
  case DType::I64: return Type::I64;
  case DType::F16:
  case DType::BF16:
  case DType::F32: return Type::F32;
  }
  return Type::F32;
}

Module::Module() : dims{"B", "H", "HKV", "Q_LEN", "KV_LEN"} {}

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

float Module::f32(Value value) const {
  assert(isConst(value) && nodes[value.id].type == Type::F32);
  return std::bit_cast<float>(uint32_t(nodes[value.id].attr));
}

Level join(Level a, Level b) {
  if (a == b) return a;
  if (a > b) std::swap(a, b);
  // Launch and Head lie outside everything; Row beside Column is known per element only.
  return a <= Level::Head ? b : Level::Element;
}

Level levelOf(ParamKind param) {
  switch (param) {
  case ParamKind::Score: return Level::Element;
  case ParamKind::B:
  case ParamKind::H: return Level::Head;
  case ParamKind::QIdx: return Level::Row;
  case ParamKind::KvIdx: return Level::Column;
  }
  return Level::Element;
}

std::vector<Level> levels(const Module& module) {
  std::vector<Level> result(module.size(), Level::Launch);
  for (uint32_t id = 0; id < module.size(); ++id) {
    const Node& node = module[{id}];
    if (node.op == Op::Param) result[id] = levelOf(ParamKind(node.attr));
    for (Value operand : node.operands) result[id] = join(result[id], result[operand.id]);
  }
  const std::vector<LoopSet> open = openLoops(module);
  for (uint32_t id = uint32_t(module.size()); id-- > 0;)
    for (Value operand : module[{id}].operands)
      if (open[operand.id]) result[operand.id] = join(result[operand.id], result[id]);
  return result;
}

bool hasLoad(const Module& module, Level level) {
  const std::vector<Level> known = levels(module);
  for (uint32_t id = 0; id < module.size(); ++id)
    if (module[{id}].op == Op::Load && known[id] == level) return true;
  return false;
}

} // namespace attnc::ir
