// Operations, generated from ops.def.
#pragma once

#include "ir/params.h"

#include <cstddef>
#include <cstdint>

namespace attnc::ir {

enum class Op : uint8_t {
#define OP(Name, ...) Name,
#include "ir/ops.def"
};

/// The operations without operands, numbered as in Op.
enum class Leaf : uint8_t {
#define LEAF(Name, text) Name = uint8_t(Op::Name),
#include "ir/ops.def"
};

constexpr size_t kOpCount = 0
#define OP(...) +1
#include "ir/ops.def"
    ;

/// How the operands and the result of an operation are typed; see ops.def.
enum class TypeRule : uint8_t {
  Leaf,
  Arith,
  Int,
  Bits,
  Shift,
  Float,
  Compare,
  Test,
  Select,
  Cast,
  Load,
  Sum,
  Grid,
  Random
};

/// Whether the rule admits the type; for Compare and Test, the operands' type. Meaningless for rules whose operands
/// have several types or none.
constexpr bool admits(TypeRule rule, Type type) {
  switch (rule) {
  case TypeRule::Arith:
  case TypeRule::Sum: return type != Type::Bool;
  case TypeRule::Int:
  case TypeRule::Shift: return isInt(type);
  case TypeRule::Bits: return type != Type::F32;
  case TypeRule::Float:
  case TypeRule::Test: return type == Type::F32;
  case TypeRule::Leaf:
  case TypeRule::Compare:
  case TypeRule::Select:
  case TypeRule::Cast:
  case TypeRule::Load:
  case TypeRule::Grid:
  case TypeRule::Random: return true;
  }
  return false;
}

enum class Commutes : bool { No, Yes };

/// Costs in instructions; see ops.def.
struct Cost {
  int ofInts, ofFloats;
  constexpr Cost(int all) : ofInts(all), ofFloats(all) {}
  constexpr Cost(int ofInts, int ofFloats) : ofInts(ofInts), ofFloats(ofFloats) {}
  bool isFree() const { return ofFloats == 0; }
};

/// One row of ops.def.
struct OpInfo {
  const char* text;
  int arity; ///< -1: the rank of the tensor
  TypeRule rule;
  const char* cuda;
  bool passesGradients; ///< from an f32 result to f32 operands; see passes/derivatives.h
  Commutes commutes;
  Cost cost;
};
const OpInfo& info(Op op);

/// Whether an operation gives the same if its two operands are swapped.
inline bool isCommutative(Op op) { return info(op).commutes == Commutes::Yes; }

} // namespace attnc::ir
